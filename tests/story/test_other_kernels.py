"""Kernels that cannot load our extension have the same gate, by the proxy: bash, R, xeus-python,
and a kernel that SIGINT ends, behind a command that clears the environment.
"""

from __future__ import annotations

import signal
import sys

import pytest

from jupyter_gpushare.kernel.simnode import SimNode
from tests.story.front_end import PROXY, eventually
from tests.story.jupyter_process import Server, command_line, processes_of
from tests.story.other_kernels import OTHER_KERNELS, OtherKernel, holding, other_kernel

__all__ = ["other_kernel"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
uses_gpus = pytest.mark.parametrize("other_kernel", ["bash", "R", "xeus"], indirect=True)
"""A command that clears the environment clears the address of the simulated GPUs too."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """One GPU."""
    lab = Server(tmp_path_factory.mktemp("w"), gpus=1)
    try:
        yield lab.start()
    finally:
        lab.stop()
        sys.stdout.write(lab.logs())


@pytest.fixture
def server(lab):
    """Each test shuts its notebooks down, and leaves nothing."""
    yield lab
    lab.nothing_is_left()
    lines = [command_line(process) for process in processes_of(lab.folder)]
    assert not [line for line in lines if PROXY in line]


@pytest.fixture
def notebook(server, other_kernel: OtherKernel):
    """A notebook with half a GPU, once it is asked for."""
    made = []

    def make():
        server.kernelspec("other", other_kernel.spec("other", gpu=0.5))
        made.append(server.notebook("other", "nb.ipynb"))
        return made[-1]

    yield make
    for one in made:
        one.shut_down()


def test_a_cell_waits_is_interrupted_and_attaches(server, notebook, other_kernel):
    holder = server.notebook("whole", "holder.ipynb")
    holder.until("attached")
    nb, code = notebook(), other_kernel.prints
    cell = nb.submit(code)
    nb.until_shown(cell, "Needs 0.5 GPU")
    eventually(lambda: nb.view["cell_waits"], "the wait is reported")
    pid = nb.pid
    nb.interrupt()
    assert nb.collect(cell).ename == "CellNotRun"
    assert nb.pid == pid
    assert nb.ok(code).rstrip().endswith("ran")  # without a GPU, until there is one
    holder.shut_down()
    assert nb.until("attached")["gated"]
    assert nb.ok(code).rstrip().endswith("ran")


@uses_gpus
def test_its_children_use_the_gpu_and_are_suspended_and_resumed(
    server, notebook, other_kernel, tmp_path
):
    nb, stop = notebook(), tmp_path / "stop"
    script = tmp_path / "child.py"
    nb.ok(other_kernel.start(holding(script, memory="10GiB", stop=stop)))
    out = script.with_suffix(".out")
    eventually(lambda: "allocated" in out.read_text(), "the child has GPU memory")
    eventually(lambda: nb.view["memory_mib"]["used"] == 10240, "its memory counts to the kernel")
    server.rest("POST", f"gpushare/api/kernels/{nb.kernel_id}/actions/suspend")
    nb.until("suspended")
    assert nb.ok(other_kernel.prints).rstrip().endswith("ran")
    nb.until("attached")
    stop.touch()
    eventually(lambda: "kept True" in out.read_text(), "its memory was kept")


@uses_gpus
def test_it_is_killed_and_explained(server, notebook, other_kernel, tmp_path):
    """It borrows memory that its owner needs, and cannot be suspended."""
    node, script = SimNode(server.state / "simgpu.sqlite"), tmp_path / "child.py"
    node.fault("unsupported")
    nb = notebook()
    pid = eventually(lambda: nb.pid, "its process")
    command = holding(script, memory="70GiB", stop=tmp_path / "never", busy=True)
    busy = nb.submit(other_kernel.run(command))
    eventually(lambda: "allocated" in script.with_suffix(".out").read_text(), "it has the memory")
    owner = server.notebook("half", "owner.ipynb")
    waiting = owner.submit("from jupyter_gpushare import simgpu; b = simgpu.alloc('30GiB')")
    nb.until_shown(busy, "⚠")
    assert nb.collect(busy, 60).ename == "GpuReclaimed"
    assert owner.collect(waiting, 60).ok
    eventually(lambda: nb.pid != pid, "a new process")
    nb.connect()
    assert "lost" in nb.ok(other_kernel.prints, 60)
    node.fault("unsupported", on=False)
    owner.shut_down()


def test_a_lost_proxy_ends_the_kernel(server):
    """No client would reach it any more: Jupyter restarts it, with a new proxy."""
    server.kernelspec("bash", OTHER_KERNELS["bash"].spec("bash", gpu=0.5))
    nb = server.notebook("bash", "nb.ipynb")
    nb.ok("x=1")
    kernel = nb.pid
    for process in processes_of(server.folder):
        if PROXY in command_line(process):
            process.send_signal(signal.SIGKILL)
    eventually(lambda: nb.pid != kernel, "a new process", 60)
    assert "lost" in nb.kinds()
    nb.connect()
    assert nb.ok("echo x=$x", 60).endswith("x=\n")
    nb.shut_down()
