"""The cell gate in a kernel that loads it through PYTHONSTARTUP, as provisioners hand it over."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.server_extension.launch.bootstrap import STARTUP

pytestmark = pytest.mark.slow
CHILD = "import os, sys; print(os.environ.get('PYTHONSTARTUP'), 'jupyter_gpushare' in sys.modules)"


def test_the_users_startup_file_runs_and_nothing_of_ours_is_left(notebook, agent, tmp_path):
    users = tmp_path / "start.py"
    users.write_text("greeting = 'hello'\nassert 'users_name' not in dir()\n")
    book = notebook(startup=True, GPUSHARE_USER_STARTUP=str(users))
    assert agent.receive("kernel_hello")["protocol"] == 1
    assert book.run("print(greeting)").text == "hello\n"
    names = "import os; print([n for n in dir() if 'gpushare' in n], os.environ['PYTHONSTARTUP'])"
    assert book.run(names).text == f"[] {users}\n"
    book.run(f"child = {CHILD!r}")
    code = "import subprocess, sys; print(subprocess.getoutput(f'{sys.executable} -c \"{child}\"'))"
    assert book.run(code).text.strip() == f"{users} False"


def test_it_works_in_isolated_mode_and_asks_before_each_cell(notebook, agent):
    agent.kernel["state"] = "attached"
    book = notebook(startup=True, flags=("-I",))
    assert agent.receive("kernel_hello")["kernel_id"] == "k1"
    assert book.run("from jupyter_gpushare import gpu; print(gpu.status()['state'])").ok
    assert agent.receive("cell_start")["exempt"] is False
    assert book.run("%load_ext jupyter_gpushare").ok, "loading it again changes nothing"
    assert book.run("import os; print(os.environ.get('PYTHONSTARTUP'))").text == "None\n"


def test_an_error_in_the_users_file_does_not_stop_the_gate(notebook, agent, tmp_path):
    users = tmp_path / "start.py"
    users.write_text("1 / 0\n")
    book = notebook(startup=True, GPUSHARE_USER_STARTUP=str(users))
    assert agent.receive("kernel_hello")
    assert book.run("print([n for n in dir() if 'gpushare' in n])").text == "[]\n"


def test_an_agent_of_another_protocol_is_named_once_and_cells_run(notebook, agent):
    agent.protocol = 2
    book = notebook(startup=True, GPUSHARE_WANTS_GPU="1")
    assert agent.receive("kernel_hello")
    result = book.run("print('ran')")
    assert result.ok
    assert "does not match the node agent (protocol 2)" in result.text
    assert result.text.endswith("ran\n")
    assert "protocol" not in book.run("print('again')").text


@pytest.fixture
def other_version(tmp_path):
    """A folder in which another version of the package is installed, which speaks protocol 2."""
    site = tmp_path / "site"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(STARTUP.parent, site / "jupyter_gpushare/kernel", ignore=ignored)
    protocol = site / "jupyter_gpushare/kernel/protocol.py"
    protocol.write_text(protocol.read_text().replace("PROTOCOL: Final = 1", "PROTOCOL: Final = 2"))
    (site / "jupyter_gpushare/__init__.py").write_text(
        "from jupyter_gpushare.kernel.ipython_extension import *\n__version__ = '99'\n"
        "def __getattr__(name):\n"
        "    import importlib\n"
        "    return importlib.import_module('jupyter_gpushare.kernel.' + name)\n"
    )
    return site


def test_another_installed_version_is_replaced_by_that_of_the_provisioner(
    notebook, agent, other_version
):
    agent.kernel["state"] = "attached"
    book = notebook(startup=True, PYTHONPATH=str(other_version))
    assert agent.receive("kernel_hello")["protocol"] == 1
    code = "import jupyter_gpushare as g; print(g.__version__, g.gpu.status()['state'])"
    assert book.run(code).text == "99 attached\n"


def test_another_version_that_is_loaded_first_says_in_one_line_what_to_update(
    notebook, agent, other_version, tmp_path
):
    profile = tmp_path / "ipython/profile_default"
    profile.mkdir(parents=True)
    config = "c.InteractiveShellApp.extensions = ['jupyter_gpushare']\n"
    (profile / "ipython_kernel_config.py").write_text(config)
    paths = {"PYTHONPATH": str(other_version), "IPYTHONDIR": str(tmp_path / "ipython")}
    book = notebook(startup=True, GPUSHARE_WANTS_GPU="1", **paths)
    assert agent.receive("kernel_hello")["protocol"] == 2
    result = book.run("print('ran')")
    line = (
        "jupyter-gpushare of this kernel (protocol 2) does not match the node agent (protocol 1);"
        " update jupyter-gpushare of the node agent of this machine, then restart the kernel"
    )
    assert result.text.count("protocol 2") == 1
    assert line in result.text
    assert result.text.endswith("ran\n")


def test_a_plain_interpreter_only_runs_the_users_file(tmp_path):
    users = tmp_path / "start.py"
    users.write_text("print('mine')\n")
    environ = {"PYTHONSTARTUP": str(STARTUP), "GPUSHARE_USER_STARTUP": str(users), "TERM": "dumb"}
    found = subprocess.run(
        [sys.executable, "-iq"],
        input="print('typed')\n",
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == ["mine", "typed"]


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.8"])
def test_older_pythons_can_read_the_file(version):
    """By the interpreters of pyenv, where there are some."""
    interpreters = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    if not interpreters:
        pytest.skip(f"Python {version} is not installed on this machine (pyenv)")
    code = f"compile(open({str(STARTUP)!r}).read(), 'startup', 'exec')"
    subprocess.run([interpreters[0], "-c", code], check=True)
