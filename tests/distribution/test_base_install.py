"""Without the extra `scheduler`: notebook servers, node agents and most commands work, and what
does not says what to install.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from jupyter_gpushare.scheduler_packages import SCHEDULER_PACKAGES
from tests.distribution.builds import ROOT

WITHOUT_THE_EXTRA = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {set(SCHEDULER_PACKAGES) | {"ipykernel", "ipywidgets"}}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
"""Python code after which those packages cannot be imported, as if they were not installed."""

IMPORT_ALL = """
import importlib, pkgutil
def walk(name):
    package = importlib.import_module(name)
    for one in pkgutil.iter_modules(package.__path__, name + "."):
        if one.name in LEFT_OUT:
            continue
        importlib.import_module(one.name)
        if one.ispkg:
            walk(one.name)
for name in NAMES:
    walk(name)
"""
BASE = ("messages", "routes", "kernel_proxy", "server_extension")
OTHERS = {
    "node_agent.__main__",
    "jupyter_gpushare.kernel_proxy.__main__",
    "jupyter_gpushare.routes.__main__",
}
"""Modules that run when they are imported."""


def python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_THE_EXTRA + code]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_table_is_the_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {Requirement(one).name for one in extras["optional-dependencies"]["scheduler"]}
    assert named == SCHEDULER_PACKAGES


@pytest.mark.slow
def test_everything_but_the_scheduler_can_be_imported():
    names = [*(f"jupyter_gpushare.{name}" for name in BASE), "node_agent"]
    done = python(f"NAMES = {names}\nLEFT_OUT = {OTHERS}\n{IMPORT_ALL}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "command", ["scheduler --port 0", "simulate docs/examples/two-halves.yaml", "db check"]
)
def test_a_command_of_the_scheduler_says_what_to_install(command: str):
    done = python(f"from jupyter_gpushare.cli import main\nmain({command.split()})")
    assert done.returncode == 1
    name = command.partition(" ")[0]
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: jupyter gpushare {name} needs ")
    assert line.endswith("pip install 'jupyter-gpushare[scheduler]'")


def test_the_demo_says_in_one_line_what_it_needs_in_all():
    """The extra `scheduler` alone would only lead to the next message."""
    done = python("from jupyter_gpushare.cli import main\nmain(['demo'])")
    (line,) = done.stderr.splitlines()
    assert line.endswith("pip install 'jupyter-gpushare[demo]'")


def test_another_missing_module_is_no_matter_of_the_extra():
    code = """
from jupyter_gpushare import cli
cli.COMMANDS["status"] = ("a_module_that_is_not_there:x", "")
cli.main(["status"])
"""
    done = python(code)
    assert "ModuleNotFoundError: No module named 'a_module_that_is_not_there'" in done.stderr


def test_a_server_without_a_scheduler_service_says_what_to_install():
    code = """
import asyncio
from pathlib import Path
from jupyter_gpushare.server_extension.clients.embedded_scheduler import *
options = EmbeddedOptions(Path("/none"), Path("/none/s"), None, "2", "80GiB", "", "ada")
try:
    asyncio.run(start_local(options, on_delay=print))
except Exception as error:
    print(type(error).__name__, error.message)
"""
    done = python(code)
    assert done.stdout.startswith("Unavailable the scheduler inside this server needs ")
    assert "pip install 'jupyter-gpushare[scheduler]', or set scheduler_url" in done.stdout
