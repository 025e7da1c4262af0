"""Kernels that cannot load our extension have the same gate, by the proxy: bash, and a kernel that
SIGINT ends, behind a command that clears the environment.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from jupyter_gpushare.kernel.simnode import SimNode
from tests.story.front_end import PROXY, eventually
from tests.story.jupyter_process import Server, command_line, processes_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
SENSITIVE = Path(__file__).parents[1] / "kernel_proxy/interrupt_sensitive_kernel.py"
USES_GPU = """
from jupyter_gpushare import simgpu
import pathlib, time
b = simgpu.alloc('{memory}'); b.fill(3)
print('allocated', flush=True)
while not pathlib.Path('{stop}').exists(): {work}
print('kept', b.sum() > 0, flush=True)
"""


def command(*, memory: str, stop: Path, busy: bool = False) -> str:
    """A shell command that holds GPU memory until the file `stop` exists."""
    work = "simgpu.busy(0.05)" if busy else "time.sleep(0.05)"
    code = USES_GPU.format(memory=memory, stop=stop, work=work)
    return f'{sys.executable} -c "{code}"'


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """One GPU, and kernelspecs that go through the proxy."""
    lab = Server(tmp_path_factory.mktemp("w"), gpus=1)
    request = {"provisioner_name": "gpushare-provisioner", "config": {"gpu": 0.5}}
    bash = [sys.executable, "-m", "bash_kernel", "-f", "{connection_file}"]
    cleared = ["env", "-i", f"PATH={os.environ['PATH']}", f"PYTHONPATH={os.environ['PYTHONPATH']}"]
    sensitive = [*cleared, sys.executable, str(SENSITIVE), "-f", "{connection_file}"]
    for name, argv, language in (("bash", bash, "bash"), ("cleared", sensitive, "python")):
        metadata = {"kernel_provisioner": request}
        spec = {"argv": argv, "display_name": name, "language": language, "metadata": metadata}
        lab.kernelspec(name, spec)
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


@pytest.mark.parametrize(("spec", "code"), [("bash", "echo ran"), ("cleared", "print('ran')")])
def test_a_cell_waits_is_interrupted_and_attaches(server, spec, code):
    holder = server.notebook("whole", "holder.ipynb")
    holder.until("attached")
    nb = server.notebook(spec, "nb.ipynb")
    cell = nb.submit(code)
    nb.until_shown(cell, "Needs 0.5 GPU")
    eventually(lambda: nb.view["cell_waits"], "the wait is reported")
    pid = nb.pid
    nb.interrupt()
    assert nb.collect(cell).ename == "CellNotRun"
    assert nb.pid == pid
    assert nb.ok(code).endswith("ran\n")  # without a GPU, until there is one
    holder.shut_down()
    assert nb.until("attached")["gated"]
    assert nb.ok(code).endswith("ran\n")
    nb.shut_down()


def test_a_bash_kernel_is_suspended_and_resumed(server, tmp_path):
    """Its children use the GPU, in the background of the kernel."""
    nb = server.notebook("bash", "nb.ipynb")
    stop, out = tmp_path / "stop", tmp_path / "out"
    nb.ok(f"{command(memory='10GiB', stop=stop)} > {out} 2>&1 &")
    eventually(lambda: "allocated" in out.read_text(), "the child has GPU memory")
    eventually(lambda: nb.view["memory_mib"]["used"] == 10240, "its memory counts to the kernel")
    server.rest("POST", f"gpushare/api/kernels/{nb.kernel_id}/actions/suspend")
    nb.until("suspended")
    assert nb.ok("echo resumed").endswith("resumed\n")
    nb.until("attached")
    stop.touch()
    eventually(lambda: "kept True" in out.read_text(), "its memory was kept")
    nb.shut_down()


def test_a_bash_kernel_is_killed_and_explained(server, tmp_path):
    """It borrows memory that its owner needs, and cannot be suspended."""
    node = SimNode(server.state / "simgpu.sqlite")
    node.fault("unsupported")
    nb = server.notebook("bash", "nb.ipynb")
    pid = eventually(lambda: nb.pid, "its process")
    busy = nb.submit(command(memory="70GiB", stop=tmp_path / "never", busy=True))
    nb.until_shown(busy, "allocated")
    owner = server.notebook("half", "owner.ipynb")
    waiting = owner.submit("from jupyter_gpushare import simgpu; b = simgpu.alloc('30GiB')")
    nb.until_shown(busy, "⚠")
    result = nb.collect(busy, 60)
    assert result.ename == "GpuReclaimed"
    assert owner.collect(waiting, 60).ok
    eventually(lambda: nb.pid != pid, "a new process")
    nb.connect()
    assert "lost" in nb.ok("echo hello", 60)
    node.fault("unsupported", on=False)
    for one in (nb, owner):
        one.shut_down()


def test_a_lost_proxy_ends_the_kernel(server):
    """No client would reach it any more: Jupyter restarts it, with a new proxy."""
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
