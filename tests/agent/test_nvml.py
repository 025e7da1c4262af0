"""pynvml with fake drivers from 535 to 615: readings, and independent failures."""

from __future__ import annotations

import os

import pynvml
import pytest

from jupyter_gpushare.core.model.errors import Unavailable
from node_agent.devices.base.protocols import DiscoveryRequest
from node_agent.devices.nvidia.nvml import Nvml, NvmlFailed
from node_agent.devices.nvidia.nvml_types import GpuEvent, ProcessUse
from node_agent.discovery.inventory import find_devices
from tests.agent.fake_driver_kernels import fake_nvml, loaded
from tests.fake_driver.fake_gpu_machine import GIB, MIB, FakeGpuMachine, Faults

DRIVERS = (535, 550, 570, 580, 615)


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_driver_lists_gpus_memory_and_processes(driver):
    with fake_nvml(gpus=2, driver=driver) as (machine, nvml):
        machine.set("reserved", 512 * MIB, gpu=0)
        workers = [machine.worker() for _ in range(3)]
        for size, worker in enumerate(workers, 1):
            worker.do("alloc", 0, size * GIB)
        context = 256 * MIB
        assert nvml.driver == f"{driver}.65.06"
        assert [(gpu.index, gpu.uuid, gpu.model) for gpu in nvml.gpus] == [
            (i, uuid, machine.model) for i, uuid in enumerate(machine.uuids)
        ]
        assert nvml.processes(0) == [
            ProcessUse(worker.pid, size * GIB + context) for size, worker in enumerate(workers, 1)
        ]
        assert nvml.processes(1) == []
        memory = nvml.memory(0)
        assert (memory.used, memory.reserved) == (6 * GIB + 3 * context, 512 * MIB)
        assert memory.total == memory.used + memory.free + memory.reserved
        assert nvml.supports_memory_limits() == (driver >= 615)


def test_a_process_in_both_lists_is_counted_once_and_hidden_sizes_are_unknown():
    with fake_nvml() as (machine, nvml):
        worker = machine.worker()
        worker.do("alloc", 0, GIB)
        for lists in (0, 1, 2):
            machine.process(worker.pid, graphics=lists)
            assert nvml.processes(0) == [ProcessUse(worker.pid, GIB + 256 * MIB)]
        machine.set("hidden", 1, gpu=0)
        assert nvml.processes(0) == [ProcessUse(worker.pid, None)]


def test_a_process_without_context_may_be_listed_without_memory():
    with fake_nvml() as (machine, nvml):
        worker = machine.worker()
        worker.do("count")
        assert nvml.processes(0) == []
        machine.set("lists_bare", 1)
        assert nvml.processes(0) == [ProcessUse(worker.pid, 0)]


def test_without_version_3_of_the_lists_version_2_is_read():
    with fake_nvml() as (machine, nvml):
        worker = machine.worker()
        worker.do("alloc", 0, GIB)
        machine.fault(
            "nvmlDeviceGetComputeRunningProcesses_v3",
            Faults.FAIL,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            times=-1,
        )
        assert [one.pid for one in nvml.processes(0)] == [worker.pid]


def test_mig_instances_are_devices_and_their_gpu_is_none():
    with FakeGpuMachine(gpus=2) as machine:
        for _ in range(2):
            machine.add_gpu("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40 * GIB, mig_parent=0)
        worker = machine.worker(CUDA_VISIBLE_DEVICES=machine.uuids[3])
        worker.do("alloc", 0, GIB)
        with loaded(machine):
            nvml = Nvml()
            assert [(gpu.uuid, gpu.mig) for gpu in nvml.gpus] == [
                (machine.uuids[2], True),
                (machine.uuids[3], True),
                (machine.uuids[1], False),
            ]
            assert [gpu.index for gpu in nvml.gpus] == [0, 1, 2]
            assert nvml.gpus[0].total_mib == (40 * GIB - 40 * GIB // 512) // MIB
            assert ([one.pid for one in nvml.processes(1)], nvml.processes(0)) == ([worker.pid], [])
            with pytest.raises(NvmlFailed) as failed:
                nvml.process_utilization(1, 0)
            assert failed.value.is_missing
            read_events = nvml.subscribe()
            machine.event(0, 8, 79)
            assert read_events() == [GpuEvent((0, 1), "xid", 79)]
            assert nvml.recovery_action(0) == 0
            nvml.close()


def test_a_gpu_without_mig_instances_and_a_lost_one_are_reported_and_not_offered():
    with FakeGpuMachine(gpus=3) as machine:
        machine.set("mig_mode", 1, gpu=0)
        machine.set("healthy", 0, gpu=1)
        with loaded(machine):
            nvml = Nvml()
            assert [gpu.uuid for gpu in nvml.gpus] == [machine.uuids[2]]
            assert "MIG is on" in nvml.notes[0]
            assert "GPU 1 is not offered: it does not answer (GPU is lost)" in nvml.notes[1]
            nvml.close()


def test_utilization_is_per_process_and_idle_gpus_are_no_failure():
    with fake_nvml(gpus=1) as (machine, nvml):
        worker, idle = machine.worker(), machine.worker()
        for one in (worker, idle):
            one.do("alloc", 0, GIB)
        assert nvml.process_utilization(0, 0) == ({}, 0)
        machine.process(worker.pid, sm_util=40, busy_ms=60_000)
        shares, seen = nvml.process_utilization(0, 0)
        assert shares == {worker.pid: 0.4}
        assert seen > 0
        assert nvml.utilization(0) == 0.4


def test_a_process_that_starts_between_the_two_halves_of_the_call_causes_a_retry():
    with fake_nvml() as (machine, nvml):
        worker = machine.worker()
        worker.do("alloc", 0, GIB)
        machine.process(worker.pid, sm_util=40, busy_ms=60_000)
        machine.fault(
            "nvmlDeviceGetProcessUtilization",
            Faults.FAIL,
            pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
            skip=1,
        )
        assert nvml.process_utilization(0, 0)[0] == {worker.pid: 0.4}


FAILURES = {
    "no such function": (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, "is_missing"),
    "not on this GPU": (pynvml.NVML_ERROR_NOT_SUPPORTED, "is_missing"),
    "not for this user": (pynvml.NVML_ERROR_NO_PERMISSION, "is_refused"),
    "the GPU is lost": (pynvml.NVML_ERROR_GPU_IS_LOST, "is_lost"),
    "it requires a reset": (pynvml.NVML_ERROR_RESET_REQUIRED, "is_lost"),
    "unknown": (pynvml.NVML_ERROR_UNKNOWN, ""),
}


@pytest.mark.parametrize(("code", "kind"), FAILURES.values(), ids=FAILURES)
def test_failures_are_classified(code, kind):
    with fake_nvml() as (machine, nvml):
        machine.fault("nvmlDeviceGetUtilizationRates", Faults.FAIL, code)
        with pytest.raises(NvmlFailed) as failed:
            nvml.utilization(0)
        kinds = [
            name for name in ("is_missing", "is_refused", "is_lost") if getattr(failed.value, name)
        ]
        assert kinds == ([kind] if kind else [])
        assert failed.value.call == "nvmlDeviceGetUtilizationRates"


BROKEN = {
    "not loaded": (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "modprobe nvidia"),
    "updated while it ran": (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "restart the machine"),
    "not for this user": (pynvml.NVML_ERROR_NO_PERMISSION, "/dev/nvidiactl"),
    "something else": (pynvml.NVML_ERROR_UNKNOWN, "NVML: Unknown Error"),
}


@pytest.mark.parametrize(("code", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_driver_is_reported_with_a_remedy(tmp_path, code, words):
    with FakeGpuMachine() as machine, loaded(machine):
        machine.fault("nvmlInitWithFlags", Faults.FAIL, code)
        with pytest.raises(Unavailable, match=words) as refused:
            find_devices(DiscoveryRequest("n0", tmp_path))
        assert "--simulate MODEL:N" in refused.value.message
        assert "--GpuShareExtension.simulate=MODEL:N" in refused.value.message


def test_a_driver_that_fails_after_its_start_is_reported(tmp_path):
    with FakeGpuMachine() as machine, loaded(machine):
        machine.fault("nvmlSystemGetDriverVersion", Faults.FAIL, pynvml.NVML_ERROR_UNKNOWN)
        with pytest.raises(Unavailable, match="does not answer"):
            find_devices(DiscoveryRequest("n0", tmp_path))


def test_a_machine_without_gpus_is_reported(tmp_path):
    with (
        FakeGpuMachine(gpus=0) as machine,
        loaded(machine),
        pytest.raises(Unavailable, match="no GPU to share"),
    ):
        find_devices(DiscoveryRequest("n0", tmp_path))


def test_a_machine_whose_only_gpu_cannot_be_offered_is_reported_with_the_reason(tmp_path):
    with FakeGpuMachine(gpus=1) as machine, loaded(machine):
        machine.set("mig_mode", 1, gpu=0)
        with pytest.raises(Unavailable, match="MIG is on, but it has no instances"):
            find_devices(DiscoveryRequest("n0", tmp_path))


def test_gpus_whose_processes_are_not_listed_are_not_shared(tmp_path):
    with FakeGpuMachine(gpus=2) as machine, loaded(machine):
        machine.fault(
            "nvmlDeviceGetComputeRunningProcesses_v3",
            Faults.FAIL,
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            times=-1,
        )
        with pytest.raises(Unavailable, match="does not say which process uses them"):
            find_devices(DiscoveryRequest("n0", tmp_path))


def test_limits_are_set_in_bytes(tmp_path):
    with fake_nvml(gpus=2, driver=615) as (machine, nvml):
        leaf = str(tmp_path)
        nvml.set_memory_limits(0, leaf, GIB, 2 * GIB)
        assert machine.limits(leaf, 0) == (GIB, 2 * GIB)
        nvml.set_memory_limits(0, leaf, 0, None)
        assert machine.limits(leaf, 0) == (0, 2**64 - 1)
        with pytest.raises(NvmlFailed) as failed:
            nvml.set_memory_limits(0, f"{leaf}/missing", 0, None)
        assert failed.value.is_os_error


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_cannot_use_handles_of_its_parent():
    with fake_nvml() as (_, nvml):
        child = os.fork()
        if child == 0:
            try:
                nvml.memory(0)
            except RuntimeError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
