"""An MPS server that our kernels could use disables `suspend`; others do not."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from node_agent.devices.nvidia.mps import PROCESS_NAME, mps_is_running
from tests.agent.test_nvidia import devices, suspend_is
from tests.agent.test_selftest import has, self_test
from tests.fake_driver.fake_gpu_machine import FakeGpuMachine

pytestmark = pytest.mark.slow


def mps(proc: Path, pid: int, *, uid: int, opened: tuple[int, ...] = ()) -> None:
    """A process with the name of an MPS server."""
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text("nvidia-cuda-mps\n")
    (folder / "status").write_text(f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    for n, minor in enumerate(opened):
        (folder / "fd" / str(n)).symlink_to(f"/dev/nvidia{minor}")


def test_while_an_mps_server_runs_nothing_is_suspended(tmp_path, monkeypatch):
    """Other tests run beside this one: its server is in a /proc that nobody else reads."""
    proc = tmp_path / "proc"
    mps(proc, 4711, uid=os.geteuid())
    monkeypatch.setattr(
        "node_agent.devices.nvidia.selftest.mps_is_running",
        lambda minors: mps_is_running(minors, proc),
    )
    monkeypatch.setattr("node_agent.devices.nvidia.capability_probe.RETRY_S", 0.1)
    with devices(tmp_path, gpus=1) as (_, found):
        found.start(lambda: None)
        suspend_is(found, "an MPS server runs on this machine")
        shutil.rmtree(proc / "4711")
        suspend_is(found, "")


MPS = {
    "of our user, idle": (os.geteuid(), (), True),
    "of root, on our GPU": (0, (0,), True),
    "of root, on the GPU of another container": (0, (7,), False),
    "of another user": (os.geteuid() + 1, (0,), False),
}


@pytest.mark.parametrize(("uid", "opened", "counts"), MPS.values(), ids=MPS)
def test_only_mps_servers_that_our_kernels_could_use_count(tmp_path, uid, opened, counts):
    mps(tmp_path, 4711, uid=uid, opened=opened)
    assert mps_is_running({0, 1}, tmp_path) is counts


def test_a_program_of_another_user_named_like_an_mps_server_has_no_effect(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("requires a second user")
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == 0 and str(folder).startswith(tempfile.gettempdir() + "/"):
            folder.chmod(0o755)
    server = tmp_path / "nvidia-cuda-mps-server"
    shutil.copy(Path("/bin/sleep").resolve(), server)
    other = subprocess.Popen([str(server), "100"], user=65534)
    try:
        with FakeGpuMachine(gpus=1) as machine:
            assert "suspend" in has(self_test(machine))
        assert Path(f"/proc/{other.pid}/comm").read_text().strip() == PROCESS_NAME
    finally:
        other.kill()
        other.wait()
