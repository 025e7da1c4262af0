"""What NVML would say, read from the played machine's own state: for tests of the copies alone."""

from __future__ import annotations

from collections.abc import Sequence

from node_agent.devices.nvidia.quiesce import MemoryReading
from node_agent.system.processes import ProcessId, started
from tests.fake_driver.fake_gpu_machine import MIB, GpuWorld, Toy

__all__ = ["TruthfulGround"]


class TruthfulGround:
    """Kernels are lists of toys. `growth`: as the caps would say; a kernel that is missing has no
    cap.
    """

    def __init__(self, world: GpuWorld, kernels: dict[str, list[Toy]]) -> None:
        self.world, self.kernels = world, kernels
        self.growth: dict[str, int] = {}
        self.strangers: frozenset[int] = frozenset()
        self.bare: list[Toy] = []
        """Listed on GPU 0 with nothing."""

    def look(self) -> MemoryReading:
        """Nothing lags here."""
        gpus = range(len(self.world.uuids))
        held = {
            name: {
                ident: found
                for toy in toys
                if (ident := started(toy.pid)) and (found := self._held(toy))
            }
            for name, toys in self.kernels.items()
        }
        free = {gpu: (self.world.total - self.world.used(gpu)) // MIB for gpu in gpus}
        return MemoryReading(held, free, self.growth, self.strangers)

    def _held(self, toy: Toy) -> dict[int, int]:
        if toy in self.bare:
            return {0: 0}
        return {
            gpu: -(-used // MIB)
            for gpu in range(len(self.world.uuids))
            if (used := self.world.used_by(toy.pid, gpu))
        }

    def members(self, kernel_id: str) -> Sequence[ProcessId]:
        """Those that live."""
        return [ident for toy in self.kernels.get(kernel_id, []) if (ident := started(toy.pid))]
