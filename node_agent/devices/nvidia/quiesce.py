"""Room for a restore: the neighbours hold still, and what is free is read again before anybody is
asked to copy.

A restore for which the GPU has no room destroys the saved state for ever (NVIDIA/cuda-checkpoint
issue 44). Nothing stops a neighbour from taking memory between our look and the driver's; so each
process of our other kernels on that GPU is locked for the moment, its calls wait. One that does not
come to rest in time runs on, and all that it may still take by its cap is counted as taken. Where
the driver itself enforces limits, nobody needs to be locked.
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
from .checkpoint_journal import CheckpointRecord
from .checkpoint_steps import CheckpointSteps
from .cuda import CudaError

__all__ = ["MemoryView", "NeighbourLocks", "MemoryReading", "Quiescer"]

log = logging.getLogger("gpushare.agent")

MARGIN_MIB: Final = 256
"""Kept free beside strangers, who cannot be asked to hold still: about one context."""
UNBOUNDED: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """The GPUs at one moment, as the driver lists them. MiB."""

    held: Mapping[str, Mapping[ProcessId, Mapping[int, int]]]
    """What the processes of our kernels hold per GPU."""
    free: Mapping[int, int]
    growth: Mapping[str, int] = field(default_factory=dict)
    """What a kernel may still take by its cap; a kernel that is missing has no cap that we know."""
    strangers: frozenset[int] = frozenset()
    """GPUs on which somebody holds memory who is no kernel of ours."""


class MemoryView(Protocol):
    """What copies ask of the accounting, in their threads."""

    def look(self) -> MemoryReading:
        """Read anew. Raises DevicesBusy."""

    def members(self, kernel_id: str) -> Sequence[ProcessId]:
        """All living processes of the kernel's tree, whether they use a GPU or not."""


class NeighbourLocks:
    """One at a time: per kernel (its processes), per GPU (its room). A GPU's lock is taken after a
    kernel's, never before.
    """

    def __init__(self) -> None:
        self._kernels: dict[str, threading.RLock] = {}
        self._gpus: dict[int, threading.RLock] = {}

    def kernel(self, name: str) -> threading.RLock:
        """Whoever copies this kernel, or holds it still."""
        return self._kernels.setdefault(name, threading.RLock())

    def gpu(self, index: int) -> threading.RLock:
        """Whoever brings something onto this GPU."""
        return self._gpus.setdefault(index, threading.RLock())


class Quiescer:
    """Holds neighbours still."""

    def __init__(
        self,
        driver: CheckpointClient,
        ground: MemoryView,
        record: CheckpointRecord,
        locks: NeighbourLocks,
        *,
        limited: Callable[[], bool],
        timeout_ms: int,
    ) -> None:
        self._driver, self._ground, self._record, self._locks = driver, ground, record, locks
        self._steps = CheckpointSteps(driver)
        self._limited, self._timeout_ms = limited, timeout_ms

    @contextmanager
    def room(self, kernel_id: str, need: Mapping[int, int]) -> Iterator[None]:
        """While this is open, `need` (MiB per GPU) is free and stays free. Raises CopyFailed when
        it is not; nobody was touched then, or everybody runs again.
        """
        with ExitStack() as stack:
            for gpu in sorted(need):
                stack.enter_context(self._locks.gpu(gpu))
            self._check(kernel_id, need, bare=True)
            still: set[str] = set()
            if not self._limited():
                for name, beside in self._neighbours(kernel_id, need):
                    if stack.enter_context(self._held_still(name, beside)):
                        still.add(name)
            self._check(kernel_id, need, still)
            yield

    def _neighbours(
        self, kernel_id: str, need: Mapping[int, int]
    ) -> list[tuple[str, list[ProcessId]]]:
        found = []
        for name, processes in sorted(self._ground.look().held.items()):
            beside = sorted(
                (ident for ident, held in processes.items() if any(held.get(gpu) for gpu in need)),
                key=lambda i: i.pid,
            )
            if name != kernel_id and beside:
                found.append((name, beside))
        return found

    @contextmanager
    def _held_still(self, name: str, idents: Sequence[ProcessId]) -> Iterator[bool]:
        """Whether all of them are locked. A kernel that somebody copies right now is left alone: it
        is on its way out.
        """
        lock = self._locks.kernel(name)
        if not lock.acquire(blocking=False):
            yield False
            return
        before = self._record.begin(name)
        asked: list[ProcessId] = []
        try:
            yield self._lock_each(name, idents, asked)
        finally:
            try:
                for ident in asked:
                    self._steps.unlock(ident)
                self._record.put_back(name, before)
            except (
                CudaError,
                OutcomeUnknown,
                CopyFailed,
            ) as error:  # it stays in doubt, and is set right by `settle`
                log.warning("kernel %s was held still and is not let go yet: %s", name, error)
            finally:
                lock.release()

    def _lock_each(self, name: str, idents: Sequence[ProcessId], asked: list[ProcessId]) -> bool:
        for ident in idents:
            asked.append(ident)
            try:
                self._driver.lock(ident.pid, self._timeout_ms)
            except (CudaError, OutcomeUnknown) as error:
                if not ident.is_alive():
                    continue
                log.info("kernel %s does not hold still: %s", name, error)
                return False
        return True

    def _check(
        self,
        kernel_id: str,
        need: Mapping[int, int],
        still: set[str] | None = None,
        *,
        bare: bool = False,
    ) -> None:
        """`bare`: only what is certain, before anybody is locked."""
        look = self._ground.look()
        for gpu, mib in need.items():
            ours = {
                name: sum(of.get(gpu, 0) for of in processes.values())
                for name, processes in look.held.items()
                if name != kernel_id
            }
            growing = {name for name, held in ours.items() if held} - (still or set())
            taken = 0 if bare else sum(look.growth.get(name, UNBOUNDED) for name in growing)
            free = look.free.get(gpu, 0)
            # A margin that not even an empty GPU could give would keep an image that filled the GPU
            # away for ever.
            margin = (
                min(MARGIN_MIB, max(0, free + sum(ours.values()) - mib))
                if gpu in look.strangers and not bare
                else 0
            )
            if free < mib + taken + margin:
                why = f"{mib} MiB must go to GPU {gpu}, where {free} MiB are free"
                raise CopyFailed(
                    why if free < mib else f"{why} and others do not hold still", for_good=False
                )
