"""Suspends, resumes and recovers kernels on real GPUs: all processes of a kernel or none, and never
a restore without enough GPU memory.

Three rules apply to every step. Recorded first: the journal names a kernel before any of its
processes is locked. Verified: a call succeeded only if the state of the process confirms it
(`checkpoint_steps`). Undone on failure: what cannot be completed is reverted, and what cannot be
reverted stays uncertain in the journal, for `recover`.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...system.processes import ProcessId
from ..base.model import CopyAdmission, CopyFailed, DevicesBusy
from .checkpoint_client import CheckpointClient, OutcomeUnknown
from .checkpoint_journal import CheckpointJournal, SavedKernel, SavedProcess
from .checkpoint_steps import STATE_LOST, CheckpointSteps
from .cuda import NOT_READY, NOT_SUPPORTED, CudaError, ProcessState
from .gpu_map import gpus_in_use, moves_between, permutation
from .quiesce import CopyLocks, MemoryView, Quiescer

__all__ = ["CheckpointTimes", "Checkpoints"]

log = logging.getLogger("gpushare.agent")

LOCK_ROUNDS: Final = 3
"""How often to look for processes that started while others were locked."""


@dataclass(frozen=True, slots=True)
class CheckpointTimes:
    """Time limits. `lock_ms`: for a kernel that is suspended; `neighbour_ms`: for a kernel that is
    only quiesced; `listed_s`: until the driver lists moved memory; `retry_s`: before a process in
    an unknown state is examined again.
    """

    lock_ms: int = 2_000
    neighbour_ms: int = 300
    listed_s: float = 5.0
    retry_s: float = 5.0


class Checkpoints:
    """The copies of one node. `suspend`, `resume` and `recover` block, each in a thread of its own;
    there is one copy at a time per kernel, and one restore at a time per GPU.
    """

    def __init__(
        self,
        driver: CheckpointClient,
        memory: MemoryView,
        journal: Path,
        uuids: Sequence[str],
        models: Sequence[str],
        *,
        can_relocate: Callable[[], bool] = lambda: False,
        limits_enforced: Callable[[], bool] = lambda: False,
        times: CheckpointTimes = CheckpointTimes(),
    ) -> None:
        self._driver, self._memory = driver, memory
        self._uuids, self._models = list(uuids), list(models)
        self._can_relocate, self._times = can_relocate, times
        self._journal, self._locks = CheckpointJournal(journal), CopyLocks()
        self._steps = CheckpointSteps(driver)
        self._quiescer = Quiescer(
            driver,
            memory,
            self._journal,
            self._locks,
            limits_enforced=limits_enforced,
            timeout_ms=times.neighbour_ms,
        )
        self._in_progress: set[str] = set()
        self._retry_at: dict[str, float] = {}

    def saved(self) -> Mapping[str, SavedKernel]:
        """All kernels that are saved or in an uncertain state. Returns at once."""
        now = time.monotonic()
        postponed = {name for name, when in list(self._retry_at.items()) if now < when}
        return self._journal.overview(self._in_progress | postponed)

    def close(self) -> None:
        """End the worker process; saved memory stays saved."""
        self._driver.close()

    # ---- suspend ---------------------------------------------------------------------------------

    def suspend(
        self, kernel_id: str, gpus: Sequence[int], admit: CopyAdmission = lambda _: ""
    ) -> int:
        """Save all GPU memory of a kernel; `gpus`: its GPU per ordinal. Returns MiB. Raises
        CopyFailed.
        """
        with self._exclusive(kernel_id):
            locked: dict[ProcessId, int] = {}
            _, entries = self._journal.entry(kernel_id)
            before = {saved.process() for saved in entries}
            try:
                self._lock_all(kernel_id, tuple(gpus), locked)
                if problem := admit(sum(locked.values())):
                    raise CopyFailed(problem, for_good=False)
                for process, mib in locked.items():
                    self._steps.checkpoint(process, mib)
            except Exception as error:  # after any error, no process may stay locked
                self._undo(kernel_id, locked, before)
                raise _failure("saved", error) from error
            if locked:
                self._journal.commit(kernel_id, set(locked) | before)
            return sum(locked.values())

    def _lock_all(
        self, kernel_id: str, gpus: tuple[int, ...], locked: dict[ProcessId, int]
    ) -> None:
        """Lock every listed process, including those that start meanwhile, and record its memory by
        the last reading: a locked process allocates nothing. A listed process without memory has no
        context, and CUDA cannot lock it.
        """
        for _ in range(LOCK_ROUNDS):
            held = self._held(kernel_id)
            if held:
                self._journal.begin(
                    kernel_id,
                    gpus_in_use(gpus, {gpu for sizes in held.values() for gpu in sizes}),
                    tuple(SavedProcess(p.pid, p.start, dict(sizes)) for p, sizes in held.items()),
                )
            for process in locked.keys() & held.keys():
                locked[process] = sum(held[process].values())
            fresh = sorted(held.keys() - locked.keys(), key=lambda process: process.pid)
            if not fresh:
                return
            for process in fresh:
                locked[process] = sum(held[process].values())
                self._steps.lock(process, self._times.lock_ms)
        raise CopyFailed("it keeps starting processes that use the GPU", for_good=False)

    def _held(self, kernel_id: str) -> dict[ProcessId, Mapping[int, int]]:
        """MiB per GPU of its processes that hold any."""
        listed = self._memory.read_memory().held.get(kernel_id, {})
        return {process: sizes for process, sizes in listed.items() if any(sizes.values())}

    def _undo(
        self, kernel_id: str, processes: Mapping[ProcessId, int], before: set[ProcessId]
    ) -> None:
        """Unlock what was locked and restore what was saved, if there is still enough memory. What
        cannot be undone stays uncertain.
        """
        try:
            saved = [
                process
                for process in processes
                if self._steps.state(process) is ProcessState.CHECKPOINTED
            ]
            if saved:
                self._restore_all(kernel_id, saved, {})
            for process in processes:
                self._steps.unlock(process)
            self._journal.commit(kernel_id, before)
        except Exception as error:  # after any error, the kernel stays uncertain
            log.warning(
                "kernel %s: a copy could not be undone; its processes are examined again: %s",
                kernel_id,
                error,
            )

    # ---- resume ----------------------------------------------------------------------------------

    def resume(self, kernel_id: str, gpus: Sequence[int]) -> int:
        """Restore a kernel's memory on these GPUs (per ordinal) and let it run. Returns MiB. Raises
        CopyFailed: the kernel is as before, or `lost`.
        """
        with self._exclusive(kernel_id):
            old_gpus, saved = self._journal.entry(kernel_id)
            if not saved:
                return 0
            processes = [one.process() for one in saved]
            self._journal.begin(kernel_id)
            try:
                self._restore_all(kernel_id, processes, moves_between(old_gpus, gpus))
                for process in processes:
                    self._steps.unlock(process)
            except Exception as error:  # after any error, no process may stay locked
                failure = _failure("restored", error)
                self._recover(kernel_id)
                raise failure from error
            self._journal.commit(kernel_id, set())
            return sum(one.mib() for one in saved)

    def _restore_all(
        self, kernel_id: str, processes: Sequence[ProcessId], moves: Mapping[int, int]
    ) -> None:
        """All processes are restored and locked afterwards, on their GPUs."""
        _, saved = self._journal.entry(kernel_id)
        held = {one.process(): one.held for one in saved}
        full = permutation(len(self._uuids), moves) if moves else {}
        pairs = self._uuid_pairs(full)
        need: dict[int, int] = defaultdict(int)
        for process in processes:
            for gpu, mib in held.get(process, {}).items():
                need[full.get(gpu, gpu)] += mib
        sizes = {process: sum(held.get(process, {}).values()) for process in processes}
        with self._quiescer.reserved(kernel_id, need):
            for process, mib in sizes.items():
                self._steps.restore(process, pairs, mib)
            if pairs:
                self._confirm_moved(kernel_id, sizes, set(need))

    def _uuid_pairs(self, full: Mapping[int, int]) -> list[tuple[str, str]]:
        """(old, new) of every GPU of the machine, as the driver requires; empty: nothing moves."""
        if full and not self._can_relocate():
            problem = "this node cannot move GPU memory to another GPU"
            raise CopyFailed(problem, for_good=True, lost=True)
        if any(self._models[old] != self._models[new] for old, new in full.items()):
            problem = "GPU memory can only move to a GPU of the same model"
            raise CopyFailed(problem, for_good=True, lost=True)
        return [(self._uuids[old], self._uuids[new]) for old, new in sorted(full.items())]

    def _confirm_moved(
        self, kernel_id: str, sizes: Mapping[ProcessId, int], targets: set[int]
    ) -> None:
        """Some drivers accept a GPU map and ignore it: the process list shows where the memory is.
        Memory that has not moved is saved again.
        """
        deadline = time.monotonic() + self._times.listed_s
        seen: set[int] = set()
        while any(process.is_alive() for process in sizes):
            listed = self._memory.read_memory().held.get(kernel_id, {})
            seen = {gpu for process in sizes for gpu in listed.get(process, {})}
            if seen and seen <= targets:
                return
            if seen or time.monotonic() >= deadline:
                break
            time.sleep(0.02)
        else:
            return
        for process, mib in sizes.items():
            self._steps.checkpoint(process, mib)
        if not seen:
            raise CopyFailed("the driver does not list the memory that was moved", for_good=False)
        problem = "the driver accepted the move to another GPU but did not make it"
        raise CopyFailed(problem, for_good=True, lost=True)

    # ---- recover ---------------------------------------------------------------------------------

    def recover(self, kernel_id: str) -> None:
        """Examine all processes of a kernel, and finish or undo what was interrupted. Raises
        CopyFailed when its state is lost.
        """
        with self._exclusive(kernel_id):
            self._recover(kernel_id)

    def _recover(self, kernel_id: str) -> None:
        _, saved = self._journal.entry(kernel_id)
        sizes = {one.process(): one.mib() for one in saved}
        try:
            states = self._states(kernel_id, sizes)
            checkpointed = self._complete(states, sizes)
        except (CudaError, OutcomeUnknown, CopyFailed) as error:
            self._retry_at[kernel_id] = time.monotonic() + self._times.retry_s
            self._journal.begin(kernel_id)
            log.warning(
                "kernel %s: the state of its processes is unknown; they are examined again: %s",
                kernel_id,
                error,
            )
            return
        self._retry_at.pop(kernel_id, None)
        self._journal.commit(kernel_id, checkpointed)
        if ProcessState.FAILED in states.values():
            raise CopyFailed(STATE_LOST, for_good=True, lost=True)

    def _states(
        self, kernel_id: str, sizes: Mapping[ProcessId, int]
    ) -> dict[ProcessId, ProcessState | None]:
        """Of recorded processes, and of all members of the kernel."""
        processes = sizes.keys() | set(self._memory.members(kernel_id))
        states = {}
        for process in sorted(processes, key=lambda process: process.pid):
            is_recorded = process in sizes
            read = self._steps.state if is_recorded else self._steps.probe_state
            states[process] = read(process)
        return states

    def _complete(
        self, states: Mapping[ProcessId, ProcessState | None], sizes: Mapping[ProcessId, int]
    ) -> set[ProcessId]:
        """Save the locked processes if another one is saved, otherwise unlock them. Returns the
        saved ones.
        """
        saved = {process for process, state in states.items() if state is ProcessState.CHECKPOINTED}
        for process, state in states.items():
            if state is ProcessState.LOCKED and saved:
                self._steps.checkpoint(process, sizes.get(process, 0))
                saved.add(process)
            elif state is ProcessState.LOCKED:
                self._steps.unlock(process)
        return saved

    @contextmanager
    def _exclusive(self, kernel_id: str) -> Iterator[None]:
        """One copy at a time per kernel; errors of the driver and its worker become CopyFailed."""
        with self._locks.kernel(kernel_id):
            self._in_progress.add(kernel_id)
            try:
                yield
            except (CudaError, OutcomeUnknown, DevicesBusy) as error:
                raise _failure("copied", error) from error
            finally:
                self._in_progress.discard(kernel_id)


def _failure(what: str, error: Exception) -> CopyFailed:
    if isinstance(error, CopyFailed):
        return error
    if isinstance(error, CudaError) and error.code == NOT_READY:
        return CopyFailed("its GPU did not become idle in time", for_good=False)
    for_good = isinstance(error, CudaError) and error.code == NOT_SUPPORTED
    return CopyFailed(f"its GPU memory could not be {what}: {error}", for_good=for_good)
