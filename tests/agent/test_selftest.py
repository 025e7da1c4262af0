"""The self-test on played machines: every tier by trying, every missing one with its reason and
what to do, nothing left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from jupyter_gpushare.core.model.errors import Unavailable
from node_agent.devices.base.call_tracker import CallTracker, hang_problem
from node_agent.devices.base.hang_detection import run_watched
from node_agent.devices.nvidia.checkpoint_client import CheckpointClient, Deadlines
from node_agent.devices.nvidia.mps import mps_is_running
from node_agent.devices.nvidia.selftest import REMEDIES, reason_and_remedy
from node_agent.devices.nvidia.selftest_cache import SelfTestCache
from tests.agent.test_cgroups import real_subtree
from tests.fake_driver.fake_gpu_machine import GIB, FakeGpuMachine, Faults

pytestmark = pytest.mark.slow
TIERS = ("observe", "cooperate", "limit", "suspend", "relocate")


def self_test(
    machine: FakeGpuMachine, state: Path | None = None, **environ: str
) -> dict[str, tuple[str, str]]:
    """tier -> (yes or no, why not and what to do), read off what `agent --self-test` prints.
    `state`: its state directory, else a new one.
    """
    folder = state or tempfile.mkdtemp()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "jupyter_gpushare.cli",
            "agent",
            "--self-test",
            "--state-dir",
            folder,
        ],
        capture_output=True,
        text=True,
        env=os.environ | machine.environment() | environ,
        timeout=100,
        check=False,
    )
    if state is None:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[str, str]] = {}
    tier = ""
    for line in done.stdout.splitlines():
        if match := re.match(r"(\w+) +(yes|no)\b *(.*)", line):
            tier = match[1]
            found[tier] = match[2], match[3]
        elif "→" in line:
            found[tier] = found[tier][0], f"{found[tier][1]} {line.strip()}"
    assert tuple(found) == TIERS, done.stdout
    return found


def has(found) -> list[str]:
    return [tier for tier in TIERS if found[tier][0] == "yes"]


def printed(
    environ: dict[str, str], folder: Path, *, hung_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """`agent --self-test`; `hung_s`: how long one call may take."""
    program = f"import sys, jupyter_gpushare.cli, jupyter_gpushare.cli.agent as a; a.HUNG_S = {hung_s}; sys.exit(jupyter_gpushare.cli.main())"
    argv = [sys.executable, "-c", program, "agent", "--self-test", "--state-dir", str(folder)]
    return subprocess.run(
        argv, capture_output=True, text=True, env=environ, timeout=100, check=False
    )


def test_a_driver_that_does_not_start_says_what_is_missing():
    """CUDA_ERROR_SYSTEM_NOT_READY: an H200 behind NVSwitch whose fabric manager does not run."""
    with FakeGpuMachine(gpus=1) as machine:
        machine.fault("cuInit", Faults.FAIL, 802, times=-1)
        found = self_test(machine)
    assert has(found) == ["observe", "cooperate"]
    assert "CUDA_ERROR_SYSTEM_NOT_READY (802)" in found["suspend"][1]
    assert "nvidia-fabricmanager" in found["suspend"][1]


def test_a_machine_without_a_driver_has_no_tier_and_the_table_says_why(tmp_path):
    done = printed(
        {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}, tmp_path
    )
    if "NVIDIA driver was found" not in done.stdout:
        pytest.skip("this machine has a driver")
    assert done.returncode == 0, done.stderr
    lines = {
        line.split()[0]: line
        for line in done.stdout.splitlines()
        if line.split()[:1] and line.split()[0] in TIERS
    }
    assert [line.split()[1] for line in lines.values()] == ["no"] * len(TIERS)
    assert "libnvidia-ml.so.1" in lines["observe"]


@pytest.mark.parametrize(
    "call",
    ["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3"],
)
def test_a_call_that_hangs_is_named_with_its_time_and_the_self_test_ends(call, tmp_path):
    with FakeGpuMachine(gpus=1) as machine:
        machine.fault(call, Faults.HANG, times=-1)
        done = printed(os.environ | machine.environment(), tmp_path, hung_s=6)
        assert done.returncode == 0, done.stderr
        named = {
            "nvmlInitWithFlags": "nvmlInit",
            "nvmlDeviceGetMemoryInfo_v2": "nvmlDeviceGetMemoryInfo",
        }.get(call, call)
        assert re.search(
            rf"observe +no +the GPU driver does not answer: its call {named} has not returned since \d\d:\d\d:\d\d",
            done.stdout,
        ), done.stdout
        assert "waiting: " in done.stderr
        assert "restart the machine" in done.stdout


MACHINES = {
    "two GPUs, driver 580": (
        {"gpus": 2, "driver": 580},
        ["observe", "cooperate", "suspend", "relocate"],
    ),
    "one GPU, driver 580": ({"gpus": 1, "driver": 580}, ["observe", "cooperate", "suspend"]),
    "two GPUs, driver 570 cannot move": (
        {"gpus": 2, "driver": 570},
        ["observe", "cooperate", "suspend"],
    ),
    "driver 550": ({"gpus": 2, "driver": 550}, ["observe", "cooperate"]),
}


@pytest.mark.parametrize(("options", "expected"), MACHINES.values(), ids=MACHINES)
def test_what_a_machine_has_and_for_the_rest_a_reason_and_what_to_do(options, expected):
    with FakeGpuMachine(**options) as machine:
        found = self_test(machine)
        assert has(found) == expected
        for tier in TIERS:
            assert (found[tier][0] == "yes") == (found[tier][1] == ""), found[tier]
            assert found[tier][0] == "yes" or "→" in found[tier][1]
        assert all(machine.used(gpu) == 0 for gpu in range(len(machine.uuids))), (
            "the test process has ended"
        )


def test_driver_615_with_a_cgroup_of_its_own_limits_and_leaves_nothing(tmp_path):
    subtree = real_subtree() or tmp_path
    try:
        with FakeGpuMachine(gpus=2, driver=615) as machine:
            found = self_test(machine, GPUSHARE_CGROUP=str(subtree))
            if (
                subtree == tmp_path
            ):  # a folder has no cgroup.procs: nobody could be moved in, and it says so
                assert "delegate" in found["limit"][1]
                return
            assert has(found) == list(TIERS)
            assert list((subtree / "gpushare").glob("self-test*")) == []
    finally:
        if subtree != tmp_path:
            (subtree / "gpushare").rmdir()
            subtree.rmdir()


def test_a_move_that_the_driver_only_pretends_is_no_tier():
    with FakeGpuMachine(gpus=2) as machine:
        machine.set("remap_is_noop", 1)
        found = self_test(machine)
        assert has(found) == ["observe", "cooperate", "suspend"]
        assert "did not make it" in found["relocate"][1]


def test_a_driver_that_may_not_touch_other_processes():
    with FakeGpuMachine(gpus=1) as machine:
        machine.fault("cuCheckpointProcessLock", Faults.FAIL, 800, times=-1)
        found = self_test(machine)
        assert "suspend" not in has(found)
        assert "ptrace_scope" in found["suspend"][1]
        assert machine.used(0) == 0


def test_a_checkpoint_that_fails_names_the_call():
    with FakeGpuMachine(gpus=1) as machine:
        machine.fault("cuCheckpointProcessCheckpoint", Faults.FAIL, 801, times=-1)
        assert "cuCheckpointProcessCheckpoint" in self_test(machine)["suspend"][1]


def test_a_gpu_that_is_cut_into_instances_shares_and_does_not_suspend():
    with FakeGpuMachine(gpus=1) as machine:
        machine.set("mig_mode", 1, gpu=0)
        machine.add_gpu("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40 * GIB, mig_parent=0)
        found = self_test(machine)
        assert has(found) == ["observe", "cooperate"]
        assert "MIG" in found["suspend"][1]


def test_beside_whole_gpus_the_instances_are_named_as_what_cannot_be_suspended():
    with FakeGpuMachine(gpus=2) as machine:
        machine.set("mig_mode", 1, gpu=0)
        for _ in range(2):
            machine.add_gpu("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40 * GIB, mig_parent=0)
        found = self_test(machine)
        assert has(found) == ["observe", "cooperate", "suspend"]
        assert "MIG" in found["relocate"][1]
        assert re.search(
            r"suspend on GPU 0, 1 +no +MIG instances",
            printed(os.environ | machine.environment(), machine.folder / "state").stdout,
        )


def test_a_driver_that_does_not_tell_states_or_tells_others_suspends_nobody():
    """Every suspend is judged by the state that the driver tells."""
    with FakeGpuMachine(gpus=1) as machine:
        machine.fault("cuCheckpointProcessGetState", Faults.FAIL, 999, times=-1)
        assert "cuCheckpointProcessGetState" in self_test(machine)["suspend"][1]
        machine.clear()
        machine.fault("cuCheckpointProcessUnlock", Faults.LIE, times=-1)
        assert (
            "left a test process locked that should be running" in self_test(machine)["suspend"][1]
        )
        assert machine.used(0) == 0


@contextlib.contextmanager
def filled(machine: FakeGpuMachine, gpu: int, size: int = 8 * GIB):
    sleeper = subprocess.Popen(["sleep", "100"])
    try:
        machine.occupy(sleeper.pid, gpu, size)
        yield
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_full_gpu_is_a_reason_and_what_was_proven_before_counts(tmp_path):
    with FakeGpuMachine(gpus=2, memory=8 * GIB) as machine:
        with filled(machine, 0), filled(machine, 1, 7 * GIB + GIB // 2):
            found = self_test(machine, tmp_path)
            assert has(found) == ["observe", "cooperate"]
            assert "free memory for a test process" in found["suspend"][1]
            assert "driver 5" not in found["suspend"][1] + found["relocate"][1]
        assert has(self_test(machine, tmp_path)) == ["observe", "cooperate", "suspend", "relocate"]
        with filled(machine, 0), filled(machine, 1):
            assert has(self_test(machine, tmp_path)) == [
                "observe",
                "cooperate",
                "suspend",
                "relocate",
            ], "seen since the machine was started"
            assert has(self_test(machine)) == ["observe", "cooperate"], (
                "another agent has seen nothing"
            )
        machine.fault("cuCheckpointProcessRestore", Faults.FAIL, 999, times=-1)
        assert "suspend" not in has(self_test(machine, tmp_path)), "where there is room it is tried"
        with filled(machine, 0), filled(machine, 1):
            assert "suspend" not in has(self_test(machine, tmp_path)), (
                "and what failed is not proven any more"
            )


def test_what_another_machine_or_a_damaged_file_says_proves_nothing(tmp_path):
    file = tmp_path / "proven.json"
    SelfTestCache(file, "580.1", ["GPU-a"]).write(["suspend"])
    assert SelfTestCache(file, "580.1", ["GPU-a"]).read() == {"suspend"}
    assert not SelfTestCache(file, "580.2", ["GPU-a"]).read()
    assert not SelfTestCache(file, "580.1", ["GPU-b"]).read()
    for text in ("", "{", "[]", "{}", '{"machine": [], "tiers": 3}'):
        file.write_text(text)
        assert not SelfTestCache(file, "580.1", ["GPU-a"]).read()


def test_an_mps_server_is_seen(tmp_path):
    assert not mps_is_running()
    server = tmp_path / "nvidia-cuda-mps-server"
    shutil.copy(Path("/bin/sleep").resolve(), server)
    running = subprocess.Popen([str(server), "100"])
    try:
        deadline = time.monotonic() + 20
        while not mps_is_running():  # it has its name a moment after it was started
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with FakeGpuMachine(gpus=1) as machine:
            found = self_test(machine)
            assert "suspend" not in has(found)
            assert "MPS" in found["suspend"][1]
    finally:
        running.kill()
        running.wait()


def mps(proc: Path, pid: int, *, uid: int, opened: tuple[int, ...] = ()) -> None:
    """A process that is called like an MPS server."""
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text("nvidia-cuda-mps\n")
    (folder / "status").write_text(f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    for n, minor in enumerate(opened):
        (folder / "fd" / str(n)).symlink_to(f"/dev/nvidia{minor}")


MPS = {
    "our own user's, idle": (os.geteuid(), (), True),
    "root's, on our GPU": (0, (0,), True),
    "root's, on another container's GPU": (0, (7,), False),
    "a stranger's, or who is only called so": (os.geteuid() + 1, (0,), False),
}


@pytest.mark.parametrize(("uid", "opened", "counts"), MPS.values(), ids=MPS)
def test_only_an_mps_server_that_can_be_ours_counts(tmp_path, uid, opened, counts):
    mps(tmp_path, 4711, uid=uid, opened=opened)
    assert mps_is_running({0, 1}, tmp_path) is counts


def test_a_stranger_who_calls_a_program_like_an_mps_server_takes_no_tier_away(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs another user to play the stranger")
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == 0 and str(folder).startswith(tempfile.gettempdir() + "/"):
            folder.chmod(0o755)
    server = tmp_path / "nvidia-cuda-mps-server"
    shutil.copy(Path("/bin/sleep").resolve(), server)
    stranger = subprocess.Popen([str(server), "100"], user=65534)
    try:
        with FakeGpuMachine(gpus=1) as machine:
            assert "suspend" in has(self_test(machine))
    finally:
        stranger.kill()
        stranger.wait()


def test_a_driver_that_hangs_costs_a_deadline_not_the_agent():
    from node_agent.devices.nvidia.nvml_types import GpuFound
    from node_agent.devices.nvidia.selftest import SelfTest, run_self_test
    from node_agent.system.cgroups import Cgroups

    class NoLimits:
        def problem(self) -> str:
            return "none here"

        def test(self, cgroup: str) -> None: ...

        def clear(self, cgroup: str) -> None: ...

    with FakeGpuMachine(gpus=1) as machine, pytest.MonkeyPatch.context() as patch:
        for name, value in machine.environment().items():
            patch.setenv(name, value)
        machine.fault("cuCheckpointProcessCheckpoint", Faults.HANG, times=-1)
        checkpointer = CheckpointClient(Deadlines(copy=0.5))
        gpu = GpuFound(0, machine.uuids[0], "A100", 81920)
        try:
            found = run_self_test(
                SelfTest([gpu], checkpointer, NoLimits(), Cgroups(None, "none"), "", {0: 81920})
            )
        finally:
            checkpointer.close()
        assert "did not return" in found["suspend"]
        assert found["relocate"].startswith("it requires the tier suspend")
        assert found["cooperate"] == ""


def test_a_reason_says_what_to_do_or_its_tier_does():
    assert reason_and_remedy("limit", "too old; update it") == ("too old", "update it")
    assert reason_and_remedy("limit", "too old") == ("too old", REMEDIES["limit"])


def test_work_that_hung_and_failed_is_tried_again_and_other_failures_are_the_callers():
    calls, told, gate = CallTracker(), [], threading.Event()
    tries = []

    def search() -> str:
        tries.append(1)
        if len(tries) == 1:
            calls.track("nvmlInit", gate.wait)
            raise Unavailable("it was not itself")
        return "devices"

    def tell(problem: str) -> None:
        told.append(problem)
        gate.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "node_agent.devices.base.hang_detection.hang_problem",
            lambda: hang_problem(calls, slow_s=0.05),
        )
        assert asyncio.run(run_watched(search, tell)) == "devices"
        assert "nvmlInit" in told[0]
        assert told[-1] == ""
        with pytest.raises(Unavailable):
            asyncio.run(run_watched(lambda: (_ for _ in ()).throw(Unavailable("no driver")), tell))
