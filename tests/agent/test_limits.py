"""Memory limits with a fake driver 615: hard limits are enforced, soft limits never outlive their
cgroup, and a refusal becomes the reason of the missing tier.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from node_agent.devices.nvidia.memory_limits import MemoryLimits
from tests.agent import fake_driver_kernels
from tests.fake_driver.fake_gpu_machine import GIB, MIB, Faults

ALL = 0xFFFFFFFFFFFFFFFF
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, OPERATING_SYSTEM = 3, 4, 6, 17


def fake_nvml(driver: int = 615, gpus: int = 2):
    return fake_driver_kernels.fake_nvml(driver=driver, gpus=gpus)


@pytest.fixture
def leaf(tmp_path):
    """The fake driver accepts any existing directory."""
    folder = tmp_path / "gpushare" / "k1.abc"
    folder.mkdir(parents=True)
    return str(folder)


def limits_of(nvml, tmp_path: Path, cgroups=lambda: "") -> MemoryLimits:
    return MemoryLimits(nvml, tmp_path / "limits.json", len(nvml.gpus), cgroups)


def test_the_soft_limit_is_the_share_the_hard_limit_the_cap_and_other_gpus_get_zero(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        limits = limits_of(nvml, tmp_path)
        assert limits.problem() == ""
        assert limits.apply(leaf, {1: (40 * 1024, 60 * 1024)})
        assert machine.limits(leaf, 1) == (40 * GIB, 60 * GIB)
        assert machine.limits(leaf, 0) == (0, 0)


def test_a_hard_limit_applies_to_the_cgroup_and_can_be_changed(tmp_path, leaf):
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


def test_a_cap_below_the_share_lowers_the_soft_limit(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        assert limits_of(nvml, tmp_path).apply(leaf, {0: (40 * 1024, 30 * 1024)})
        assert machine.limits(leaf, 0) == (30 * GIB, 30 * GIB)


def test_unchanged_limits_are_not_set_again(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        limits = limits_of(nvml, tmp_path)
        limits.apply(leaf, {0: (1024, 2048)})
        before = machine.calls()
        limits.apply(leaf, {0: (1024, 2048)})
        assert machine.calls() == before


def test_limits_are_reset_before_the_cgroup_is_removed(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        limits = limits_of(nvml, tmp_path)
        limits.apply(leaf, {0: (1024, 2048)})
        limits.clear(leaf)
        assert machine.limits(leaf, 0) == machine.limits(leaf, 1) == (0, ALL)
        assert limits.orphaned(set()) == []


def test_limits_of_an_earlier_agent_are_recorded_and_reset(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        limits_of(nvml, tmp_path).apply(leaf, {0: (1024, 2048)})
        second = limits_of(nvml, tmp_path)
        assert second.orphaned({leaf}) == [], "its kernel is alive"
        assert second.orphaned(set()) == [leaf]
        second.clear(leaf)
        assert machine.limits(leaf, 0) == (0, ALL)
        assert limits_of(nvml, tmp_path).orphaned(set()) == []


def test_a_limit_that_could_not_be_reset_stays_recorded(tmp_path, leaf):
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
    "an undocumented error": (2, "on an empty cgroup (Invalid Argument)"),
    "a path that the driver cannot open": (OPERATING_SYSTEM, "must be valid on the host"),
}


@pytest.mark.parametrize(("code", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_disables_the_tier_with_a_reason(tmp_path, leaf, code, words):
    with fake_nvml() as (machine, nvml):
        limits = limits_of(nvml, tmp_path)
        machine.fault("nvmlDeviceSetMemoryLimits_v1", Faults.FAIL, code, times=-1)
        limits.test(leaf)
        assert words in limits.problem()
        machine.clear()
        assert not limits.apply(leaf, {0: (1, 2)}), "it stays disabled"


def test_a_removed_cgroup_affects_only_its_kernel(tmp_path, leaf):
    with fake_nvml() as (_, nvml):
        limits = limits_of(nvml, tmp_path)
        Path(leaf).rmdir()
        assert not limits.apply(leaf, {0: (1, 2)})
        assert limits.problem() == ""


def test_the_limit_of_a_removed_cgroup_is_forgotten(tmp_path, leaf):
    """nvml.h: NVML_ERROR_OPERATING_SYSTEM for a cgroup that cannot be opened; otherwise it would be
    retried at every start.
    """
    with fake_nvml() as (_, nvml):
        limits = limits_of(nvml, tmp_path)
        limits.apply(leaf, {0: (1024, 2048)})
        Path(leaf).rmdir()
        limits.clear(leaf)
        assert limits_of(nvml, tmp_path).orphaned(set()) == []


def test_the_test_leaves_no_limit(tmp_path, leaf):
    with fake_nvml() as (machine, nvml):
        limits = limits_of(nvml, tmp_path)
        limits.test(leaf)
        assert limits.problem() == ""
        assert machine.limits(leaf, 0) == (0, ALL)


def test_an_older_driver_has_no_limits_and_names_the_required_one(tmp_path, leaf):
    with fake_nvml(driver=580) as (_, nvml):
        limits = limits_of(nvml, tmp_path)
        assert "615" in limits.problem()
        assert not limits.apply(leaf, {0: (1, 2)})


def test_without_cgroups_there_are_no_limits(tmp_path, leaf):
    with fake_nvml() as (_, nvml):
        assert limits_of(nvml, tmp_path, lambda: "no delegation").problem() == "no delegation"


def test_an_unreadable_record_is_ignored(tmp_path, leaf):
    (tmp_path / "limits.json").write_text("{nonsense")
    with fake_nvml() as (_, nvml):
        assert limits_of(nvml, tmp_path).orphaned(set()) == []
