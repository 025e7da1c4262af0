"""Cost of reading real GPUs for the agent: 8 GPUs, 32 idle kernels. `python -m
tests.benchmarks.bench_polling`. Exit 1: a target was missed.

The driver is fake; its own work is measured per call and subtracted (both are printed). With a real
driver each call is an ioctl, whose cost can only be measured on a machine with GPUs. A "kernel"
here is a process that holds memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pynvml

from node_agent.app import Agent, AgentConfig
from node_agent.devices.nvidia.checkpoint_client import CheckpointClient
from node_agent.devices.nvidia.nvidia_devices import NvidiaDevices
from node_agent.devices.nvidia.nvml import Nvml
from node_agent.system.processes import ProcessId, process_at
from tests.agent.fake_driver_kernels import loaded
from tests.benchmarks.machine import print_speed
from tests.fake_driver.fake_gpu_machine import MIB, FakeGpuMachine

GPUS, KERNELS, ROUNDS, ROUND_S, BAR = 8, 32, 5, 6.0, 1.0
WARM_S = 3.0


def report(what: str, measured: float, bar: float, unit: str) -> bool:
    sys.stdout.write(f"{what}: {measured:.2f} {unit} (target {bar:g} {unit})\n")
    return measured <= bar


def cpu_s() -> float:
    """User and system time of this process, from /proc."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def fake_call_s(machine: FakeGpuMachine) -> float:
    """CPU seconds of a call in the fake driver: the mean of the two most frequent calls."""
    library = ctypes.CDLL(str(machine.libraries / "libnvidia-ml.so.1"))
    library.nvmlInitWithFlags(0)
    handle, count, memory = ctypes.c_void_p(), ctypes.c_uint(0), pynvml.c_nvmlMemory_v2_t()
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    memory.version = pynvml.nvmlMemory_v2
    costs = []
    for call in (
        lambda: library.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(memory)),
        lambda: library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), None),
    ):
        begun = time.thread_time()
        for _ in range(300):
            count.value = 0
            assert call() in (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        costs.append((time.thread_time() - begun) / 300)
    return statistics.mean(costs)


def add_kernels(agent: Agent, pids: list[int]) -> None:
    """32 launched kernels that hold memory."""
    for number, pid in enumerate(pids):
        ident = process_at(pid)
        assert isinstance(ident, ProcessId)
        kernel = agent.node.open_kernel(f"kernel-{number:02}")
        kernel.registration.registered, kernel.registration.language = True, "python"
        agent.lifecycle.watch(kernel, ident)


async def measure(machine: FakeGpuMachine, pids: list[int]) -> bool:
    shares, calls = [], []
    with tempfile.TemporaryDirectory(prefix="gpushare-bench-") as folder:
        agent = Agent(
            AgentConfig("n0", Path(folder), grace_ms=600_000),
            NvidiaDevices(Nvml(), Path(folder), CheckpointClient()),
        )
        add_kernels(agent, pids)
        await agent.start()
        await asyncio.sleep(WARM_S)  # the self-test is done
        assert (
            sum(len(kernel.memory.usage.held) for kernel in agent.node.kernels.values()) == KERNELS
        )
        for _ in range(ROUNDS):
            cpu, made, begun = cpu_s(), machine.calls(), time.monotonic()
            await asyncio.sleep(ROUND_S)
            passed = time.monotonic() - begun
            shares.append(100 * (cpu_s() - cpu) / passed)
            calls.append((machine.calls() - made) / passed)
        await agent.stop()
    per_call = fake_call_s(machine)
    whole, rate = statistics.median(shares), statistics.median(calls)
    fake = 100 * rate * per_call
    sys.stdout.write(
        f"calls of NVML: {rate:.0f} per second; in the fake driver {1e6 * per_call:.0f} us each, "
        f"{fake:.2f} % of a core\n"
    )
    sys.stdout.write(
        f"the agent's process with the fake driver, median of {ROUNDS} x {ROUND_S:g} s: "
        f"{whole:.2f} % of a core\n"
    )
    return report(
        f"the agent, {GPUS} GPUs, {KERNELS} idle kernels, without the fake driver",
        max(0.0, whole - fake),
        BAR,
        "% of a core",
    )


def main() -> int:
    with FakeGpuMachine(gpus=GPUS) as machine, loaded(machine):
        workers = [machine.worker() for _ in range(KERNELS)]
        for number, worker in enumerate(workers):
            worker.do("alloc", number % GPUS, 64 * MIB)
        return 0 if asyncio.run(measure(machine, [worker.pid for worker in workers])) else 1


if __name__ == "__main__":
    print_speed()
    raise SystemExit(main())
