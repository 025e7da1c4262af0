"""A memory view that reads the state of the fake machine directly, for tests of copies alone."""

from __future__ import annotations

from collections.abc import Sequence

from node_agent.devices.nvidia.quiesce import MemoryReading
from node_agent.system.processes import ProcessId, process_at
from tests.fake_driver.fake_gpu_machine import MIB, FakeGpuMachine, Worker

__all__ = ["ExactMemoryView"]


class ExactMemoryView:
    """Kernels are lists of workers. `growth`: by their caps; a missing kernel has no cap."""

    def __init__(self, machine: FakeGpuMachine, kernels: dict[str, list[Worker]]) -> None:
        self.machine, self.kernels = machine, kernels
        self.growth: dict[str, int] = {}
        self.foreign_gpus: frozenset[int] = frozenset()
        self.empty: list[Worker] = []
        """Listed on GPU 0 without memory."""

    def read_memory(self) -> MemoryReading:
        """Exact, without lag."""
        gpus = range(len(self.machine.uuids))
        held = {name: self._held_by(workers) for name, workers in self.kernels.items()}
        free = {gpu: (self.machine.total - self.machine.used(gpu)) // MIB for gpu in gpus}
        return MemoryReading(held, free, self.growth, self.foreign_gpus)

    def _held_by(self, workers: list[Worker]) -> dict[ProcessId, dict[int, int]]:
        found = {}
        for worker in workers:
            process, held = process_at(worker.pid), self._held(worker)
            if process is not None and held:
                found[process] = held
        return found

    def _held(self, worker: Worker) -> dict[int, int]:
        if worker in self.empty:
            return {0: 0}
        held = {}
        for gpu in range(len(self.machine.uuids)):
            if used := self.machine.used_by(worker.pid, gpu):
                held[gpu] = -(-used // MIB)
        return held

    def members(self, kernel_id: str) -> Sequence[ProcessId]:
        """Living processes."""
        return [
            ident for worker in self.kernels.get(kernel_id, []) if (ident := process_at(worker.pid))
        ]
