"""Suspend, resume and settle a kernel on real GPUs: all its processes, or none; and never a restore
without the room.

Three rules hold at every line. Written down before done: the record names a kernel before one of
its processes is locked. Looked at after done: a call's success is believed when the process's state
says the same (`steps`). Undone when half done: what cannot be finished goes back to where it was,
and what cannot even be undone stays noted as doubtful, for `settle`.
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
from .checkpoint_journal import CheckpointJournal, CheckpointRecord, SavedImage
from .checkpoint_steps import GIVEN_UP, CheckpointSteps
from .cuda import NOT_READY, NOT_SUPPORTED, CudaError, ProcessState
from .gpu_map import full_map, moved, placed
from .quiesce import MemoryReading, MemoryView, NeighbourLocks, Quiescer

__all__ = ["Checkpoints", "MemoryView", "MemoryReading", "CheckpointTimes"]

log = logging.getLogger("gpushare.agent")

ROUNDS: Final = 3
"""How often to look for processes that came while the others were locked."""


@dataclass(frozen=True, slots=True)
class CheckpointTimes:
    """How long things may take. `lock_ms`: for a kernel that is to be suspended; `neighbour_ms`:
    for one that only has to hold still; `listed_s`: until the driver lists what was moved;
    `doubt_s`: before a process that does not answer is asked again.
    """

    lock_ms: int = 2_000
    neighbour_ms: int = 300
    listed_s: float = 5.0
    doubt_s: float = 5.0


class Checkpoints:
    """The copies of one node. Its three verbs block, each in a thread of its own; one at a time per
    kernel, one restore at a time per GPU.
    """

    def __init__(
        self,
        driver: CheckpointClient,
        ground: MemoryView,
        record: Path,
        uuids: Sequence[str],
        models: Sequence[str],
        *,
        relocates: Callable[[], bool] = lambda: False,
        limited: Callable[[], bool] = lambda: False,
        times: CheckpointTimes = CheckpointTimes(),
    ) -> None:
        self._driver, self._ground, self._uuids, self._models = (
            driver,
            ground,
            list(uuids),
            list(models),
        )
        self._relocates, self._times = relocates, times
        self._record, self._locks = CheckpointRecord(record), NeighbourLocks()
        self._steps = CheckpointSteps(driver)
        self._still = Quiescer(
            driver,
            ground,
            self._record,
            self._locks,
            limited=limited,
            timeout_ms=times.neighbour_ms,
        )
        self._working: set[str] = set()
        self._doubt_until: dict[str, float] = {}

    def parked(self) -> Mapping[str, CheckpointJournal]:
        """Every kernel that is saved, or in doubt. Returns at once."""
        now = time.monotonic()
        return self._record.all(
            self._working | {name for name, until in list(self._doubt_until.items()) if now < until}
        )

    def close(self) -> None:
        """End the helper; what is saved stays saved."""
        self._driver.close()

    # ---- suspend ---------------------------------------------------------------------------------

    def suspend(
        self, kernel_id: str, places: Sequence[int], admit: CopyAdmission = lambda _: ""
    ) -> int:
        """Save all GPU memory of a kernel; `places`: its GPU per ordinal. Returns MiB. Raises
        CopyFailed.
        """
        with self._alone(kernel_id):
            locked: dict[ProcessId, int] = {}
            _, before = self._record.of(kernel_id)
            try:
                self._lock_all(kernel_id, tuple(places), locked)
                if problem := admit(sum(locked.values())):
                    raise CopyFailed(problem, for_good=False)
                for ident, mib in locked.items():
                    self._steps.checkpoint(ident, mib)
            except Exception as error:  # whatever it was: no kernel stays locked
                self._back_to_running(kernel_id, locked, {one.ident() for one in before})
                raise _failed("saved", error) from error
            if locked:
                self._record.park(kernel_id, set(locked) | {one.ident() for one in before})
            return sum(locked.values())

    def _lock_all(
        self, kernel_id: str, places: tuple[int, ...], locked: dict[ProcessId, int]
    ) -> None:
        """Every process that the driver lists for it; and again, for those that came meanwhile. The
        sizes are those of the last look: what is locked takes nothing more. Who is listed with
        nothing has looked at the GPUs and has no context: CUDA cannot lock it.
        """
        for _ in range(ROUNDS):
            held = {
                ident: of
                for ident, of in self._ground.look().held.get(kernel_id, {}).items()
                if any(of.values())
            }
            fresh = [ident for ident in sorted(held, key=lambda i: i.pid) if ident not in locked]
            where = placed(places, {gpu for of in held.values() for gpu in of})
            if held:
                self._record.begin(
                    kernel_id,
                    where,
                    tuple(SavedImage(i.pid, i.start, dict(of)) for i, of in held.items()),
                )
            locked.update(
                {ident: sum(held[ident].values()) for ident in locked.keys() & held.keys()}
            )
            if not fresh:
                return
            for ident in fresh:
                locked[ident] = sum(held[ident].values())
                self._steps.lock(ident, self._times.lock_ms)
        raise CopyFailed("it keeps starting processes that use the GPU", for_good=False)

    def _back_to_running(
        self, kernel_id: str, idents: Mapping[ProcessId, int], before: set[ProcessId]
    ) -> None:
        """What was locked runs again; what was saved is brought back, if there is still room. What
        cannot be undone stays in doubt.
        """
        try:
            saved = [
                ident for ident in idents if self._steps.state(ident) is ProcessState.CHECKPOINTED
            ]
            if saved:
                self._restore_all(kernel_id, saved, {})
            for ident in idents:
                self._steps.unlock(ident)
            self._record.park(kernel_id, before)
        except Exception as error:  # it stays in doubt, whatever it was
            log.warning(
                "kernel %s: a copy could not be undone, its processes are looked at again: %s",
                kernel_id,
                error,
            )

    # ---- resume ----------------------------------------------------------------------------------

    def resume(self, kernel_id: str, gpus: Sequence[int]) -> int:
        """Bring a kernel's memory back onto these GPUs (per ordinal) and let it run. Returns MiB.
        Raises CopyFailed: it is as before, or `lost`.
        """
        with self._alone(kernel_id):
            where, saved = self._record.of(kernel_id)
            if not saved:
                return 0
            idents = [one.ident() for one in saved]
            self._record.begin(kernel_id)
            try:
                self._restore_all(kernel_id, idents, moved(where, gpus))
                for ident in idents:
                    self._steps.unlock(ident)
            except Exception as error:  # whatever it was: no kernel stays locked
                failure = _failed("brought back", error)
                self._settle(kernel_id)
                raise failure from error
            self._record.park(kernel_id, set())
            return sum(sum(one.held.values()) for one in saved)

    def _restore_all(
        self, kernel_id: str, idents: Sequence[ProcessId], moves: Mapping[int, int]
    ) -> None:
        """Restored and locked, on the GPUs where they belong."""
        _, saved = self._record.of(kernel_id)
        held = {one.ident(): one.held for one in saved}
        full = full_map(len(self._uuids), moves) if moves else {}
        pairs = self._pairs(full)
        need: dict[int, int] = defaultdict(int)
        for ident in idents:
            for gpu, mib in held.get(ident, {}).items():
                need[full.get(gpu, gpu)] += mib
        with self._still.room(kernel_id, need):
            for ident in idents:
                self._steps.restore(ident, pairs, sum(held.get(ident, {}).values()))
            if pairs:
                self._confirm_moved(kernel_id, held, idents, set(need))

    def _pairs(self, full: Mapping[int, int]) -> list[tuple[str, str]]:
        """A map of every GPU of the machine, as the driver wants it; empty: nothing moves."""
        if full and not self._relocates():
            raise CopyFailed(
                "this node cannot move GPU memory to another GPU", for_good=True, lost=True
            )
        if any(self._models[old] != self._models[new] for old, new in full.items()):
            raise CopyFailed(
                "GPU memory can only move to a GPU of the same model", for_good=True, lost=True
            )
        return [(self._uuids[old], self._uuids[new]) for old, new in sorted(full.items())]

    def _confirm_moved(
        self,
        kernel_id: str,
        held: Mapping[ProcessId, Mapping[int, int]],
        idents: Sequence[ProcessId],
        targets: set[int],
    ) -> None:
        """Some drivers accept a map and ignore it: where the memory is now, the process list says.
        What has not moved is saved again.
        """
        deadline = time.monotonic() + self._times.listed_s
        seen: set[int] = set()
        while any(ident.is_alive() for ident in idents):
            listed = self._ground.look().held.get(kernel_id, {})
            seen = {gpu for ident in idents for gpu in listed.get(ident, {})}
            if seen and seen <= targets:
                return
            if seen or time.monotonic() >= deadline:
                break
            time.sleep(0.02)
        else:
            return
        for ident in idents:
            self._steps.checkpoint(ident, sum(held.get(ident, {}).values()))
        if not seen:
            raise CopyFailed("the driver does not list the memory that was moved", for_good=False)
        raise CopyFailed(
            "the driver accepted the move to another GPU and did not do it",
            for_good=True,
            lost=True,
        )

    # ---- settle ----------------------------------------------------------------------------------

    def settle(self, kernel_id: str) -> None:
        """Look at every process of a kernel and set right what was cut off. Raises CopyFailed when
        its state is lost.
        """
        with self._alone(kernel_id):
            self._settle(kernel_id)

    def _settle(self, kernel_id: str) -> None:
        """All saved, or all running: when one is saved, those that are locked are saved too."""
        _, saved = self._record.of(kernel_id)
        sizes = {one.ident(): sum(one.held.values()) for one in saved}
        idents = sorted(sizes.keys() | set(self._ground.members(kernel_id)), key=lambda i: i.pid)
        try:
            states = {
                ident: self._steps.state(ident) if ident in sizes else self._steps.look(ident)
                for ident in idents
            }
            parked = {
                ident for ident, state in states.items() if state is ProcessState.CHECKPOINTED
            }
            for ident in [ident for ident, state in states.items() if state is ProcessState.LOCKED]:
                if parked:
                    self._steps.checkpoint(ident, sizes.get(ident, 0))
                    parked.add(ident)
                else:
                    self._steps.unlock(ident)
        except (CudaError, OutcomeUnknown, CopyFailed) as error:
            self._doubt_until[kernel_id] = time.monotonic() + self._times.doubt_s
            self._record.begin(kernel_id)
            log.warning(
                "kernel %s: the state of its processes is not known, they are asked again later: %s",
                kernel_id,
                error,
            )
            return
        self._doubt_until.pop(kernel_id, None)
        self._record.park(kernel_id, parked)
        if ProcessState.FAILED in states.values():
            raise CopyFailed(GIVEN_UP, for_good=True, lost=True)

    @contextmanager
    def _alone(self, kernel_id: str) -> Iterator[None]:
        """One copy at a time per kernel; what the driver and its helper say reaches the caller in
        the words of Devices.
        """
        with self._locks.kernel(kernel_id):
            self._working.add(kernel_id)
            try:
                yield
            except (CudaError, OutcomeUnknown, DevicesBusy) as error:
                raise _failed("copied", error) from error
            finally:
                self._working.discard(kernel_id)


def _failed(what: str, error: Exception) -> CopyFailed:
    if isinstance(error, CopyFailed):
        return error
    if isinstance(error, CudaError) and error.code == NOT_READY:
        return CopyFailed("its GPU did not come to rest in time", for_good=False)
    for_good = isinstance(error, CudaError) and error.code == NOT_SUPPORTED
    return CopyFailed(f"its GPU memory could not be {what}: {error}", for_good=for_good)
