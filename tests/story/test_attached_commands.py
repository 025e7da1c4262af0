"""`jupyter gpushare shell` and `run --attach`: a command on this terminal, with a share."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.story.front_end import eventually
from tests.story.jupyter_process import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
GPUSHARE = (sys.executable, "-m", "jupyter_gpushare.cli")
UUID = f"{sys.executable} -c 'from jupyter_gpushare import simgpu; print(simgpu.device_uuid())'"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = Server(tmp_path_factory.mktemp("w"), remote=True, gpus=1)
    try:
        yield lab.start()
    finally:
        lab.stop()
        sys.stdout.write(lab.logs())


@pytest.fixture
def server(lab):
    yield lab
    eventually(lambda: lab.allocated() == 0, "no allocation")


def options(server) -> list[str]:
    url = f"http://127.0.0.1:{server.scheduler_port}"
    return ["--scheduler", url, "--token-file", str(server.state / "admin.token")]


def test_a_shell_has_a_share_and_returns_it(server):
    """Its input is a pipe here."""
    shell = subprocess.Popen(
        [*GPUSHARE, "shell", *options(server), "--gpu", "0.5"],
        env={**server.env, "SHELL": "/bin/sh"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    shell.stdin.write(f"{UUID}\n")
    shell.stdin.flush()
    assert shell.stdout.readline().startswith("SIM-GPU-")
    eventually(lambda: server.allocated() == 0.5, "its share")
    out, err = shell.communicate("exit 7\n", timeout=60)
    assert (shell.returncode, out) == (7, "")
    assert "is running on" in err or err == ""


def test_a_command_uses_the_terminal(server):
    """As a person sees it: a prompt, keys, Ctrl-C for the command, and the size of the window."""
    ours, theirs = pty.openpty()
    code = "import os; print(os.isatty(0), os.get_terminal_size()); input('name? '); input()"
    run = subprocess.Popen(
        [
            *(*GPUSHARE, "run", *options(server), "--gpu", "0.5", "--attach", "--"),
            *(sys.executable, "-c", code),
        ],
        env=server.env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = until(ours, "name? ")
    assert "True os.terminal_size(" in shown
    os.write(ours, b"ada\n\x03")
    assert "KeyboardInterrupt" in until(ours, "KeyboardInterrupt")
    assert run.wait(60) == 128 + signal.SIGINT
    os.close(ours)


def until(fd: int, words: str) -> str:
    shown = ""
    while words not in shown:
        shown += os.read(fd, 4096).decode()
    return shown


def test_the_share_is_returned_when_the_terminal_is_killed(server):
    shell = subprocess.Popen(
        [*GPUSHARE, "shell", *options(server), "--gpu", "1"],
        env={**server.env, "SHELL": "/bin/sh"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    shell.stdin.write(b"echo begun\n")
    shell.stdin.flush()
    assert shell.stdout.readline() == b"begun\n"
    eventually(lambda: server.allocated() == 1, "its share")
    shell.kill()
    shell.communicate()  # the pipes of a process that is gone


def test_an_interrupt_ends_the_wait_for_a_share(server):
    holder = server.notebook("whole", "holder.ipynb")
    holder.until("attached")
    shell = subprocess.Popen(
        [*GPUSHARE, "shell", *options(server), "--gpu", "1"],
        env=server.env,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while "is waiting: Needs 1 GPU" not in shell.stderr.readline():
        pass
    shell.send_signal(signal.SIGINT)
    assert "cancelled" in shell.communicate(timeout=60)[1]
    assert shell.returncode == 130
    holder.shut_down()
