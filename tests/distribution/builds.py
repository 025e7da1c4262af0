"""Builds wheel and sdist as `make dist` does, from a copy of the tracked files and the built
JupyterLab extension.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

__all__ = ["ROOT", "Built", "copy_of_the_tree", "digest", "run", "without_node"]

ROOT = Path(__file__).parents[2]
LABEXTENSION = Path("jupyter_gpushare/labextension")


@dataclass(frozen=True)
class Built:
    """One wheel and, if it was built too, one sdist."""

    folder: Path

    @property
    def wheel(self) -> Path:
        (found,) = self.folder.glob("*.whl")
        return found

    @property
    def sdist(self) -> Path:
        (found,) = self.folder.glob("*.tar.gz")
        return found

    @classmethod
    def of(cls, source: Path, target: Path, *only: str, **environment: str) -> Self:
        """`python -m build` in the environment of the tests: nothing is downloaded."""
        command = [sys.executable, "-m", "build", "--no-isolation", *only, "-o", target, source]
        run(*command, env=without_node() | environment, cwd=source)
        return cls(target)


def run(*command: object, **options: object) -> str:
    """Output of a command that succeeds; the output of one that fails is shown."""
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def without_node() -> dict[str, str]:
    """This environment without Node, and without this tree on Python's path."""
    folders = [
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if not any((Path(folder) / name).exists() for name in ("node", "jlpm", "npm"))
    ]
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith(("JUPYTER", "GPUSHARE", "JPY"))
    }
    return kept | {"PATH": os.pathsep.join(folders)}


def copy_of_the_tree(target: Path) -> Path:
    """Tracked and new files, and the built extension; skips the test without one."""
    if not (ROOT / LABEXTENSION / "package.json").exists():
        pytest.skip("the JupyterLab extension is not built: `make venv`")
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    shutil.copytree(ROOT / LABEXTENSION, target / LABEXTENSION, dirs_exist_ok=True)
    return target


def digest(path: Path) -> str:
    """SHA-256."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
