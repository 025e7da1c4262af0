"""What NVML would say, read from the played machine's own state: for tests of the copies alone."""

from __future__ import annotations

from collections.abc import Sequence

from node_agent.devices.nvidia.quiesce import MemoryReading
from node_agent.system.processes import ProcessId, process_at
from tests.fake_driver.fake_gpu_machine import MIB, FakeGpuMachine, Worker

__all__ = ["ExactMemoryView"]


class ExactMemoryView:
    """Kernels are lists of toys. `growth`: as the caps would say; a kernel that is missing has no
    cap.
    """

    def __init__(self, machine: FakeGpuMachine, kernels: dict[str, list[Worker]]) -> None:
        self.machine, self.kernels = machine, kernels
        self.growth: dict[str, int] = {}
        self.foreign_gpus: frozenset[int] = frozenset()
        self.empty: list[Worker] = []
        """Listed on GPU 0 with nothing."""

    def read_memory(self) -> MemoryReading:
        """Nothing lags here."""
        gpus = range(len(self.machine.uuids))
        held = {
            name: {
                ident: found
                for worker in workers
                if (ident := process_at(worker.pid)) and (found := self._held(worker))
            }
            for name, workers in self.kernels.items()
        }
        free = {gpu: (self.machine.total - self.machine.used(gpu)) // MIB for gpu in gpus}
        return MemoryReading(held, free, self.growth, self.foreign_gpus)

    def _held(self, worker: Worker) -> dict[int, int]:
        if worker in self.empty:
            return {0: 0}
        return {
            gpu: -(-used // MIB)
            for gpu in range(len(self.machine.uuids))
            if (used := self.machine.used_by(worker.pid, gpu))
        }

    def members(self, kernel_id: str) -> Sequence[ProcessId]:
        """Those that live."""
        return [
            ident for worker in self.kernels.get(kernel_id, []) if (ident := process_at(worker.pid))
        ]
