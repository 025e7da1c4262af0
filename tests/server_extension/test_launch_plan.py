"""What makes the cells of a kernel ask is decided by its command."""

from __future__ import annotations

import pytest

from jupyter_gpushare.server_extension.launch.bootstrap import STARTUP, bootstrap_environment
from jupyter_gpushare.server_extension.launch.launch_plan import plan_launch

FILE = ["-f", "/run/kernel.json"]
IPYTHON = {
    "as a module": ["python", "-m", "ipykernel_launcher", *FILE],
    "isolated": ["python", "-I", "-m", "ipykernel", *FILE, "--debug"],
    "conda run": ["conda", "run", "-n", "e", "python", "-m", "ipykernel_launcher", *FILE],
    "by its file": ["python", "/usr/lib/ipykernel_launcher.py", *FILE],
    "in a shell": ["sh", "-c", '. env/bin/activate && python -m ipykernel "$@"', "-", *FILE],
    "with variables": ["env", "A=1", "python", "-m", "ipykernel_launcher", *FILE],
    "a wrapper script": ["/opt/start-kernel", *FILE],
    "sudo that keeps variables": ["sudo", "-E", "python", "-m", "ipykernel_launcher", *FILE],
}
OTHERS = {
    "R": (["R", "--slave", "-e", "IRkernel::main()", "--args", "/run/k.json"], "R"),
    "bash": (["python", "-m", "bash_kernel", *FILE], "bash"),
    "a kernel written in Python": (["python", "-m", "echo_kernel", *FILE], "python"),
    "xeus-python": (["xpython", *FILE], "python"),
    "xeus-python as a module": (["python", "-m", "xpython_launcher", *FILE], "python"),
    "env -i": (["env", "-i", "python", "-m", "ipykernel_launcher", *FILE], "python"),
    "sudo": (["/usr/bin/sudo", "-u", "b", "python", "-m", "ipykernel", *FILE], "python"),
    "Julia": (["julia", "-e", "using IJulia # not ipykernel_launcherx", "/run/k.json"], "julia"),
    "no command": ([], "python"),
}


@pytest.mark.parametrize("argv", IPYTHON.values(), ids=IPYTHON)
def test_ipython_kernels_load_the_gate(argv):
    assert plan_launch(argv, "python").gate == "bootstrap"


@pytest.mark.parametrize(("argv", "language"), OTHERS.values(), ids=OTHERS)
def test_other_kernels_get_the_proxy_or_nothing_with_a_reason(argv, language):
    plan = plan_launch(argv, language)
    assert plan.gate == "none"
    assert plan.reason
    assert plan_launch(argv, language, has_proxy=True).gate == "proxy"


def test_a_kernelspec_whose_kernel_never_connected_gets_the_proxy():
    argv = IPYTHON["a wrapper script"]
    assert plan_launch(argv, "python", never_connected=True, has_proxy=True).gate == "proxy"


def test_the_users_own_startup_file_is_kept():
    assert bootstrap_environment({}) == {"PYTHONSTARTUP": str(STARTUP)}
    mine = bootstrap_environment({"PYTHONSTARTUP": "/home/a/start.py"})
    assert mine["GPUSHARE_USER_STARTUP"] == "/home/a/start.py"
    assert "GPUSHARE_USER_STARTUP" not in bootstrap_environment(mine)
    assert STARTUP.is_file()
