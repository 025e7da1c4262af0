"""The oldest Jupyter server that we support, beside the newest that every other story runs with."""

from __future__ import annotations

import sys

import pytest

from tests.environments import python_of
from tests.story.front_end import eventually
from tests.story.jupyter_process import Server
from tests.story.other_kernels import OTHER_KERNELS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One GPU."""
    server = Server(tmp_path_factory.mktemp("w"), gpus=1, python=str(python_of("server")))
    try:
        yield server.start()
    finally:
        server.stop()
        sys.stdout.write(server.logs())


def test_it_is_the_oldest(server):
    assert server.rest("GET", "api")["version"].startswith("2.13.")


def test_kernels_wait_attach_share_a_gpu_and_end(server):
    server.kernelspec("bash", OTHER_KERNELS["bash"].spec("bash", gpu=0.5))
    holder = server.notebook("whole", "holder.ipynb")
    holder.until("attached")
    python, bash = server.notebook("half", "a.ipynb"), server.notebook("bash", "b.ipynb")
    cells = [python.submit("print('ran')"), bash.submit("echo ran")]
    for nb, cell in zip((python, bash), cells, strict=True):
        nb.until_shown(cell, "Needs 0.5 GPU")
    holder.shut_down()
    for nb, cell in zip((python, bash), cells, strict=True):
        assert nb.collect(cell).text.endswith("ran\n")
        assert nb.until("attached")["gated"]
    server.rest("POST", f"api/kernels/{python.kernel_id}/restart")
    python.connect()
    assert python.ok("print('again')").endswith("again\n")
    for nb in (python, bash):
        nb.shut_down()
    eventually(lambda: server.allocated() == 0, "no share is left")
    server.nothing_is_left()
