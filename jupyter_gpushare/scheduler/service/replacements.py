"""Make before break: a pending workload takes the place of another one of the same user, which
keeps its GPUs until then (`WorkloadRequest.replaces`).

The core holds such a workload back, so that ordinary cycles do not count its request on top of what
its user has. Before each ordinary cycle it gets a trial: a whole cycle in which the old workload
has ended. When the trial grants the new one, the same cycle is committed with the end of the old
one in one transaction. Otherwise the trial is undone. Victims that the trial would evict for the
new workload are evicted, since it can only be granted after they have left.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.decisions import Decisions, Evict
from jupyter_gpushare.core.model.events import PodEvicted, WorkloadEnded, WorkloadHeld
from jupyter_gpushare.core.model.reason import Reason

from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord, log_fields, request_text
from ..store.store import StoreTransaction

__all__ = ["Replacements", "Trial"]

log = logging.getLogger("gpushare.scheduler")
TRIALS_PER_CYCLE: Final = 4
"""Each trial costs a cycle; more of them would delay the grants of others."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a cycle would do if the old workload had ended."""

    is_granted: bool
    evictions: tuple[Evict, ...]
    """Those that make room for the new workload."""
    reason: Reason | None
    position: int | None


class TrialDiffers(Exception):
    """Raised when a cycle does not grant what its trial granted."""


class Replacements:
    """Trials of pending replacements."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self._unit_of_work = unit_of_work
        self._tried: dict[str, int] = {}
        """Workload -> number of its last trial."""
        self._trials = 0
        self._displacing: set[str] = set()
        """Those that evicted others: they are tried in every cycle, before anything else can take
        the place.
        """

    def due(self) -> list[tuple[WorkloadRecord, WorkloadRecord]]:
        """Pending workloads to try in this cycle, each with the one that it replaces: the least
        recently tried.
        """
        unit_of_work = self._unit_of_work
        if not unit_of_work.replacements:
            self._tried.clear()
            self._displacing.clear()
            return []
        pairs = [
            (unit_of_work.records[new], unit_of_work.records[old])
            for old, new in unit_of_work.replacements.items()
        ]
        pending = {record.id for record, _ in pairs}
        self._displacing &= pending
        self._tried = {id_: number for id_, number in self._tried.items() if id_ in pending}
        pairs.sort(key=self._order)
        now = pairs[: max(TRIALS_PER_CYCLE, len(self._displacing))]
        if any(record.id not in self._tried for record, _ in pairs[len(now) :]):
            unit_of_work.wake()
        return now

    def _order(self, pair: tuple[WorkloadRecord, WorkloadRecord]) -> tuple[bool, int, int, str]:
        record = pair[0]
        return (
            record.id not in self._displacing,
            self._tried.get(record.id, -1),
            record.workload.created,
            record.id,
        )

    def run_trial(self, record: WorkloadRecord, old: WorkloadRecord, now: int) -> Trial:
        """Runs a cycle as if `old` had ended, and undoes it."""
        self._trials += 1
        self._tried[record.id] = self._trials
        cluster = self._unit_of_work.cluster
        mark = cluster.checkpoint()
        try:
            cluster.apply(WorkloadHeld(record.id, held=False))
            cluster.apply(WorkloadEnded(old.id))
            decisions = cycle(cluster, now)
            evictions = tuple(evict for evict in decisions.evictions if evict.by == record.id)
            trial = Trial(_is_granted(record, decisions), evictions, *decisions.peek(record.id))
        finally:
            cluster.rollback(mark)
        if trial.evictions and not trial.is_granted:
            self._displacing.add(record.id)
        return trial

    def end_replaced(
        self, write: StoreTransaction, record: WorkloadRecord, old: WorkloadRecord
    ) -> None:
        """Ends the old workload in the transaction that grants the new one."""
        self._unit_of_work.end_workload(write, old, "released", self.ended_text(record))

    @staticmethod
    def ended_text(record: WorkloadRecord) -> str:
        return f"Replaced by {request_text(record)}."

    @staticmethod
    def check_granted(record: WorkloadRecord, decisions: Decisions) -> None:
        """Raises TrialDiffers, which undoes the transaction."""
        if not _is_granted(record, decisions):
            raise TrialDiffers

    @staticmethod
    @contextmanager
    def logged(record: WorkloadRecord) -> Iterator[None]:
        """A cycle decides the same as its trial. If it ever does not, other workloads must not wait
        for that: the replacement stays pending.
        """
        try:
            yield
        except TrialDiffers:
            log.error("workload %s was granted on trial only", record.id, extra=log_fields(record))

    def release(self, evict: Evict) -> None:
        """The victim's pod releases its place, inside a transaction."""
        if self._unit_of_work.cluster.state(evict.workload, evict.pod) != "releasing":
            self._unit_of_work.cluster.apply(PodEvicted(evict.workload, evict.pod))


def _is_granted(record: WorkloadRecord, decisions: Decisions) -> bool:
    """Gangs are bound as a whole or promised as a whole, so one bound pod is enough."""
    return any(bind.workload == record.id for bind in decisions.binds)
