"""What agents report for turns: which kernels work, are idle or wait, and shares that are kept
because their kernels are in use after all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.activity import UNREPORTED, Activity
from jupyter_gpushare.core.model.events import ActivityReported, EvictionCancelled

from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord

__all__ = ["TurnReports"]


class TurnReports:
    """Of one unit of work."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self._unit_of_work = unit_of_work
        self.on_idle: Callable[[WorkloadRecord, int], None] = lambda _record, _since: None
        """Called with the time (ms) since when a workload is idle."""

    def reported(self, node: str, rows: Iterable[m.KernelActivity]) -> None:
        """Kernels of this node; rows about others are ignored. Wakes the scheduler if a workload is
        pending that may take a turn.
        """
        unit_of_work = self._unit_of_work
        now, waits = unit_of_work.clock(), False
        for row in rows:
            record = unit_of_work.records.get(row.workload)
            if record is None or not self._is_here(record, node):
                continue
            before = unit_of_work.cluster.workloads[record.id].activity
            activity = _activity(row, before, now)
            unit_of_work.cluster.apply(ActivityReported(record.id, activity))
            waits = waits or activity.waits_since is not None
            if activity.idle_since is not None:
                self.on_idle(record, activity.idle_since)
        if waits or unit_of_work.decisions.reasons:
            unit_of_work.wake()

    def _is_here(self, record: WorkloadRecord, node: str) -> bool:
        if any(lease.node == node for lease in record.leases.values()):
            return True
        return self._unit_of_work.kernel_owners.is_on(record.kernel_id, node)

    def kept(self, node: str, lease_id: str) -> None:
        """The workload keeps its share, and another one may give way. Repeated reports change
        nothing.
        """
        unit_of_work = self._unit_of_work
        record = unit_of_work.record_of_lease(lease_id)
        if record is None:
            return
        lease = record.lease(lease_id)
        if lease.node != node or not (lease.wanted == "yield" or lease.lossless):
            return
        kept = replace(lease, wanted="hold", message="", lossless=False)
        with unit_of_work.transaction() as write:
            unit_of_work.cluster.apply(ActivityReported(record.id, UNREPORTED))
            if unit_of_work.cluster.state(record.id, lease.pod) == "releasing":
                unit_of_work.cluster.apply(EvictionCancelled(record.id, lease.pod))
            write.lease(kept)
        unit_of_work.publish_leases(record, [kept])
        unit_of_work.wake()


def _activity(row: m.KernelActivity, before: Activity, now: int) -> Activity:
    """Times on this clock. A cell that waits keeps the arrival that was reported first."""
    waits_since = None if row.waits_ms is None else now - row.waits_ms
    if waits_since is not None and before.waits_since is not None:
        waits_since = min(waits_since, before.waits_since)
    return Activity(
        waits_since=waits_since,
        idle_since=None if row.idle_ms is None else now - row.idle_ms,
        turn_since=None if row.turn_ms is None else now - row.turn_ms,
        copy_ms=row.copy_ms,
        is_pinned=row.pinned,
        can_save=row.can_save,
        is_host_full=row.host_full,
    )
