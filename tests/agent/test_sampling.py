"""Readings of the GPUs: memory per kernel, lagging memory, errors, and what cannot be read."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pynvml
import pytest

from jupyter_gpushare.kernel.simnode import start_of
from node_agent.devices.base.model import KernelProcesses
from node_agent.devices.base.process_attribution import ProcessAttribution
from node_agent.devices.nvidia.sampler import SILENT_MS, GpuSampler, monotonic_ms
from node_agent.devices.nvidia.unattributed_memory import PERSISTENT_MS
from tests.agent.fake_driver_kernels import fake_nvml
from tests.fake_driver.fake_gpu_machine import GIB, MIB, Faults

CONTEXT = 256


@contextmanager
def watched(**options):
    """A fake GPU machine, its sampler, and a function that starts kernels."""
    with fake_nvml(**{"gpus": 1, **options}) as (machine, nvml):
        attribution = ProcessAttribution()
        sampler = GpuSampler(nvml, attribution)
        kernels = {}

        def kernel(name, gib, ordinal=0):
            worker = machine.worker()
            worker.do("alloc", ordinal, gib * GIB)
            kernels[name] = KernelProcesses((worker.pid, start_of(worker.pid)), "")
            attribution.track(kernels)
            return worker

        sampler.kernel = kernel
        try:
            yield machine, sampler
        finally:
            sampler.stop()


@pytest.mark.parametrize("driver", [535, 550, 570, 580, 615])
def test_kernels_and_other_processes_on_every_driver(driver):
    with watched(driver=driver, gpus=2) as (machine, sampler):
        sampler.kernel("a", 3)
        sampler.kernel("b", 2, 1)
        other = machine.worker()
        other.do("alloc", 0, GIB)
        account = sampler.sample().account
        assert account.held == {"a": {0: 3072 + CONTEXT}, "b": {1: 2048 + CONTEXT}}
        assert account.foreign_mib == {0: 1024 + CONTEXT, 1: 0}
        assert account.foreign_processes == {0: 1, 1: 0}
        assert account.lagging == {0: 0, 1: 0}
        assert sampler.health_problem(0, monotonic_ms()) == ""
        assert other.is_alive()


def test_memory_of_ended_processes_lags_until_the_driver_has_reclaimed_it():
    with watched() as (machine, sampler):
        a = sampler.kernel("a", 3)
        assert sampler.sample().account.held == {"a": {0: 3072 + CONTEXT}}
        machine.set("lag_ms", 60_000)
        a.kill()
        account = sampler.sample().account
        assert (account.held, account.lagging, account.foreign_mib) == (
            {},
            {0: 3072 + CONTEXT},
            {0: 0},
        )


def test_a_checkpointed_process_leaves_the_list():
    with watched() as (machine, sampler):
        a = sampler.kernel("a", 3)
        machine.set_state(a.pid, "checkpointed")
        account = sampler.sample().account
        assert (account.held, account.lagging, account.foreign_mib) == ({}, {0: 0}, {0: 0})


def test_unattributed_memory_becomes_foreign_when_it_persists(monkeypatch):
    with watched() as (machine, sampler):
        now = monotonic_ms()
        monkeypatch.setattr("node_agent.devices.nvidia.sampler.monotonic_ms", lambda: now)
        sampler.sample()
        machine.set("reserved", 0, gpu=0)
        machine.fault(
            "nvmlDeviceGetMemoryInfo_v2",
            Faults.FAIL,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            times=-1,
        )  # then `used` includes memory of the driver
        machine.set("reserved", 2 * GIB, gpu=0)
        account = sampler.sample().account
        assert (account.lagging, account.foreign_mib) == ({0: 2048}, {0: 0})
        now += PERSISTENT_MS + 1
        sampler.sample()
        now += 1
        account = sampler.sample().account
        assert (account.lagging, account.foreign_mib) == ({0: 0}, {0: 2048})


def test_memory_from_before_the_agent_is_foreign_at_once():
    with watched() as (machine, sampler):
        machine.fault(
            "nvmlDeviceGetMemoryInfo_v2",
            Faults.FAIL,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            times=-1,
        )
        machine.set("reserved", 2 * GIB, gpu=0)
        assert sampler.sample().account.foreign_mib == {0: 2048}


def test_unknown_sizes_are_estimated_and_logged_once(caplog):
    with watched() as (machine, sampler):
        sampler.kernel("a", 3)
        machine.set("hidden", 1, gpu=0)
        account = sampler.sample().account
        assert (account.held, account.estimated) == ({"a": {0: 3072 + CONTEXT}}, {0})
        sampler.sample()
        assert caplog.text.count("does not report the memory of each process") == 1


def test_busy_time_of_a_kernel_is_added_up(monkeypatch):
    with watched() as (machine, sampler):
        a = sampler.kernel("a", 1)
        now = monotonic_ms()
        monkeypatch.setattr("node_agent.devices.nvidia.sampler.monotonic_ms", lambda: now)
        sampler.sample()
        machine.process(a.pid, sm_util=50, busy_ms=600_000)
        now += 1000
        assert sampler.sample().busy_ms == {"a": 500}
        now += 1000
        sample = sampler.sample()
        assert (sample.busy_ms, sample.utilization) == ({"a": 1000}, {0: 0.5})


def test_sensors_are_read_where_there_are_some(monkeypatch):
    with watched(gpus=2) as (machine, sampler):
        machine.set("celsius", 61, gpu=0)
        machine.set("milliwatts", 287_600, gpu=0)
        now = monotonic_ms()
        monkeypatch.setattr("node_agent.devices.nvidia.sampler.monotonic_ms", lambda: now)
        sample = sampler.sample()
        assert (sample.temperature, sample.power) == ({0: 61}, {0: 288})
        machine.set("celsius", 62, gpu=0)
        version = sampler.version
        now += 1000
        assert sampler.sample().temperature == {0: 62}
        assert sampler.version == version, "a sensor wakes nobody"


HARDWARE_ERRORS = {
    48: "double bit",
    63: "next reset",
    64: "could not be replaced",
    74: "NVLink",
    79: "fallen off the bus",
    94: "contained",
    95: "not contained",
}


@pytest.mark.parametrize(("xid", "words"), HARDWARE_ERRORS.items())
def test_hardware_errors_make_the_gpu_unhealthy_until_the_agent_restarts(xid, words):
    with watched(gpus=2) as (machine, sampler):
        sampler.sample()
        machine.event(1, 8, xid)
        sampler.sample()
        sampler.sample()
        assert sampler.health_problem(0, monotonic_ms()) == ""
        assert words in sampler.health_problem(1, monotonic_ms())
        assert f"XID {xid}" in sampler.health_problem(1, monotonic_ms())
        assert sampler.take_faults() == []


@pytest.mark.parametrize("xid", [13, 31, 43, 45])
def test_errors_of_a_program_are_reported_to_its_kernel_and_the_gpu_is_healthy(xid):
    with watched(gpus=2) as (machine, sampler):
        sampler.kernel("a", 1)
        sampler.sample()
        machine.event(0, 8, xid)
        sampler.sample()
        [fault] = sampler.take_faults()
        assert (fault.gpu, fault.kernel_id) == (0, "a")
        assert f"XID {xid}" in fault.message
        assert sampler.take_faults() == []
        assert sampler.health_problem(0, monotonic_ms()) == ""


def test_a_fault_names_a_kernel_only_if_it_is_certain():
    with watched() as (machine, sampler):
        sampler.kernel("a", 1)
        b = sampler.kernel("b", 1)
        sampler.sample()
        machine.event(0, 8, 31)
        sampler.sample()
        assert [fault.kernel_id for fault in sampler.take_faults()] == [""]
        machine.process(b.pid, sm_util=100, busy_ms=600_000)
        sampler._utilization_read -= 1000  # a second later
        machine.event(0, 8, 31)
        sampler.sample()
        assert [fault.kernel_id for fault in sampler.take_faults()] == ["b"]


def test_an_unknown_error_is_only_logged():
    with watched() as (machine, sampler):
        machine.event(0, 8, 155)
        sampler.sample()
        assert (sampler.health_problem(0, monotonic_ms()), sampler.take_faults()) == ("", [])


def test_a_lost_gpu_does_not_affect_others_and_recovers_when_it_answers():
    with watched(gpus=2) as (machine, sampler):
        sampler.kernel("a", 1, 1)
        machine.set("healthy", 0, gpu=0)
        sample = sampler.sample()
        assert (
            sampler.health_problem(0, monotonic_ms()) == "It does not answer (NVML: GPU is lost)."
        )
        assert (set(sample.memory), sample.account.held) == ({1}, {"a": {1: 1024 + CONTEXT}})
        machine.set("healthy", 1, gpu=0)
        sampler.sample()
        assert sampler.health_problem(0, monotonic_ms()) == ""


def test_a_requested_reset_is_reported_until_it_is_no_longer_requested(monkeypatch):
    with watched() as (machine, sampler):
        now = monotonic_ms()
        monkeypatch.setattr("node_agent.devices.nvidia.sampler.monotonic_ms", lambda: now)
        machine.set("recovery", 1, gpu=0)
        sampler.sample()
        assert "reset it" in sampler.health_problem(0, now)
        machine.set("recovery", 0, gpu=0)
        now += 20_000
        sampler.sample()
        assert sampler.health_problem(0, now) == ""


def test_memory_rows_that_cannot_be_replaced_are_reported():
    with watched() as (machine, sampler):
        machine.set("remap_failure", 1, gpu=0)
        sampler.sample()
        assert "could not be replaced" in sampler.health_problem(0, monotonic_ms())


CALLS = [
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlEventSetWait_v2",
]
CODES = [
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_UNKNOWN,
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("code", CODES)
def test_a_failing_call_disables_only_its_capability(call, code):
    with watched() as (machine, sampler):
        sampler.kernel("a", 1)
        machine.fault(call, Faults.FAIL, code, times=-1)
        for _ in range(3):
            assert sampler.sample().account.held == {"a": {0: 1024 + CONTEXT}}
        assert sampler.health_problem(0, monotonic_ms()) == ""


def test_an_unsupported_call_is_made_once():
    with watched() as (machine, sampler):
        fault = machine.fault(
            "nvmlDeviceGetRemappedRows", Faults.FAIL, pynvml.NVML_ERROR_NOT_SUPPORTED, times=-1
        )
        for _ in range(3):
            sampler._health._checked -= 60_000
            sampler.sample()
        assert machine.hits(fault) == 1


def test_a_process_list_that_fails_once_keeps_its_last_value():
    with watched() as (machine, sampler):
        sampler.kernel("a", 1)
        sampler.sample()
        machine.fault(
            "nvmlDeviceGetComputeRunningProcesses_v3", Faults.FAIL, pynvml.NVML_ERROR_UNKNOWN
        )
        assert sampler.sample().account.held == {"a": {0: 1024 + CONTEXT}}


def test_a_driver_that_does_not_list_processes_cannot_be_observed():
    with watched() as (machine, sampler):
        machine.fault(
            "nvmlDeviceGetComputeRunningProcesses_v3",
            Faults.FAIL,
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            times=-1,
        )
        sampler.sample()
        assert sampler.attribution_problem() == "Not Supported"


def test_a_hanging_driver_is_reported_and_blocks_nothing():
    with watched() as (machine, sampler):
        sampler.sample()
        machine.fault("nvmlDeviceGetMemoryInfo_v2", Faults.HANG, times=-1)
        sampler.start(lambda: None)
        sampler.refresh()
        deadline = time.monotonic() + 20
        while not sampler._sampling.locked() and time.monotonic() < deadline:
            time.sleep(0.005)
        assert sampler.last.account.held == {}, "the last reading is kept"
        assert "has not answered for" in sampler.health_problem(
            0, sampler.last.taken + SILENT_MS + 1
        )
        assert sampler.stop() is False
        machine.clear()


def test_a_refresh_leads_to_a_newer_reading_and_a_wake():
    with watched() as (_, sampler):
        woken = threading.Event()
        sampler.sample()
        before = sampler.last.taken
        time.sleep(0.002)
        sampler.start(woken.set)
        sampler.refresh()
        assert woken.wait(20)
        assert sampler.last.taken > before


def test_only_a_change_leads_to_a_wake():
    with watched() as (_, sampler):
        woken = threading.Event()
        sampler.sample()
        sampler.sample_fast(True)
        sampler.start(woken.set)
        assert woken.wait(20), "fast sampling begins with a refresh"
        woken.clear()
        version = sampler.version
        assert not woken.wait(0.5)
        assert sampler.version == version
        sampler.kernel("a", 1)
        assert woken.wait(20)
        assert sampler.version > version


assert MIB == 1 << 20
