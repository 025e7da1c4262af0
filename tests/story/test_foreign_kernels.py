"""Python kernels of environments that do not have our package: the same gate, share and messages as
in our own environment.
"""

from __future__ import annotations

import sys

import pytest

from jupyter_gpushare.kernel.simnode import SimNode
from tests.environments import python_of
from tests.story.front_end import eventually
from tests.story.jupyter_process import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
ENVIRONMENTS = ("oldest", "middle", "newest")
FILL = "from jupyter_gpushare import simgpu; b = simgpu.alloc('{gib}GiB'); b.fill(3); print('full')"
CHILD = "import os, sys; print('PYTHONSTARTUP' in os.environ, 'jupyter_gpushare' in sys.modules)"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One GPU."""
    server = Server(tmp_path_factory.mktemp("w"), gpus=1)
    try:
        yield server.start()
    finally:
        server.stop()
        sys.stdout.write(server.logs())


def kernelspec(server: Server, name: str, argv: list[str]) -> None:
    """One that requests half a GPU. Without PYTHONPATH: the kernel must not see this tree."""
    request = {"provisioner_name": "gpushare-provisioner", "config": {"gpu": 0.5}}
    metadata = {"kernel_provisioner": request}
    command = ["env", "-u", "PYTHONPATH", *argv]
    spec = {"argv": command, "display_name": name, "language": "python", "metadata": metadata}
    server.kernelspec(name, spec)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_kernel_waits_is_interrupted_attaches_is_suspended_and_ends(server, name):
    argv = [str(python_of(name)), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernelspec(server, name, argv)
    holder = server.notebook("whole", f"holder-{name}.ipynb")
    holder.until("attached")
    nb = server.notebook(name, f"{name}.ipynb")
    cell = nb.submit("print('ran')")
    nb.until_shown(cell, "Needs 0.5 GPU")
    nb.interrupt()
    assert nb.collect(cell).ename == "CellNotRun"
    assert nb.ok("print('without')") == "without\n"
    holder.shut_down()
    view = nb.until("attached")
    assert (view["gated"], view["gate_problem"]) == (True, None)
    assert view["memory_mib"]["guaranteed"] == 40960
    assert view["user"] == server.status()["user"]
    assert nb.ok(FILL.format(gib=10)).endswith("full\n")
    server.rest("POST", f"gpushare/api/kernels/{nb.kernel_id}/actions/suspend")
    nb.until("suspended")
    assert nb.ok("print(b.sum() == 3 * b.nbytes)").endswith("True\n")
    assert "running" in nb.ok("%gpu") or "idle" in nb.ok("%gpu")
    child = (
        f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', {CHILD!r}]))"
    )
    assert "False False" in nb.ok(child)
    assert "ModuleNotFoundError" in nb.run("import jupyter_gpushare.client").text
    nb.shut_down()
    server.nothing_is_left()


def test_a_wrapper_script_in_isolated_mode_is_killed_and_explained(server):
    """`python -I`, which ignores PYTHONPATH, in a script that the kernelspec names."""
    python = python_of("oldest")
    script = server.folder / "start-kernel"
    script.write_text(f'#!/bin/sh\n"{python}" -I -m ipykernel_launcher -f "$1"\n')
    script.chmod(0o755)
    kernelspec(server, "wrapper", [str(script), "{connection_file}"])
    nb = server.notebook("wrapper", "wrapper.ipynb")
    assert nb.ok(FILL.format(gib=70)).endswith("full\n")
    assert nb.view["gated"]
    pid, node = nb.pid, SimNode(server.state / "simgpu.sqlite")
    node.fault("unsupported")
    busy = nb.submit("simgpu.busy(60)")
    owner = server.notebook("half", "owner.ipynb")
    cell = owner.submit(FILL.format(gib=30))
    assert nb.collect(busy, 60).ename == "GpuReclaimed"
    assert owner.collect(cell, 60).ok
    eventually(lambda: nb.pid != pid, "a new process")
    nb.connect()
    assert "lost" in nb.ok("print('again')", 60)
    node.fault("unsupported", on=False)
    for one in (nb, owner):
        one.shut_down()
    server.nothing_is_left()


def test_a_kernel_that_does_not_load_the_gate_is_ungated_and_says_so(server):
    """A user's IPython configuration can switch startup files off."""
    python = python_of("middle")
    option = "--InteractiveShellApp.exec_PYTHONSTARTUP=False"
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}", option]
    kernelspec(server, "silent", argv)
    nb = server.notebook("silent", "silent.ipynb")
    assert nb.ok("print('starts')") == "starts\n"
    view = eventually(lambda: (seen := nb.view)["gate_problem"] and seen, "ungated", 40)
    assert view["gated"] is False
    assert view["memory_mib"]["guaranteed"] == 0
    assert "the cell gate did not load" in view["gate_problem"]
    assert "ungated" in nb.kinds()
    eventually(lambda: nb.kernel_id in server.devices()[0]["ungated"], "the nodes table says so")
    server.rest("POST", f"api/kernels/{nb.kernel_id}/restart")
    eventually(lambda: nb.view["gated"] and nb.view["gate_problem"] is None, "behind the proxy", 40)
    nb.connect()
    assert nb.ok("print('asks now')").endswith("asks now\n")
    nb.shut_down()
    server.nothing_is_left()
