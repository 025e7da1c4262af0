"""Reserves GPU memory for a restore: other kernels on the GPU are locked, and the free memory is
read again before the copy.

A restore without enough GPU memory destroys the saved state (NVIDIA/cuda-checkpoint issue 44), and
nothing prevents another process from allocating memory between our reading and the driver's. The
processes of other kernels on that GPU are therefore locked meanwhile, so that their calls wait. A
process that does not become idle in time keeps running, and all memory that its cap still allows
counts as used. Where the driver enforces limits, no process needs to be locked.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from ...system.processes import ProcessId
from ..base.model import CopyFailed
from .checkpoint_client import CheckpointClient, OutcomeUnknown
from .checkpoint_journal import CheckpointJournal
from .checkpoint_steps import CheckpointSteps
from .cuda import CudaError

__all__ = ["CopyLocks", "MemoryReading", "MemoryView", "Quiescer"]

log = logging.getLogger("gpushare.agent")

MARGIN_MIB: Final = 256
"""Kept free where other processes use the GPU, which cannot be locked: about one context."""
UNBOUNDED: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Memory of the GPUs at one moment, as the driver lists it. MiB."""

    held: Mapping[str, Mapping[ProcessId, Mapping[int, int]]]
    """Per kernel, process and GPU."""
    free: Mapping[int, int]
    growth: Mapping[str, int] = field(default_factory=dict)
    """How much each kernel may still allocate by its cap; missing: no known cap."""
    foreign_gpus: frozenset[int] = frozenset()
    """GPUs with memory of processes that belong to no kernel."""


class MemoryView(Protocol):
    """Memory accounting, as copies use it in their threads."""

    def read_memory(self) -> MemoryReading:
        """A new reading. Raises DevicesBusy."""

    def members(self, kernel_id: str) -> Sequence[ProcessId]:
        """All living processes of the kernel, with or without a GPU."""


class CopyLocks:
    """Mutual exclusion per kernel (for its processes) and per GPU (for its free memory). Order: the
    lock of a GPU is taken after that of a kernel.
    """

    def __init__(self) -> None:
        self._kernels: dict[str, threading.RLock] = {}
        self._gpus: dict[int, threading.RLock] = {}

    def kernel(self, name: str) -> threading.RLock:
        """Held while the kernel is copied or quiesced."""
        return self._kernels.setdefault(name, threading.RLock())

    def gpu(self, index: int) -> threading.RLock:
        """Held while memory is restored on the GPU."""
        return self._gpus.setdefault(index, threading.RLock())


class Quiescer:
    """Locks the other kernels of a GPU during a restore."""

    def __init__(
        self,
        driver: CheckpointClient,
        memory: MemoryView,
        journal: CheckpointJournal,
        locks: CopyLocks,
        *,
        limits_enforced: Callable[[], bool],
        timeout_ms: int,
    ) -> None:
        """`timeout_ms`: how long a process may take to become idle."""
        self._driver, self._memory, self._journal, self._locks = driver, memory, journal, locks
        self._steps = CheckpointSteps(driver)
        self._limits_enforced, self._timeout_ms = limits_enforced, timeout_ms

    @contextmanager
    def reserved(self, kernel_id: str, need: Mapping[int, int]) -> Iterator[None]:
        """While the context is open, `need` (MiB per GPU) is free and remains free. Raises
        CopyFailed when it is not; then no process is locked any more.
        """
        with ExitStack() as stack:
            for gpu in sorted(need):
                stack.enter_context(self._locks.gpu(gpu))
            self._check(kernel_id, need, at_least=True)
            quiesced: set[str] = set()
            if not self._limits_enforced():
                for name, processes in self._neighbours(kernel_id, need):
                    if stack.enter_context(self._locked(name, processes)):
                        quiesced.add(name)
            self._check(kernel_id, need, quiesced)
            yield

    def _neighbours(
        self, kernel_id: str, need: Mapping[int, int]
    ) -> list[tuple[str, list[ProcessId]]]:
        """Other kernels with memory on these GPUs, and their processes there."""
        found = []
        for name, processes in sorted(self._memory.read_memory().held.items()):
            affected = []
            for process, held in processes.items():
                if any(held.get(gpu) for gpu in need):
                    affected.append(process)
            if name != kernel_id and affected:
                found.append((name, sorted(affected, key=lambda process: process.pid)))
        return found

    @contextmanager
    def _locked(self, name: str, processes: Sequence[ProcessId]) -> Iterator[bool]:
        """Whether all of them are locked. A kernel with a copy in progress is skipped: it is
        leaving the GPU.
        """
        lock = self._locks.kernel(name)
        if not lock.acquire(blocking=False):
            yield False
            return
        before = self._journal.begin(name)
        attempted: list[ProcessId] = []
        try:
            yield self._lock_each(name, processes, attempted)
        finally:
            try:
                for process in attempted:
                    self._steps.unlock(process)
                self._journal.revert(name, before)
            # Its entry stays uncertain, and `recover` unlocks it later.
            except (CudaError, OutcomeUnknown, CopyFailed) as error:
                log.warning("kernel %s was locked and cannot be unlocked yet: %s", name, error)
            finally:
                lock.release()

    def _lock_each(
        self, name: str, processes: Sequence[ProcessId], attempted: list[ProcessId]
    ) -> bool:
        for process in processes:
            attempted.append(process)
            try:
                self._driver.lock(process.pid, self._timeout_ms)
            except (CudaError, OutcomeUnknown) as error:
                if not process.is_alive():
                    continue
                log.info("kernel %s does not become idle: %s", name, error)
                return False
        return True

    def _check(
        self,
        kernel_id: str,
        need: Mapping[int, int],
        quiesced: set[str] | None = None,
        *,
        at_least: bool = False,
    ) -> None:
        """`at_least`: check only what does not depend on other processes, before any is locked."""
        reading = self._memory.read_memory()
        for gpu, mib in need.items():
            neighbours = _held_by_others(reading, kernel_id, gpu)
            growing = {name for name, held in neighbours.items() if held} - (quiesced or set())
            growth = sum(reading.growth.get(name, UNBOUNDED) for name in growing)
            free = reading.free.get(gpu, 0)
            reserve = 0
            if not at_least:
                reserve = growth + _margin(reading, gpu, free + sum(neighbours.values()) - mib)
            if free < mib + reserve:
                problem = f"{mib} MiB must be restored on GPU {gpu}, where {free} MiB are free"
                if free >= mib:
                    problem += " and other processes may allocate more"
                raise CopyFailed(problem, for_good=False)


def _held_by_others(reading: MemoryReading, kernel_id: str, gpu: int) -> dict[str, int]:
    """MiB on this GPU per kernel, without `kernel_id`."""
    found = {}
    for name, processes in reading.held.items():
        if name != kernel_id:
            found[name] = sum(held.get(gpu, 0) for held in processes.values())
    return found


def _margin(reading: MemoryReading, gpu: int, most: int) -> int:
    """MiB to keep free for other processes: at most what an otherwise empty GPU could spare, so
    that an image which filled the GPU can be restored.
    """
    return min(MARGIN_MIB, max(0, most)) if gpu in reading.foreign_gpus else 0
