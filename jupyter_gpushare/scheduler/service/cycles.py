"""Runs scheduling cycles and commits their decisions; a commit comes before every announcement."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace as changed_value

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.decisions import Bind, Decisions, Evict, Replan
from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.core.model.reason import clause

from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord, lease_body, request_text
from ..store.store import StoreTransaction
from .booking_windows import borrowed_until
from .pending_status import PendingStatus
from .replacements import Replacements
from .wait_estimates import WaitEstimates

__all__ = ["CycleRunner"]

LeaseChange = tuple[WorkloadRecord, m.LeaseBody]


class CycleRunner:
    """Decides for one unit of work."""

    def __init__(
        self, unit_of_work: UnitOfWork, pending_status: PendingStatus, waits: WaitEstimates
    ) -> None:
        self._unit_of_work, self._pending_status, self._waits = unit_of_work, pending_status, waits
        self._replacements = Replacements(unit_of_work)
        unit_of_work.on_evicting = lambda evict: waits.evicting(
            evict, unit_of_work.loaded.admin.notice
        )
        unit_of_work.on_ended = lambda record: waits.wait_ended(record, granted=False)

    def run(self, done: Callable[[str], None] = lambda _action: None) -> Decisions:
        """One cycle: decisions in one transaction, then announced. A commit that fails leaves
        everything as it was.

        Workloads that replace others are tried first (see `Replacements`), each in its own
        transaction. `done` is called with the name of each action of the cycle when it is over.
        """
        now = self._unit_of_work.clock()
        self._unit_of_work.needs_cycle = False
        try:
            earlier = self._run_replacements(now)
            decisions = self._commit(now, done)
        except GpuShareError:
            self._unit_of_work.needs_cycle = True
            raise
        return changed_value(
            decisions,
            binds=(*(bind for one in earlier for bind in one.binds), *decisions.binds),
            evictions=(*(e for one in earlier for e in one.evictions), *decisions.evictions),
        )

    def _commit(
        self,
        now: int,
        done: Callable[[str], None] = lambda _action: None,
        replaced: tuple[WorkloadRecord, WorkloadRecord] | None = None,
    ) -> Decisions:
        """Runs and commits a cycle. `replaced`: the pending workload, and the one that ends for it
        in the same transaction.
        """
        unit_of_work = self._unit_of_work
        with unit_of_work.transaction(always=False) as write:
            if replaced is not None:
                self._replacements.end_replaced(write, *replaced)
            decisions = cycle(unit_of_work.cluster, now, done)
            if replaced is not None:
                self._replacements.check_granted(replaced[0], decisions)
            granted = [self._grant(bind) for bind in decisions.binds]
            write.granted([lease for _, lease in granted], now)
            turned = unit_of_work.promoted & {bind.workload for bind in decisions.binds}
            for id_ in turned:
                write.promoted(id_, None)
            self._record_grants(decisions.binds)
            replanned = self._replan_all(write, decisions.replans)
            evicted = self._evict_all(write, decisions.evictions, replanned)
        changes = [*replanned, *granted, *evicted]
        unit_of_work.promoted -= turned
        unit_of_work.decisions = decisions
        self._announce(changes, now)
        if replaced is not None:
            replaced[0].trial = None, None
            unit_of_work.fresh.discard(replaced[1].id)  # its last frame is the end, below
        self._pending_status.explain(decisions, {record.id for record, _ in changes})
        if replaced is not None:
            unit_of_work.workload_ended(replaced[1], self._replacements.ended_text(replaced[0]))
        return decisions

    def _run_replacements(self, now: int) -> list[Decisions]:
        """The decisions of the trials that granted a replacement."""
        committed = []
        for record, old in self._replacements.due():
            trial = self._replacements.run_trial(record, old, now)
            if trial.is_granted:
                with self._replacements.logged(record):
                    committed.append(self._commit(now, replaced=(record, old)))
            else:
                self._displace(trial.evictions, now)
                self._pending_status.trial_failed(record, trial.reason, trial.position)
        return committed

    def _displace(self, evictions: tuple[Evict, ...], now: int) -> None:
        """Evicts what a trial found to make room for a replacement."""
        if not evictions:
            return
        with self._unit_of_work.transaction() as write:
            for evict in evictions:
                self._replacements.release(evict)
            evicted = self._evict_all(write, evictions)
        self._announce(evicted, now)
        for record, _ in evicted:
            self._unit_of_work.publish_change(record)

    def _announce(self, changes: list[LeaseChange], now: int) -> None:
        """Sends committed leases to their agents."""
        for record, lease in changes:
            record.leases[lease.pod] = lease
            if lease.id not in record.started:
                self._waits.wait_ended(record, granted=True, pool=lease.pool)
                record.started[lease.id], record.pending_since, record.next_time_check = (
                    now,
                    None,
                    0,
                )
            self._unit_of_work.nodes.send(
                lease.node, m.LeaseUpdated(revision=self._unit_of_work.revision, lease=lease)
            )

    def _record_grants(self, binds: tuple[Bind, ...]) -> None:
        """One event per workload and node, however many pods start there."""
        places = Counter((bind.workload, bind.spot.node, bind.spot.pool) for bind in binds)
        for (workload, node, pool), pods in places.items():
            record = self._unit_of_work.records[workload]
            text = f"Granted {request_text(record, pods)} on {node}."
            text += borrowed_until(self._unit_of_work, record, pool)
            self._unit_of_work.event(record, "granted", text)

    def _grant(self, bind: Bind) -> LeaseChange:
        unit_of_work = self._unit_of_work
        record = unit_of_work.records[bind.workload]
        node = unit_of_work.nodes.report(bind.spot.node)
        pool = bind.spot.pool
        lease = lease_body(
            record,
            bind.pod,
            id_=f"{record.id}@{uuid.uuid4().hex[:8]}",
            node=node,
            pool=pool,
            devices=bind.spot.devices,
            rules=unit_of_work.loaded.rules.lease_rules(record.project, pool),
        )
        return record, lease

    def _replan_all(
        self, write: StoreTransaction, replans: tuple[Replan, ...]
    ) -> list[LeaseChange]:
        """Plans leases on other GPUs of their nodes; agents decide where their processes run."""
        changes = []
        for replan in replans:
            record = self._unit_of_work.records[replan.workload]
            lease = record.leases.get(replan.pod)
            if lease is not None:
                lease = replace(lease, planned_gpus=list(replan.spot.devices))
                write.lease(lease)
                changes.append((record, lease))
        return changes

    def _evict_all(
        self,
        write: StoreTransaction,
        evictions: tuple[Evict, ...],
        replanned: Sequence[LeaseChange] = (),
    ) -> list[LeaseChange]:
        newest = {lease.id: lease for _, lease in replanned}
        changes = []
        for evict in evictions:
            record = self._unit_of_work.records[evict.workload]
            lease = record.leases.get(evict.pod)
            if lease is not None:
                lease = newest.get(lease.id, lease)
                changes.append((record, self._evict(write, record, lease, evict)))
        return changes

    def _evict(
        self, write: StoreTransaction, record: WorkloadRecord, lease: m.LeaseBody, evict: Evict
    ) -> m.LeaseBody:
        unit_of_work = self._unit_of_work
        if evict.action == "rotate":
            wanted = replace(lease, wanted="yield", message=evict.message)
            write.lease(wanted)
            unit_of_work.turn_ended(record, evict)
            self._waits.turns.promised(evict)
            return wanted
        wanted = replace(
            lease,
            wanted="evict",
            message=evict.message,
            notice_ms=unit_of_work.loaded.admin.notice,
            lossless=evict.action == "max_turn",
        )
        write.lease(wanted)
        unit_of_work.event(record, "evicted", f"Evicted: {clause(evict.message)}.")
        unit_of_work.evicted(write, record, evict)
        return wanted
