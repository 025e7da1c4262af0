"""The scheduler's state: cluster, records and store change together or not at all, and changes are
announced after the commit.

Every change by users, agents and cycles goes through this module; it knows none of them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.model.booked_window import BookedWindow
from jupyter_gpushare.core.model.decisions import Decisions, Evict
from jupyter_gpushare.core.model.events import PodEvicted, WorkloadEnded, WorkloadHeld
from jupyter_gpushare.core.model.reason import Reason

from ..policy.policy_file import LoadedPolicy
from ..store.store import Store, StoreTransaction
from .audit import audit
from .bookings import BookingRegistry
from .history import EvictionRecord, SchedulerHistory, eviction
from .kernel_owners import KernelOwners
from .node_history import MeasurementHistory
from .nodes import NodeRegistry
from .people import PeopleStore
from .workload_records import WorkloadRecord, log_fields, spot_of, view

__all__ = ["ChangeListener", "UnitOfWork"]

log = logging.getLogger("gpushare.scheduler")
REVISIONS: Final = 1000
"""Revisions that one write of the revision reserves: a restart begins beyond them."""


class ChangeListener(Protocol):
    """Receives committed changes: the event stream."""

    def publish(self, frame: m.SchedulerFrame, project: str | None, user: str | None) -> None: ...


class UnitOfWork:
    """`on_change` is called when a cycle is due. Starts empty: see `restore`."""

    def __init__(
        self, store: Store, loaded: LoadedPolicy, listener: ChangeListener, clock: Callable[[], int]
    ) -> None:
        self.store, self.loaded, self.listener, self.clock = store, loaded, listener, clock
        self.cluster = Cluster(loaded.policy)
        self.records: dict[str, WorkloadRecord] = {}
        self.decisions = Decisions((), (), (), {}, {}, ())
        self.policy_problems: list[str] = []
        self.other_policy_problems: list[str] = []
        """Problems of policy sources other than the file."""
        self.kubernetes_status: m.KubernetesStatus | None = None
        """None: this scheduler does not read Kubernetes."""
        self.revision = self.ended = self._reserved = 0
        self.needs_cycle = True
        self.fresh: set[str] = set()
        """Workloads that changed since the last cycle: the next one publishes their reasons."""
        self.on_change: Callable[[], None] = lambda: None
        self.public_status: Callable[[], m.ServiceStatus]
        self.nodes = NodeRegistry(self.cluster, store, loaded)
        self.pending_events: list[tuple[WorkloadRecord, m.Event]] = []
        """Events of the open transaction: published after its commit."""
        self.people = PeopleStore(self.cluster)
        self.promoted: set[str] = set()
        """Pending workloads that have the next turn in their project."""
        self.history = SchedulerHistory(store, clock())
        self.node_history = MeasurementHistory()
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
        self.bookings = BookingRegistry()
        self.booked_windows: tuple[BookedWindow, ...] = ()
        """The times of bookings that the cluster knows."""
        self.kernel_owners = KernelOwners()
        self._by_user: dict[str, dict[str, WorkloadRecord]] = {}
        """Current workloads by id."""
        self._pods: Counter[str] = Counter()
        """Pods of current workloads by user."""
        self._pending_evictions: list[EvictionRecord] = []
        self._turns: list[EvictionRecord] = []

    # -- committing --

    @contextmanager
    def transaction(self, *, always: bool = True) -> Iterator[StoreTransaction]:
        """Cluster and store change together or not at all. `always` False: a block without writes
        commits nothing.
        """
        mark, reserved = self.cluster.checkpoint(), self._reserved
        self.cluster.advance(self.clock())
        try:
            with self.store.transaction() as write:
                yield write
                people = self.people.write(write)
                write.events([(record.id, event) for record, event in self.pending_events])
                if (write.wrote and self.revision >= reserved) or (always and not write.wrote):
                    reserved = self.revision + REVISIONS
                    write.revision(reserved)
        except BaseException:
            self.cluster.rollback(mark)
            self.pending_events.clear()
            self._pending_evictions.clear()
            self._turns.clear()
            raise
        self.cluster.forget(mark)
        self.people.written(people)
        self._reserved = reserved
        self.revision += 1
        pending_events, self.pending_events, evictions, self._pending_evictions = (
            self.pending_events,
            [],
            self._pending_evictions,
            [],
        )
        for record, event in pending_events:
            self._publish_event(record, event)
        turns, self._turns = self._turns, []
        for one in evictions:
            self.history.evicted(one)
        for one in (*evictions, *turns):
            self.on_evicted(one)

    def event(self, record: WorkloadRecord, kind: m.EventKind, message: str) -> None:
        """Part of a transaction: an event that is stored and published with it."""
        event = m.Event(time=m.stamp(self.clock()), kind=kind, message=message)
        self.pending_events.append((record, event))

    def evicted(self, write: StoreTransaction, record: WorkloadRecord, evict: Evict) -> None:
        """Part of a transaction that evicts: writes audit log and history, notifies metrics."""
        by = self.records.get(evict.by or "")
        whose = f"workload {record.id} of {record.user} in {record.project}"
        what = f"{evict.action}{f' for {evict.by}' if evict.by else ''}: {evict.message}"
        audit(write, self.clock(), "scheduler", "evict", whose, what, **log_fields(record))
        self.on_evicting(evict)
        self._pending_evictions.append(eviction(self.clock(), evict, record, by))
        self.history.note(write, self._pending_evictions[-1])

    def turn_ended(self, record: WorkloadRecord, evict: Evict) -> None:
        """Part of a transaction in which an idle workload gives way. Nothing is lost, and it
        happens all the time: only metrics are notified.
        """
        by = self.records.get(evict.by or "")
        self._turns.append(eviction(self.clock(), evict, record, by))

    def finish(
        self,
        record: WorkloadRecord,
        kind: m.EventKind,
        message: str,
        *,
        reason: m.ReasonBody | None = None,
        by: str = "",
    ) -> None:
        """Ends the workload. `reason`: why, if the service ended it while it was pending; `by`: the
        user who ended it, audited if it is another user's.
        """
        with self.transaction() as write:
            self.end_workload(write, record, kind, message, by=by)
        self.workload_ended(record, message, reason=reason)

    def records_of(self, user: str) -> Iterable[WorkloadRecord]:
        """Current workloads of a user."""
        return self._by_user.get(user, {}).values()

    def pods_of(self, user: str) -> int:
        """Pods of the current workloads of a user, in every state."""
        return self._pods[user]

    def insert(self, record: WorkloadRecord) -> None:
        """A workload that was submitted or restored."""
        self.records[record.id] = record
        self._by_user.setdefault(record.user, {})[record.id] = record
        self._pods[record.user] += len(record.workload.pods)
        self.kernel_owners.claim(record.request, record.user)

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
        self.event(record, kind, message)
        write.ended(record.id, self.clock(), message)
        if by and by != record.user:
            whose = f"workload {record.id} of {record.user} in {record.project}"
            audit(write, self.clock(), by, "end", whose, message, **log_fields(record))

    def workload_ended(
        self, record: WorkloadRecord, message: str, *, reason: m.ReasonBody | None = None
    ) -> None:
        """The part of `finish` after the commit: agents and listeners are notified."""
        del self.records[record.id]
        del self._by_user[record.user][record.id]
        self._pods[record.user] -= len(record.workload.pods)
        if not self._by_user[record.user]:
            del self._by_user[record.user], self._pods[record.user]
        self.kernel_owners.release(record.kernel_id, record.id)
        self.replacements.pop(record.id, None)
        self.promoted.discard(record.id)
        if record.request.replaces is not None:
            self.replacements = {
                old: new for old, new in self.replacements.items() if new != record.id
            }
        self.ended += 1
        self.store.workload_ended(record.user)
        for lease in record.leases.values():
            self.nodes.send(lease.node, m.LeaseRevoked(revision=self.revision, lease=lease.id))
        gone = m.WorkloadGone(
            revision=self.revision,
            id=record.id,
            kernel_id=record.kernel_id,
            message=message,
            reason=reason,
        )
        self.listener.publish(gone, record.project, record.user)
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

    def evict_leases(
        self,
        record: WorkloadRecord,
        leases: Sequence[m.LeaseBody],
        action: str,
        message: str,
        notice_ms: int,
    ) -> None:
        """Evicts leases outside the cycle (`action`: why): agents reclaim their GPUs step by step
        after this notice.
        """
        wanted = [
            replace(lease, wanted="evict", notice_ms=notice_ms, message=message, ends_at=None)
            for lease in leases
        ]
        with self.transaction() as write:
            for lease in wanted:
                if self.cluster.state(record.id, lease.pod) != "releasing":
                    self.cluster.apply(PodEvicted(record.id, lease.pod))
                write.lease(lease)
                self.evicted(
                    write,
                    record,
                    Evict(record.id, lease.pod, spot_of(lease), action, None, message),
                )
            self.event(record, "evicted", message)
        self.publish_leases(record, wanted)
        self.wake()

    def publish_leases(self, record: WorkloadRecord, leases: Sequence[m.LeaseBody]) -> None:
        """Sends committed versions of leases to their agents and publishes them."""
        for lease in leases:
            record.leases[lease.pod] = lease
            self.nodes.send(lease.node, m.LeaseUpdated(revision=self.revision, lease=lease))
        self.publish_change(record)

    # -- announcing --

    def publish_change(self, record: WorkloadRecord) -> None:
        self.revision += 1
        record.revision = self.revision
        self.fresh.add(record.id)
        self.listener.publish(
            m.WorkloadChanged(revision=self.revision, workload=view(record, self.cluster)),
            record.project,
            record.user,
        )

    def _publish_event(self, record: WorkloadRecord, event: m.Event) -> None:
        record.events.append(event)
        log.info(
            "workload %s: %s: %s", record.id, event.kind, event.message, extra=log_fields(record)
        )
        frame = m.WorkloadEvent(
            revision=self.revision, id=record.id, kernel_id=record.kernel_id, event=event
        )
        self.listener.publish(frame, record.project, record.user)

    def status_changed(self) -> None:
        self.revision += 1
        self.listener.publish(
            m.ServiceChanged(revision=self.revision, status=self.public_status()), None, None
        )

    def wake(self) -> None:
        self.needs_cycle = True
        self.on_change()

    def record_of_lease(self, lease: str) -> WorkloadRecord | None:
        record = self.records.get(lease.rpartition("@")[0])
        return None if record is None or record.find_lease(lease) is None else record
