"""Two notebooks of each tool wait for a GPU, share it, and release it when the tool is killed
(`kill -9`).
"""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from pathlib import Path

import psutil
import pytest

from tests.environments import python_of
from tests.story.class_tools import assignment, autograde, jobs_server
from tests.story.front_end import eventually
from tests.story.jupyter_process import Server
from tests.story.tools import ALLOCATE, TREE, Tool, notebook_file, program, qtconsole
from tests.workers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
FOREVER = "import time\nwhile True: print('.', flush=True); time.sleep(1)"
"""`jupyter run` ends after 10 s without output."""
WAITING = "gpushare: waiting for a GPU: Needs 0.5 GPU"


class Started:
    """The programs of a tool with two kernels, of half a GPU each."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        self.server, self._stack, self.tools = server, stack, []

    def start(self, *argv: str, stdin: int = subprocess.DEVNULL, **environ: str) -> Tool:
        made = program(self.server, *argv, stdin=stdin, **environ)
        self.tools.append(self._stack.enter_context(made))
        return self.tools[-1]

    def add(self, made: AbstractContextManager) -> object:
        return self._stack.enter_context(made)

    @property
    def text(self) -> str:
        return "\n".join(tool.text for tool in self.tools)

    def to_kill(self) -> list[int]:
        """The processes that run the kernels."""
        return [tool.process.pid for tool in self.tools]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """With one GPU: while there are more, two halves use one each."""
    server = Server(tmp_path_factory.mktemp("w"), gpus=1)
    try:
        yield server.start()
    finally:
        server.stop()
        sys.stdout.write(server.logs())


def nbconvert(both: Started) -> None:
    path = notebook_file(both.server.folder, "convert.ipynb", "half", ALLOCATE, FOREVER)
    command = (_ours("jupyter-nbconvert"), "--to", "notebook", "--execute", str(path))
    for output in ("c", "d"):
        both.start(*command, "--output", output)


def jupyter_run(both: Started) -> None:
    script = both.server.folder / "forever.py"
    script.write_text(f"{ALLOCATE}\n{FOREVER}\n")
    for _ in range(2):
        both.start(_ours("jupyter-run"), "--kernel", "half", str(script))


def papermill(both: Started) -> None:
    command = str(python_of("tools").with_name("papermill"))
    path = notebook_file(both.server.folder, "night.ipynb", "half", ALLOCATE, FOREVER)
    for output in ("a.ipynb", "b.ipynb"):
        both.start(command, str(path), str(path.with_name(output)), **TREE)


def console(both: Started) -> None:
    command = (str(python_of("tools").with_name("jupyter-console")), "--kernel", "half")
    for _ in range(2):
        read, write = os.pipe()
        os.write(write, f"{ALLOCATE}\nimport time; time.sleep(600)\n".encode())
        both.add(closing(os.fdopen(write, "wb")))
        both.start(*command, "--simple-prompt", stdin=read, **TREE)
        os.close(read)


def qtconsoles(both: Started) -> None:
    command, environ = qtconsole("half", ALLOCATE, FOREVER)
    for _ in range(2):
        both.start(*command, **environ)


def voila(both: Started) -> None:
    """Two pages of one server."""
    path, port = notebook_file(both.server.folder, "page.ipynb", "half", ALLOCATE), free_port()
    command = (str(python_of("tools").with_name("voila")), str(path), "--no-browser")
    both.start(*command, "--port", str(port), "--Voila.ip=127.0.0.1", **TREE)
    eventually(lambda: Server._listens(port), f"it listens; {both.text}")
    for _ in range(2):
        threading.Thread(target=_open_page, args=(port,), daemon=True).start()


def _open_page(port: int) -> None:
    with suppress(OSError, http.client.HTTPException):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=120).read()


def jupyter_scheduler(both: Started) -> None:
    """Two jobs of one server. Their processes run the kernels; the server's end ends neither."""
    jobs = both.add(jobs_server(both.server))
    both.tools.append(jobs.tool)
    for name in ("a", "b"):
        jobs.submit(name, "half", ALLOCATE, FOREVER)
    server = psutil.Process(jobs.tool.process.pid)
    both.to_kill = lambda: [p.pid for p in server.children() if "spawn_main" in str(p.cmdline())]


def nbgrader(both: Started) -> None:
    first = assignment(both.server, "half", ALLOCATE, FOREVER)
    for course in (first, Path(shutil.copytree(first, first.with_name("course2")))):
        both.tools.append(both.add(autograde(both.server, course)))


def _ours(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


TOOLS = (nbconvert, jupyter_run, papermill, console, qtconsoles, voila, jupyter_scheduler, nbgrader)


@pytest.mark.parametrize("start", TOOLS, ids=lambda start: start.__name__)
def test_two_wait_share_a_gpu_and_free_it_when_killed(server: Server, start):
    busy = server.notebook("whole", f"{start.__name__}.ipynb")
    busy.until("attached")
    with ExitStack() as stack:
        both = Started(server, stack)
        start(both)
        eventually(lambda: both.text.count(WAITING) >= 2, "both wait", 90)
        busy.shut_down()
        eventually(lambda: server.devices()[0]["memory_mib"]["used"] == 2 * 1024, "both run", 90)
        assert server.allocated() == 1
        for pid in both.to_kill():
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: server.allocated() == 0, "the shares are free", 30)
        server.nothing_is_left()
