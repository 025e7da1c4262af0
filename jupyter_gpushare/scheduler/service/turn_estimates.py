"""Expected waits where shares take turns: from how long turns lasted lately.

A cell waits until those ahead of it and itself had a share, of which so many become free per turn:
`(ahead + 1) * turn / shares`, then for the hand-over and the copy of its own memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.decisions import Evict
from jupyter_gpushare.core.model.reason import Reason

from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord

__all__ = ["TurnEstimates"]

NEW_PART: Final = 0.1
"""How much one turn changes the mean."""
ENOUGH: Final = 5
"""Turns without which nothing is said."""


@dataclass(slots=True)
class _Mean:
    """A mean in which older values count less."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += max(NEW_PART, 1 / self.count) * (value - self.value)


class TurnEstimates:
    """Of one unit of work. Times are ms."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self._unit_of_work = unit_of_work
        self._turns: dict[tuple[str, str], _Mean] = {}
        """By project and pool: from the grant until the share is idle."""
        self._handovers: dict[str, _Mean] = {}
        """By pool: from the decision until the grant."""
        self._decided: dict[str, int] = {}
        """When a share was promised to a waiting workload."""
        self._seen: dict[str, int] = {}
        """Lease and pool of turns that are counted: the grant of each workload's last one."""

    def promised(self, evict: Evict) -> None:
        """A workload gives way for another one."""
        if evict.by is not None:
            self._decided[evict.by] = self._unit_of_work.clock()

    def granted(self, record: WorkloadRecord, pool: str) -> None:
        """A workload got a share."""
        decided = self._decided.pop(record.id, None)
        if decided is not None:
            took = self._unit_of_work.clock() - decided
            self._handovers.setdefault(pool, _Mean()).add(took)

    def idle(self, record: WorkloadRecord, since: int) -> None:
        """It is idle since then. Only the first time after each grant counts."""
        for lease in record.leases.values():
            began = record.started.get(lease.id)
            if began is not None and began < since and self._seen.get(record.id) != began:
                self._seen[record.id] = began
                key = record.project, lease.pool
                self._turns.setdefault(key, _Mean()).add(since - began)

    def ended(self, record: WorkloadRecord) -> None:
        """The workload is over."""
        self._seen.pop(record.id, None)
        self._decided.pop(record.id, None)

    def expected(self, record: WorkloadRecord, reason: Reason, pool: str) -> m.ExpectedWait | None:
        """The remaining wait; None: too few turns are known."""
        turns = self._turns.get((record.project, pool))
        shares = self._shares(record.project, pool)
        if turns is None or turns.count < ENOUGH or not shares:
            return None
        work = self._unit_of_work.cluster.workloads[record.id]
        handover = self._handovers.get(pool, _Mean()).value
        ahead = max(0, round(reason.numbers.get("position", 1)) - 1)
        wait = (ahead + 1) * turns.value / shares + handover + work.activity.copy_ms
        seconds = max(1, round(wait / 1000))
        return m.ExpectedWait(
            basis="history",
            message=f"Expected wait: about {seconds} s (based on the last turns).",
            at=m.stamp(self._unit_of_work.clock()),
            seconds_median=float(seconds),
            based_on=min(turns.count, round(1 / NEW_PART)),
        )

    def _shares(self, project: str, pool: str) -> int:
        records = self._unit_of_work.records.values()
        return sum(
            lease.pool == pool
            for record in records
            if record.project == project
            for lease in record.leases.values()
        )
