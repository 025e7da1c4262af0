"""A node whose agent uses the real code for NVML and the CUDA driver on a fake GPU machine; kernels
use ctypes.

The dynamic loader reads its search path when a process starts, and finds a loaded library of any
driver version by its name. The fake libraries are therefore loaded by their full paths.
"""

from __future__ import annotations

import contextlib
import ctypes

import pynvml
import pytest

from node_agent.app import Agent
from node_agent.devices.nvidia.checkpoint_client import CheckpointClient, Deadlines
from node_agent.devices.nvidia.nvidia_devices import NvidiaDevices
from node_agent.devices.nvidia.nvml import Nvml
from node_agent.system.host_memory import HostReading
from tests.agent.simulated_node import World
from tests.fake_driver.fake_gpu_machine import GIB, MIB, FakeGpuMachine

__all__ = ["FILL", "PREPARE", "READ", "GpuNode", "burst"]

PREPARE = """
import os
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
from tests.fake_driver.driver import Gpu
gpu = Gpu({gpu})
"""
"""The first cell of a kernel: it selects its GPU, as the frameworks' part of the extension does in
real kernels.
"""
FILL = "p = gpu.alloc({gib} << 30); gpu.write(p, b'tensor of {name}'); result = p"
READ = "result = gpu.read(p, 11).decode()"


class GpuNode(World):
    """`machine` is the fake machine. Kernels: `await world.kernel("a", gpu=0, request=40 *
    1024)`.
    """

    def __init__(
        self, *, gpus: int = 1, driver: int = 580, deadlines: Deadlines | None = None, **more
    ) -> None:
        super().__init__(gpus=gpus, **more)
        self.deadlines = deadlines or Deadlines()
        self._patch = pytest.MonkeyPatch()
        self.machine = FakeGpuMachine(gpus=gpus, driver=driver, memory=80 * GIB, context=256 * MIB)

    async def __aenter__(self) -> GpuNode:
        for name, value in self.machine.environment().items():
            self._patch.setenv(name, value)
        libraries = self.machine.libraries
        self._patch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(libraries / "libnvidia-ml.so.1")))
        self._patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        self._patch.setattr(
            "node_agent.devices.nvidia.cuda.LIBRARY", str(libraries / "libcuda.so.1")
        )
        self._patch.setattr(
            "node_agent.reconcile.memory_mover.read_host",
            lambda _: HostReading(2048 * 1024, 2048 * 1024),
        )  # enough host memory for such GPUs
        await super().__aenter__()
        await self.until(lambda: "suspend" in self.devices.capabilities()[0], "self-test", 30)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.machine.clear()
        with contextlib.suppress(AssertionError):
            await super().__aexit__(*error)
        self.machine.close()
        self._patch.undo()

    async def start_agent(self) -> None:
        self.devices = NvidiaDevices(Nvml(), self.state_dir, CheckpointClient(self.deadlines))
        self.agent = Agent(self.config, self.devices, self.scheduler.link)
        await self.agent.start()

    async def kernel(self, name: str, *, gpu: int = 0, request: int, **more):
        """A kernel that is granted, launched and attached, with `gpu` in its scope."""
        self.scheduler.grant(name, gpu=gpu, request=request, **more)
        child = await self.server.launch(name)
        await self.attached(name)
        done = await child.run(PREPARE.format(gpu=self.record(name).assignment.current_gpus[0]))
        assert "error" not in done, done
        return child

    def used(self) -> dict[int, int]:
        """MiB per GPU according to the driver."""
        return {gpu: self.machine.used(gpu) // MIB for gpu in range(len(self.machine.uuids))}

    def state(self, child) -> str:
        """State of the kernel's main process."""
        return self.machine.state(child.pid)


async def burst(world: GpuNode, gib: int = 60):
    """Kernel a, which has half a GPU and uses more."""
    a = await world.kernel("a", request=40 * 1024)
    assert "error" not in await a.run(FILL.format(gib=gib, name="a"))
    return a
