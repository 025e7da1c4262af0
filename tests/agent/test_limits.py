"""Driver limits on a played driver 615: a hard limit is one, a soft one never outlives its cgroup,
and a refusal is a reason.
"""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path

import pynvml
import pytest

from node_agent.devices.nvidia.memory_limits import MemoryLimits
from node_agent.devices.nvidia.nvml import Nvml
from tests.fake_driver.fake_gpu_machine import GIB, MIB, FakeGpuMachine, Faults

ALL = 0xFFFFFFFFFFFFFFFF
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, OPERATING_SYSTEM = 3, 4, 6, 17


@contextlib.contextmanager
def fake_nvml(driver: int = 615, gpus: int = 2):
    """A world, and NVML of it in this process: the loader has read its path, so the library is
    given by hand, as nvidia-ml-py allows.
    """
    with FakeGpuMachine(gpus=gpus, driver=driver) as machine, machine.active():
        before = pynvml.nvmlLib, dict(pynvml._nvmlGetFunctionPointer_cache)
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml.nvmlLib = ctypes.CDLL(str(machine.libraries / "libnvidia-ml.so.1"))
        nvml = Nvml()
        try:
            yield machine, nvml
        finally:
            nvml.close()
            pynvml.nvmlLib = before[0]
            pynvml._nvmlGetFunctionPointer_cache.clear()
            pynvml._nvmlGetFunctionPointer_cache.update(before[1])


@pytest.fixture
def leaf(tmp_path):
    """A folder is enough for the played driver: it only has to be there."""
    folder = tmp_path / "gpushare" / "k1.abc"
    folder.mkdir(parents=True)
    return str(folder)


def limits_of(nvml, tmp_path: Path, cgroups=lambda: "") -> MemoryLimits:
    return MemoryLimits(nvml, tmp_path / "limits.json", len(nvml.gpus), cgroups)


def test_soft_is_the_share_hard_is_the_cap_and_other_gpus_are_shut(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        limits = limits_of(nvml, tmp_path)
        assert limits.problem() == ""
        assert limits.apply(leaf, {1: (40 * 1024, 60 * 1024)})
        assert machine.limits(leaf, 1) == (40 * GIB, 60 * GIB)
        assert machine.limits(leaf, 0) == (0, 0)


def test_a_hard_limit_stops_a_process_of_that_cgroup_and_follows_when_it_is_lowered(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        limits = limits_of(nvml, tmp_path)
        worker = machine.worker(GPUSHARE_FAKE_CGROUP=leaf)
        limits.apply(leaf, {0: (10 * 1024, 20 * 1024)})
        assert worker.do("alloc", 0, 15 * GIB).isdecimal()
        assert worker.do("alloc", 0, 6 * GIB) == "error 2"
        limits.apply(leaf, {0: (10 * 1024, 30 * 1024)})
        assert worker.do("alloc", 0, 6 * GIB).isdecimal()
        limits.apply(leaf, {0: (10 * 1024, 10 * 1024)})
        assert worker.do("alloc", 0, 1 * MIB) == "error 2"


def test_a_cap_below_the_share_lowers_the_soft_limit_with_it(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        assert limits_of(nvml, tmp_path).apply(leaf, {0: (40 * 1024, 30 * 1024)})
        assert machine.limits(leaf, 0) == (30 * GIB, 30 * GIB)


def test_what_stands_already_is_not_said_again(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        limits = limits_of(nvml, tmp_path)
        limits.apply(leaf, {0: (1024, 2048)})
        before = machine.calls()
        limits.apply(leaf, {0: (1024, 2048)})
        assert machine.calls() == before


def test_cleared_before_the_cgroup_goes(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        limits = limits_of(nvml, tmp_path)
        limits.apply(leaf, {0: (1024, 2048)})
        limits.clear(leaf)
        assert machine.limits(leaf, 0) == machine.limits(leaf, 1) == (0, ALL)
        assert limits.orphaned(set()) == []


def test_an_agent_that_died_leaves_a_record_and_the_next_one_zeroes_it(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        limits_of(nvml, tmp_path).apply(leaf, {0: (1024, 2048)})
        second = limits_of(nvml, tmp_path)
        assert second.orphaned({leaf}) == [], "its kernel lives"
        assert second.orphaned(set()) == [leaf]
        second.clear(leaf)
        assert machine.limits(leaf, 0) == (0, ALL)
        assert limits_of(nvml, tmp_path).orphaned(set()) == []


def test_a_limit_that_could_not_be_zeroed_stays_noted(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        limits = limits_of(nvml, tmp_path)
        limits.apply(leaf, {0: (1024, 2048)})
        machine.fault("nvmlDeviceSetMemoryLimits_v1", Faults.FAIL, 999)
        limits.clear(leaf)
        assert limits_of(nvml, tmp_path).orphaned(set()) == [leaf]
        limits.clear(leaf)
        assert limits_of(nvml, tmp_path).orphaned(set()) == []


REFUSALS = {
    "not supported": (NOT_SUPPORTED, "refuses memory limits"),
    "not permitted": (NO_PERMISSION, "run it as root"),
    "no accounting in this cgroup": (NOT_FOUND, "dmem"),
    "an answer that no documentation names": (2, "on an empty cgroup (Invalid Argument)"),
    "a path that the driver cannot open": (OPERATING_SYSTEM, "must be valid on the host"),
}


@pytest.mark.parametrize(("code", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_ends_the_tier_with_its_reason(tmp_path, leaf, code, words):
    with fake_nvml() as (machine, nvml):
        limits = limits_of(nvml, tmp_path)
        machine.fault("nvmlDeviceSetMemoryLimits_v1", Faults.FAIL, code, times=-1)
        limits.test(leaf)
        assert words in limits.problem()
        machine.clear()
        assert not limits.apply(leaf, {0: (1, 2)}), "not half of the time"


def test_a_cgroup_that_went_away_is_that_kernels_trouble_only(tmp_path, leaf):
    with fake_nvml() as (_, nvml):
        limits = limits_of(nvml, tmp_path)
        Path(leaf).rmdir()
        assert not limits.apply(leaf, {0: (1, 2)})
        assert limits.problem() == ""


def test_a_limit_whose_cgroup_went_away_first_is_forgotten(tmp_path, leaf):
    """nvml.h: a cgroup that cannot be opened is NVML_ERROR_OPERATING_SYSTEM; noted for ever, it
    would be tried at every start.
    """
    with fake_nvml() as (_, nvml):
        limits = limits_of(nvml, tmp_path)
        limits.apply(leaf, {0: (1024, 2048)})
        Path(leaf).rmdir()
        limits.clear(leaf)
        assert limits_of(nvml, tmp_path).orphaned(set()) == []


def test_trying_out_leaves_nothing_behind(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        limits = limits_of(nvml, tmp_path)
        limits.test(leaf)
        assert limits.problem() == ""
        assert machine.limits(leaf, 0) == (0, ALL)


def test_an_older_driver_has_no_limits_and_says_which_has(tmp_path, leaf):
    with fake_nvml(driver=580) as (_, nvml):
        limits = limits_of(nvml, tmp_path)
        assert "615" in limits.problem()
        assert not limits.apply(leaf, {0: (1, 2)})


def test_without_cgroups_there_is_nothing_to_limit(tmp_path, leaf):
    with fake_nvml() as (_, nvml):
        assert limits_of(nvml, tmp_path, lambda: "no delegation").problem() == "no delegation"


def test_a_record_that_cannot_be_read_is_no_record(tmp_path, leaf):
    (tmp_path / "limits.json").write_text("{nonsense")
    with fake_nvml() as (_, nvml):
        assert limits_of(nvml, tmp_path).orphaned(set()) == []
