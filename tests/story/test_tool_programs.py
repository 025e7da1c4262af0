"""papermill, `jupyter console` and Voila, in an environment of their own."""

from __future__ import annotations

import os
import urllib.error
import urllib.request

import pytest

from tests.environments import python_of
from tests.story.front_end import eventually
from tests.story.jupyter_process import Server
from tests.story.tools import ALLOCATE, STATE, TREE, notebook_file, program
from tests.workers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def test_papermill_runs_two_notebooks_on_one_gpu(server: Server):
    papermill = str(python_of("tools").with_name("papermill"))
    paths = [
        notebook_file(
            server.folder, f"p{i}.ipynb", "half", ALLOCATE, STATE, "import time; time.sleep(3)"
        )
        for i in range(2)
    ]
    outs = [path.with_suffix(".out.ipynb") for path in paths]
    commands = [(papermill, str(a), str(b)) for a, b in zip(paths, outs, strict=True)]
    with program(server, *commands[0], **TREE) as one, program(server, *commands[1], **TREE) as two:
        eventually(lambda: server.allocated() == 1.0, "both have half a GPU", 60)
        assert (one.wait(), two.wait()) == (0, 0), one.text + two.text
    assert all("attached" in out.read_text() for out in outs)
    server.nothing_is_left()


def test_a_console_calls_no_hook_at_its_end_and_leaves_nothing(server: Server):
    console = str(python_of("tools").with_name("jupyter-console"))
    command = (console, "--kernel", "half", "--simple-prompt")
    read, write = os.pipe()
    with program(server, *command, stdin=read, **TREE) as one:
        os.write(write, f"{ALLOCATE}\n".encode())
        eventually(lambda: server.devices()[0]["memory_mib"]["used"] == 1024, "it has a GPU", 60)
        os.write(write, b"exit\n")
        os.close(write)
        eventually(lambda: server.allocated() == 0, "the share is free", 10)
        one.wait()
    os.close(read)
    server.nothing_is_left()


def test_a_kernel_of_voila_has_the_name_of_its_page_and_ends_with_the_server(server: Server):
    voila, port = str(python_of("tools").with_name("voila")), free_port()
    path = notebook_file(server.folder, "page.ipynb", "half", ALLOCATE)
    command = (voila, str(path), "--port", str(port), "--no-browser", "--Voila.ip=127.0.0.1")
    with program(server, *command, **TREE) as one:
        url = f"http://127.0.0.1:{port}/"
        page = eventually(lambda: _page(url), f"the page; {one.text}", 90)
        assert "on a GPU" in page
        workloads = server.rest("GET", "gpushare/api/workloads")["workloads"]
        assert [w["name"].rpartition("/")[2] for w in workloads] == ["page.ipynb"]
        one.process.terminate()
        eventually(lambda: server.allocated() == 0, "the share is free", 10)
    server.nothing_is_left()


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.read().decode()
    except urllib.error.URLError:
        return ""
