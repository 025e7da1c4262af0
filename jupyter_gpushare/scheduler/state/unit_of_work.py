"""The ledger of what was acknowledged: cluster, records and store, changed together or not at all,
and announced after the commit.

Knows neither people nor agents: it is the one way in which either of them changes anything.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace as changed_value
from typing import Protocol

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.model.decisions import Decisions, Evict
from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.core.model.events import (
    PodEnded,
    PodEvicted,
    PodPlaced,
    WorkloadEnded,
    WorkloadHeld,
    WorkloadSubmitted,
)
from jupyter_gpushare.core.model.reason import Reason

from ..policy.policy_file import LoadedPolicy
from ..store.store import Store, StoreTransaction, WorkloadRow
from .admission import read_request
from .audit import audit
from .history import EvictionRecord, SchedulerHistory, eviction
from .nodes import NodeRegistry
from .workload_records import WorkloadRecord, about, spot_of, view

__all__ = ["ChangeListener", "UnitOfWork"]

log = logging.getLogger("gpushare.scheduler")


class ChangeListener(Protocol):
    """Where committed changes are told: the hub of the streams."""

    def publish(self, frame: m.SchedulerFrame, project: str | None, user: str | None) -> None: ...


@contextmanager
def _no_collections() -> Iterator[None]:
    """Nothing that is made while everything is read again is garbage: looking for some took half of
    a start with 10 000 that wait.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class UnitOfWork:
    """`on_change` is called when a cycle is due. Begins with everything that the store remembers."""

    def __init__(
        self, store: Store, loaded: LoadedPolicy, hub: ChangeListener, clock: Callable[[], int]
    ) -> None:
        self.store, self.loaded, self.hub, self.clock = store, loaded, hub, clock
        self.cluster = Cluster(loaded.policy)
        self.records: dict[str, WorkloadRecord] = {}
        self.decisions = Decisions((), (), (), {}, {}, ())
        self.policy_problems: list[str] = []
        self.beside_policy: list[str] = []
        """What is wrong with what others than the file add to the policy."""
        self.revision = self.ended = 0
        self.needs_cycle = True
        self.fresh: set[str] = set()
        """Workloads that changed since the last cycle: their reasons are told with the next one."""
        self.on_change: Callable[[], None] = lambda: None
        self.status_of_nobody: Callable[[], m.ServiceStatus]
        self.fleet = NodeRegistry(self.cluster, store, loaded)
        self.pending_events: list[tuple[WorkloadRecord, m.Event]] = []
        """Events of the transaction that is open: told when it is committed."""
        self.history = SchedulerHistory(store, clock())
        self.on_evicted: Callable[[EvictionRecord], None] = lambda _eviction: None
        """Called after the commit of every eviction."""
        self.on_evicting: Callable[[Evict], None] = lambda _evict: None
        """Called inside the transaction of every eviction."""
        self.on_ended: Callable[[WorkloadRecord], None] = lambda _record: None
        """Called after a workload has ended."""
        self.replacements: dict[str, str] = {}
        """Workload with a lease -> the pending workload that replaces it when it is granted. The
        core holds the pending one back: cycles decide about it only on trial, with the other one
        ended (`service/replacements.py`).
        """
        self._pending_evictions: list[EvictionRecord] = []
        with _no_collections():
            self._remember()

    # -- start --

    def _remember(self) -> None:
        """Rebuilds the cluster from the store: what was acknowledged holds, whether its agent is
        back or not.
        """
        known = self.store.load()
        # beyond every number that was told, committed or not: `since` of an earlier life is then
        # known to be of another life
        self.revision = max(known.revision + 1, self.clock())
        for report in known.nodes:
            self.fleet.remember(report, self.clock())
        unreadable = set()
        for row in known.workloads:
            try:
                record = self._adopt(row)
                record.events.extend(known.events.get(record.id, []))
                self._recall_exits(record, known.exits.get(record.id, {}))
            except GpuShareError as error:
                # one that an older version took and this one would not: it stays in the store, and
                # does not keep the others waiting
                log.error(
                    "workload %s cannot be taken over and is left alone: %s",
                    row.request.id,
                    error.message,
                    extra={"workload": row.request.id},
                )
                unreadable.add(row.request.id)
        for lease in known.leases:
            if lease.body.workload not in unreadable:
                self._take_over(lease.body, lease.started_ms)
        for record in self.records.values():
            self._recall_wait(record)
            old = record.request.replaces
            if old in self.records and not record.leases:
                self.replace_later(record, self.records[old])

    def _adopt(self, row: WorkloadRow) -> WorkloadRecord:
        """Takes a remembered workload in by what was decided when it was asked for: the policy may
        have changed since.
        """
        pools = [
            name
            for name in row.request.node_pools
            if name in {pool.name for pool in self.loaded.policy.node_pools}
        ]
        changed = {
            "project": row.project,
            "priority_class": row.priority,
            "preemptible": row.preemptible,
            "node_pools": pools,
        }
        request = replace(row.request, **changed)
        asked = read_request(
            request,
            self.loaded.policy,
            user=row.user,
            allowed=[row.project],
            default=None,
            created=row.created_ms,
        )
        # A pool that was removed meanwhile stays in its list: what named no other one waits with
        # that reason, as it did before the restart.
        workload = changed_value(asked.workload, node_pools=tuple(row.request.node_pools))
        self.cluster.apply(WorkloadSubmitted(workload))
        record = self.records[row.request.id] = WorkloadRecord(
            row.request, workload, row.user, revision=self.revision
        )
        return record

    def _recall_exits(self, record: WorkloadRecord, exits: dict[str, int]) -> None:
        record.exits.update(exits)
        for pod, code in exits.items():
            self.cluster.apply(PodEnded(record.id, pod, "succeeded" if code == 0 else "failed"))

    def _recall_wait(self, record: WorkloadRecord) -> None:
        """What has no lease waits (since now, when it had one: how long is not known any more), or
        rests, if that was its last news.
        """
        if record.leases:
            return
        kinds = [
            event.kind
            for event in record.events
            if event.kind in ("requested", "granted", "released")
        ]
        if (
            kinds[-1:] == ["released"] and record.request.command is None
        ):  # of a command, one of its pods is over
            self.cluster.apply(WorkloadHeld(record.id, held=True))
            record.rests = True
        else:
            record.waits_since = self.clock() if "granted" in kinds else record.workload.created

    def _take_over(self, body: m.LeaseBody, started: int) -> None:
        record = self.records.get(body.workload)
        if record is None or body.node not in self.cluster.nodes:
            whose = {"lease": body.id, "workload": body.workload, "node": body.node}
            log.error(
                "lease %s of workload %s has lost its workload or node and is dropped",
                body.id,
                body.workload,
                extra=whose,
            )
            with self.store.transaction() as write:
                write.lease_ended(body.id, self.clock())
            return
        self.cluster.apply(
            PodPlaced(
                body.workload,
                body.pod,
                spot_of(body),
                started,
                "running" if body.wanted == "hold" else "releasing",
            )
        )
        body = replace(body, rules=self.loaded.rules.lease_rules(record.project, body.pool))
        record.leases[body.pod], record.started[body.id] = body, started

    # -- committing --

    @contextmanager
    def transaction(self, *, always: bool = True) -> Iterator[StoreTransaction]:
        """Cluster and store change together or not at all. `always` False: a block that wrote
        nothing commits nothing.
        """
        mark = self.cluster.checkpoint()
        try:
            with self.store.transaction() as write:
                yield write
                if always or write.wrote:
                    write.revision(self.revision + 1)
        except BaseException:
            self.cluster.rollback(mark)
            self.pending_events.clear()
            self._pending_evictions.clear()
            raise
        self.cluster.forget(mark)
        self.revision += 1
        pending_events, self.pending_events, unsaid, self._pending_evictions = (
            self.pending_events,
            [],
            self._pending_evictions,
            [],
        )
        for record, event in pending_events:
            self._tell(record, event)
        for one in unsaid:
            self.history.evicted(one)
            self.on_evicted(one)

    def event(
        self, write: StoreTransaction, record: WorkloadRecord, kind: m.EventKind, message: str
    ) -> None:
        event = m.Event(time=m.stamp(self.clock()), kind=kind, message=message)
        write.event(record.id, event)
        self.pending_events.append((record, event))

    def evicted(self, write: StoreTransaction, record: WorkloadRecord, evict: Evict) -> None:
        """Part of the transaction that evicts: the one way in which that gets into audit log,
        history and metrics.
        """
        by = self.records.get(evict.by or "")
        whose = f"workload {record.id} of {record.user} in {record.project}"
        what = f"{evict.action}{f' for {evict.by}' if evict.by else ''}: {evict.message}"
        audit(write, self.clock(), "scheduler", "evict", whose, what, **about(record))
        self.on_evicting(evict)
        self._pending_evictions.append(eviction(self.clock(), evict, record, by))
        self.history.note(write, self._pending_evictions[-1])

    def finish(
        self,
        record: WorkloadRecord,
        kind: m.EventKind,
        message: str,
        *,
        reason: m.ReasonBody | None = None,
        by: str = "",
    ) -> None:
        """The workload is over. `reason`: why, when nobody wanted that and it was waiting; `by`:
        who wanted it, to be written down when it is somebody else's.
        """
        with self.transaction() as write:
            self.end_workload(write, record, kind, message, by=by)
        self.workload_ended(record, message, reason=reason)

    def end_workload(
        self,
        write: StoreTransaction,
        record: WorkloadRecord,
        kind: m.EventKind,
        message: str,
        *,
        by: str = "",
    ) -> None:
        """The part of `finish` inside the transaction."""
        self.cluster.apply(WorkloadEnded(record.id))
        if (successor := self.replacements.get(record.id)) is not None:
            self.cluster.apply(WorkloadHeld(successor, held=False))
        self.event(write, record, kind, message)
        write.ended(record.id, self.clock(), message)
        if by and by != record.user:
            whose = f"workload {record.id} of {record.user} in {record.project}"
            audit(write, self.clock(), by, "end", whose, message, **about(record))

    def workload_ended(
        self, record: WorkloadRecord, message: str, *, reason: m.ReasonBody | None = None
    ) -> None:
        """The part of `finish` after the commit: agents and listeners are notified."""
        del self.records[record.id]
        self.replacements.pop(record.id, None)
        if record.request.replaces is not None:
            self.replacements = {
                old: new for old, new in self.replacements.items() if new != record.id
            }
        self.ended += 1
        for lease in record.leases.values():
            self.fleet.send(lease.node, m.LeaseRevoked(revision=self.revision, lease=lease.id))
        gone = m.WorkloadGone(
            revision=self.revision,
            id=record.id,
            kernel_id=record.kernel_id,
            message=message,
            reason=reason,
        )
        self.hub.publish(gone, record.project, record.user)
        self.on_ended(record)
        self.wake()

    def replace_later(self, record: WorkloadRecord, old: WorkloadRecord) -> None:
        """`record` waits to take the place of `old`. Inside a transaction, or while restoring."""
        self.cluster.apply(WorkloadHeld(record.id, held=True))
        self.replacements[old.id] = record.id

    def replaces(self, record: WorkloadRecord) -> WorkloadRecord | None:
        """The workload whose place this pending one waits to take."""
        old = record.request.replaces
        if old is None or self.replacements.get(old) != record.id:
            return None
        return self.records.get(old)

    def pending_reason(self, record: WorkloadRecord) -> tuple[Reason | None, int | None]:
        """Why it is pending and its queue position, as of the last cycle."""
        if self.replaces(record) is not None:
            return record.trial
        return self.decisions.reasons.get(record.id), self.decisions.positions.get(record.id)

    def take_back(
        self,
        record: WorkloadRecord,
        leases: Sequence[m.LeaseBody],
        action: str,
        message: str,
        notice_ms: int,
    ) -> None:
        """Somebody outside of the cycle (`action`: who) wants these leases back: their agents walk
        the ladder, after this notice.
        """
        wanted = [
            replace(lease, wanted="evict", notice_ms=notice_ms, message=message, ends_at=None)
            for lease in leases
        ]
        with self.transaction() as write:
            for lease in wanted:
                if self.cluster.state(record.id, lease.pod) != "releasing":
                    self.cluster.apply(PodEvicted(record.id, lease.pod))
                write.lease(lease, record.started.get(lease.id, self.clock()))
                self.evicted(
                    write,
                    record,
                    Evict(record.id, lease.pod, spot_of(lease), action, None, message),
                )
            self.event(write, record, "evicted", message)
        self.say(record, wanted)
        self.wake()

    def say(self, record: WorkloadRecord, leases: Sequence[m.LeaseBody]) -> None:
        """Tells agents and owner of leases whose new form is committed."""
        for lease in leases:
            record.leases[lease.pod] = lease
            self.fleet.send(lease.node, m.LeaseUpdated(revision=self.revision, lease=lease))
        self.changed(record)

    # -- announcing --

    def changed(self, record: WorkloadRecord) -> None:
        self.revision += 1
        record.revision = self.revision
        self.fresh.add(record.id)
        self.hub.publish(
            m.WorkloadChanged(revision=self.revision, workload=view(record, self.cluster)),
            record.project,
            record.user,
        )

    def _tell(self, record: WorkloadRecord, event: m.Event) -> None:
        record.events.append(event)
        log.info("workload %s: %s: %s", record.id, event.kind, event.message, extra=about(record))
        frame = m.WorkloadEvent(
            revision=self.revision, id=record.id, kernel_id=record.kernel_id, event=event
        )
        self.hub.publish(frame, record.project, record.user)

    def status_changed(self) -> None:
        self.revision += 1
        self.hub.publish(
            m.ServiceChanged(revision=self.revision, status=self.status_of_nobody()), None, None
        )

    def wake(self) -> None:
        self.needs_cycle = True
        self.on_change()

    def holder(self, lease: str) -> WorkloadRecord | None:
        record = self.records.get(lease.rpartition("@")[0])
        return (
            record
            if record is not None and any(body.id == lease for body in record.leases.values())
            else None
        )
