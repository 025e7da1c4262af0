"""`jupyter gpushare enable` changes the default of one environment and of no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.cli import enable as command
from jupyter_gpushare.default_provisioner import PTH_NAME, PTH_TEXT
from tests.cli.command import gpushare

FACTORY = "from jupyter_client.provisioning.factory import KernelProvisionerFactory as F\n"
DEFAULT = "print(F.instance().default_provisioner_name)"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The folder in which the package is installed."""
    monkeypatch.setattr(
        command, "distribution", lambda _: type("D", (), {"locate_file": lambda *_: tmp_path})
    )
    return tmp_path


def default_in(folder: Path, code: str = "", **environ: str) -> str:
    """What jupyter_client takes as the default in a Python that reads this folder."""
    start = f"import site; site.addsitedir({str(folder)!r})\n"
    env = {
        name: value
        for name, value in os.environ.items()
        if name != "JUPYTER_DEFAULT_PROVISIONER_NAME"
    }
    argv = [sys.executable, "-c", start + FACTORY + code + DEFAULT]
    done = subprocess.run(argv, env=env | environ, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_it_is_the_default_after_enable_and_not_after_disable(installed):
    assert default_in(installed) == "local-provisioner"
    assert gpushare("enable").status == 0
    assert default_in(installed) == "gpushare-provisioner"
    assert gpushare("disable").status == 0
    assert default_in(installed) == "local-provisioner"
    assert "was not enabled" in gpushare("disable").stdout


def test_a_configured_name_and_the_environment_take_precedence(installed):
    gpushare("enable")
    variable = {"JUPYTER_DEFAULT_PROVISIONER_NAME": "local-provisioner"}
    assert default_in(installed, **variable) == "local-provisioner"
    config = (
        "from traitlets.config import Config\n"
        "F.instance(config=Config(KernelProvisionerFactory={'default_provisioner_name': 'mine'}))\n"
    )
    assert default_in(installed, config) == "mine"


def test_children_of_other_environments_are_not_changed(installed):
    gpushare("enable")
    child = "import os; print([n for n in os.environ if 'PROVISIONER' in n])\n"
    assert default_in(installed, child).splitlines()[0] == "[]"


def test_the_file_does_nothing_without_the_package(tmp_path):
    (tmp_path / PTH_NAME).write_text(PTH_TEXT)
    code = f"import site, sys; site.addsitedir({str(tmp_path)!r}); print('started')"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("started\n", "")


@pytest.mark.parametrize("scope", ["user", "sys-prefix"])
def test_a_folder_without_the_package_is_refused(installed, scope):
    done = gpushare("enable", f"--{scope}")
    assert done.status == 2
    assert "would not find the provisioner" in done.stderr
