"""The self-test on fake GPU machines: every tier is tested, every missing one has a reason and a
remedy, and nothing is left behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from node_agent.devices.nvidia.checkpoint_client import CheckpointClient, Deadlines
from node_agent.devices.nvidia.selftest import REMEDIES, reason_and_remedy
from node_agent.devices.nvidia.selftest_cache import SelfTestCache
from tests.agent.test_cgroups import real_subtree
from tests.fake_driver.fake_gpu_machine import GIB, FakeGpuMachine, Faults

pytestmark = pytest.mark.slow
TIERS = ("observe", "cooperate", "limit", "suspend", "relocate")


def self_test(
    machine: FakeGpuMachine, state: Path | None = None, **environ: str
) -> dict[str, tuple[str, str]]:
    """tier -> (yes or no, reason and remedy), parsed from the output of `agent --self-test`.
    `state`: its state directory; default: a new one.
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
    """`agent --self-test`; `hung_s`: how long a call may take."""
    program = (
        "import sys, jupyter_gpushare.cli, jupyter_gpushare.cli.agent as a; "
        f"a.HUNG_S = {hung_s}; sys.exit(jupyter_gpushare.cli.main())"
    )
    argv = [sys.executable, "-c", program, "agent", "--self-test", "--state-dir", str(folder)]
    return subprocess.run(
        argv, capture_output=True, text=True, env=environ, timeout=100, check=False
    )


def test_a_driver_that_does_not_start_is_reported_with_a_remedy():
    """CUDA_ERROR_SYSTEM_NOT_READY: an H200 behind NVSwitch without a fabric manager."""
    with FakeGpuMachine(gpus=1) as machine:
        machine.fault("cuInit", Faults.FAIL, 802, times=-1)
        found = self_test(machine)
    assert has(found) == ["observe", "cooperate"]
    assert "CUDA_ERROR_SYSTEM_NOT_READY (802)" in found["suspend"][1]
    assert "nvidia-fabricmanager" in found["suspend"][1]


def test_a_machine_without_a_driver_has_no_tier_and_the_table_has_the_reason(tmp_path):
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
def test_a_hanging_call_is_reported_with_its_time_and_the_self_test_ends(call, tmp_path):
    with FakeGpuMachine(gpus=1) as machine:
        machine.fault(call, Faults.HANG, times=-1)
        done = printed(os.environ | machine.environment(), tmp_path, hung_s=6)
        assert done.returncode == 0, done.stderr
        named = {
            "nvmlInitWithFlags": "nvmlInit",
            "nvmlDeviceGetMemoryInfo_v2": "nvmlDeviceGetMemoryInfo",
        }.get(call, call)
        assert re.search(
            rf"observe +no +the GPU driver does not answer: its call {named} "
            r"has not returned since \d\d:\d\d:\d\d",
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
def test_tiers_of_a_machine_and_a_reason_with_remedy_for_missing_ones(options, expected):
    with FakeGpuMachine(**options) as machine:
        found = self_test(machine)
        assert has(found) == expected
        for tier in TIERS:
            assert (found[tier][0] == "yes") == (found[tier][1] == ""), found[tier]
            assert found[tier][0] == "yes" or "→" in found[tier][1]
        assert all(machine.used(gpu) == 0 for gpu in range(len(machine.uuids))), (
            "the test process has ended"
        )


def test_driver_615_with_a_delegated_cgroup_has_limits_and_leaves_nothing(tmp_path):
    subtree = real_subtree() or tmp_path
    try:
        with FakeGpuMachine(gpus=2, driver=615) as machine:
            found = self_test(machine, GPUSHARE_CGROUP=str(subtree))
            if subtree == tmp_path:  # a directory without cgroup.procs
                assert "delegate" in found["limit"][1]
                return
            assert has(found) == list(TIERS)
            assert list((subtree / "gpushare").glob("self-test*")) == []
    finally:
        if subtree != tmp_path:
            (subtree / "gpushare").rmdir()
            subtree.rmdir()


def test_a_driver_that_ignores_the_gpu_map_cannot_relocate():
    with FakeGpuMachine(gpus=2) as machine:
        machine.set("remap_is_noop", 1)
        found = self_test(machine)
        assert has(found) == ["observe", "cooperate", "suspend"]
        assert "did not make it" in found["relocate"][1]


def test_a_driver_that_may_not_access_other_processes():
    with FakeGpuMachine(gpus=1) as machine:
        machine.fault("cuCheckpointProcessLock", Faults.FAIL, 800, times=-1)
        found = self_test(machine)
        assert "suspend" not in has(found)
        assert "ptrace_scope" in found["suspend"][1]
        assert machine.used(0) == 0


def test_a_failing_checkpoint_is_reported_with_the_call():
    with FakeGpuMachine(gpus=1) as machine:
        machine.fault("cuCheckpointProcessCheckpoint", Faults.FAIL, 801, times=-1)
        assert "cuCheckpointProcessCheckpoint" in self_test(machine)["suspend"][1]


def test_mig_instances_are_shared_but_not_suspended():
    with FakeGpuMachine(gpus=1) as machine:
        machine.set("mig_mode", 1, gpu=0)
        machine.add_gpu("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40 * GIB, mig_parent=0)
        found = self_test(machine)
        assert has(found) == ["observe", "cooperate"]
        assert "MIG" in found["suspend"][1]


def test_mig_instances_beside_other_gpus_are_named_as_not_suspendable():
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


def test_a_driver_with_missing_or_wrong_states_cannot_suspend():
    """Every suspend depends on the reported state."""
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


def test_a_full_gpu_postpones_the_test_and_earlier_proofs_count(tmp_path):
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
            ], "proven since the machine was started"
            assert has(self_test(machine)) == ["observe", "cooperate"], "another agent has no proof"
        machine.fault("cuCheckpointProcessRestore", Faults.FAIL, 999, times=-1)
        assert "suspend" not in has(self_test(machine, tmp_path)), "with free memory it is tested"
        with filled(machine, 0), filled(machine, 1):
            assert "suspend" not in has(self_test(machine, tmp_path)), (
                "a failure invalidates the proof"
            )


def test_proofs_of_another_machine_or_in_a_damaged_file_are_ignored(tmp_path):
    file = tmp_path / "proven.json"
    SelfTestCache(file, "580.1", ["GPU-a"]).write(["suspend"])
    assert SelfTestCache(file, "580.1", ["GPU-a"]).read() == {"suspend"}
    assert not SelfTestCache(file, "580.2", ["GPU-a"]).read()
    assert not SelfTestCache(file, "580.1", ["GPU-b"]).read()
    for text in ("", "{", "[]", "{}", '{"machine": [], "tiers": 3}'):
        file.write_text(text)
        assert not SelfTestCache(file, "580.1", ["GPU-a"]).read()


def test_a_hanging_driver_costs_a_deadline_but_not_the_agent():
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
        client = CheckpointClient(Deadlines(copy=0.5))
        gpu = GpuFound(0, machine.uuids[0], "A100", 81920)
        try:
            found = run_self_test(
                SelfTest([gpu], client, NoLimits(), Cgroups(None, "none"), "", {0: 81920})
            )
        finally:
            client.close()
        assert "did not return" in found["suspend"]
        assert found["relocate"].startswith("it requires the tier suspend")
        assert found["cooperate"] == ""


def test_the_remedy_is_that_of_the_problem_or_of_the_tier():
    assert reason_and_remedy("limit", "too old; update it") == ("too old", "update it")
    assert reason_and_remedy("limit", "too old") == ("too old", REMEDIES["limit"])
