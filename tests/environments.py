"""Environments of other people's kernels and tools: older and newer Pythons without our package.

`python -m tests.environments` builds them once per machine in `.venv/kernels`; `make test` runs it.
Tests of an environment that is missing are skipped, with the reason.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["ENVIRONMENTS", "ROOT", "Environment", "python_of", "r_command"]

ROOT = Path(__file__).parents[1]
FOLDER = (ROOT / ".venv").resolve() / "kernels"
"""Without links: programs of an environment name their interpreter by this path."""
PYENV = Path.home() / ".pyenv/versions"
IRKERNEL = Path("/usr/lib/R/site-library/IRkernel")
"""Where Debian's package has it."""


@dataclass(frozen=True)
class Environment:
    """`pythons`: versions that will do, the best first. `has_package`: our entry points, as in the
    environment of a tool. `extras`: what else of our dependencies it has.
    """

    name: str
    pythons: tuple[str, ...]
    packages: tuple[str, ...]
    has_package: bool = False
    extras: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    @property
    def note(self) -> Path:
        """What was built, or why not."""
        return FOLDER / f"{self.name}.json"


ENVIRONMENTS = {
    one.name: one
    for one in (
        Environment("oldest", ("3.9",), ("ipykernel==6.4.*", "ipython==7.23.1")),
        Environment("middle", ("3.12", "3.11", "3.10"), ("ipykernel==6.29.*", "ipywidgets==7.*")),
        Environment("newest", ("3.14", "3.13", "3.12", "3.11"), ("ipykernel>=7", "ipywidgets>=8")),
        Environment("xeus", ("3.12", "3.11", "3.10", "3.13"), ("xeus-python>=0.19",)),
        Environment(
            "tools",
            (f"{sys.version_info[0]}.{sys.version_info[1]}",),
            ("papermill", "jupyter_console", "voila", "ipykernel"),
            has_package=True,
        ),
        Environment(
            "classes",
            (f"{sys.version_info[0]}.{sys.version_info[1]}",),
            ("jupyter_scheduler", "nbgrader", "ipykernel"),
            has_package=True,
        ),
        # Not with `distributed` in `test`: it adds a panel of its own to JupyterLab.
        Environment("engines", ("3.12", "3.11", "3.10", "3.13"), ("ipyparallel>=9", "ipykernel")),
        Environment(  # Qt is 100 MB to download
            "qt",
            (f"{sys.version_info[0]}.{sys.version_info[1]}",),
            ("qtconsole", "PySide6_Essentials", "ipykernel"),
            has_package=True,
        ),
        Environment(
            "gateway",
            (f"{sys.version_info[0]}.{sys.version_info[1]}",),
            ("jupyter_kernel_gateway", "ipykernel"),
            has_package=True,
        ),
        Environment(
            "server",
            ("3.11", "3.12"),
            ("jupyter_server==2.13.*", "jupyterlab==4.2.*", "ipykernel==6.29.*"),
            has_package=True,
            extras=("scheduler",),
        ),
    )
}


def python_of(name: str) -> Path:
    """The interpreter of an environment; skips the test without one."""
    environment = ENVIRONMENTS[name]
    if not environment.python.exists():
        try:
            reason = json.loads(environment.note.read_text())["problem"]
        except (OSError, ValueError, KeyError):
            reason = "run `make kernels`"
        pytest.skip(f"no environment {name!r} on this machine: {reason}")
    return environment.python


def r_command() -> str:
    """The program R, whose IRkernel can start; skips the test without it."""
    program = shutil.which("R")
    if program is None or not IRKERNEL.exists():
        pytest.skip("no IRkernel on this machine: install Debian's r-cran-irkernel")
    return program


def _interpreter(versions: Iterable[str]) -> str | None:
    """The first of these Pythons that this machine has."""
    for version in versions:
        found = sorted(PYENV.glob(f"{version}.*/bin/python"))
        if found:
            return str(found[-1])
        candidates = (shutil.which(f"python{version}"), sys.executable)
        for path in filter(None, candidates):
            code = "import sys; print('%d.%d' % sys.version_info[:2])"
            done = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
            if done.stdout.strip() == version:
                return path
    return None


def build(environment: Environment) -> str:
    """Build it, unless it is there; "" or why it is missing."""
    if environment.python.exists():
        return ""
    python = _interpreter(environment.pythons)
    if python is None:
        return f"this machine has no Python {' or '.join(environment.pythons)}"
    uv = [sys.executable, "-m", "uv", "--quiet"]
    try:
        subprocess.run([*uv, "venv", "--python", python, str(environment.folder)], check=True)
        packages = [
            *environment.packages,
            *(_dependencies(environment.extras) if environment.has_package else ()),
        ]
        install = [*uv, "pip", "install", "--python", str(environment.python), *packages]
        subprocess.run(install, check=True)
    except subprocess.CalledProcessError as error:
        shutil.rmtree(environment.folder, ignore_errors=True)
        return f"it could not be installed: {error}"
    if environment.has_package:
        _link_package(environment)
    return ""


def _dependencies(extras: Iterable[str]) -> list[str]:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(one for extra in extras for one in optional[extra])]


def _link_package(environment: Environment) -> None:
    """The entry points. Tests set PYTHONPATH to the tree of this package."""
    site = next(environment.folder.glob("lib/python3.*/site-packages"))
    ours = next((ROOT / ".venv").glob("lib/python3.*/site-packages/jupyter_gpushare-*.dist-info"))
    shutil.copytree(ours, site / ours.name)


def main() -> None:
    """Build all; a missing one is no error."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for environment in ENVIRONMENTS.values():
        problem = build(environment)
        environment.note.write_text(json.dumps({"problem": problem}))
        sys.stderr.write(f"{environment.name}: {problem or environment.python}\n")


if __name__ == "__main__":
    main()
