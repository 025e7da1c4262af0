"""Rebuilds the scheduler's state from the store at its start."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace as changed_value

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.core.model.events import (
    PendingSince,
    PodEnded,
    PodPlaced,
    WorkloadHeld,
    WorkloadPromoted,
    WorkloadSubmitted,
)

from ..store.store import WorkloadRow
from .admission import read_request, with_time_limit
from .unit_of_work import UnitOfWork
from .workload_records import WorkloadRecord, spot_of

__all__ = ["restore"]

log = logging.getLogger("gpushare.scheduler")


def restore(state: UnitOfWork) -> None:
    """Fills an empty unit of work with everything in the store."""
    with _no_collections():
        _load(state)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Restoring makes no garbage, and looking for it took half of the start time with 10 000
    pending workloads.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _load(state: UnitOfWork) -> None:
    """Rebuilds the cluster from the store. Leases are in force whether their agent is connected
    or not.
    """
    known = state.store.load()
    # Beyond every published revision, committed or not: `since` of an earlier process is then
    # recognizably one of another process.
    state.revision = max(known.revision + 1, state.clock())
    for node in known.nodes:
        state.nodes.remember(node.report, state.clock(), node.platform_labels)
    state.cluster.advance(state.clock())
    state.bookings.restore(known.bookings, known.given_back)
    state.bookings.use_policy(state.loaded.bookings)
    unreadable = set()
    for row in known.workloads:
        try:
            record = _restore_workload(state, row)
            record.events.extend(known.events.get(record.id, []))
            _restore_exits(state, record, known.exits.get(record.id, {}))
        except GpuShareError as error:
            # An older version accepted it and this one would not: it stays in the store and
            # must not keep the others from starting.
            log.error(
                "workload %s cannot be restored and is ignored: %s",
                row.request.id,
                error.message,
                extra={"workload": row.request.id},
            )
            unreadable.add(row.request.id)
    for lease in known.leases:
        if lease.body.workload not in unreadable:
            _restore_lease(state, lease.body, lease.started_ms)
    state.people.restore(known.people, known.limits)
    for record in state.records.values():
        _restore_wait(state, record)
        old = record.request.replaces
        if old in state.records and not record.leases:
            state.replace_later(record, state.records[old])


def _restore_workload(state: UnitOfWork, row: WorkloadRow) -> WorkloadRecord:
    """Restores a workload with the decisions made at its submission: the policy may have
    changed since.
    """
    pools = [
        name
        for name in row.request.node_pools
        if name in {pool.name for pool in state.loaded.policy.node_pools}
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
        state.loaded.policy,
        user=row.user,
        allowed=[row.project],
        default=None,
        created=row.created_ms,
    )
    # A pool that was removed meanwhile stays in its list: a workload that names no other pool
    # is pending with that reason, as before the restart.
    workload = changed_value(asked.workload, node_pools=tuple(row.request.node_pools))
    workload = with_time_limit(workload, state.loaded)
    state.cluster.apply(WorkloadSubmitted(workload))
    record = WorkloadRecord(row.request, workload, row.user, revision=state.revision)
    state.insert(record)
    if row.is_promoted:
        state.cluster.apply(WorkloadPromoted(record.id, promoted=True))
        state.promoted.add(record.id)
    return record


def _restore_exits(state: UnitOfWork, record: WorkloadRecord, exits: dict[str, int]) -> None:
    record.exits.update(exits)
    for pod, code in exits.items():
        state.cluster.apply(PodEnded(record.id, pod, "succeeded" if code == 0 else "failed"))


def _restore_wait(state: UnitOfWork, record: WorkloadRecord) -> None:
    """A workload without a lease is pending, or held if its last event was the idle rule's
    release. Since when is unknown if it had a lease: now.
    """
    if record.leases:
        return
    kinds = [
        event.kind for event in record.events if event.kind in ("requested", "granted", "released")
    ]
    if (
        kinds[-1:] == ["released"] and record.request.command is None
    ):  # a command's "released" means that one of its pods has ended
        state.cluster.apply(WorkloadHeld(record.id, held=True))
        record.is_held = True
    else:
        record.pending_since = state.clock() if "granted" in kinds else record.workload.created
        state.cluster.apply(PendingSince(record.id, record.pending_since))


def _restore_lease(state: UnitOfWork, body: m.LeaseBody, started: int) -> None:
    record = state.records.get(body.workload)
    if record is None or body.node not in state.cluster.nodes:
        whose = {"lease": body.id, "workload": body.workload, "node": body.node}
        log.error(
            "lease %s of workload %s refers to an unknown workload or node and is dropped",
            body.id,
            body.workload,
            extra=whose,
        )
        with state.store.transaction() as write:
            write.lease_ended(body.id, state.clock())
        return
    state.cluster.apply(
        PodPlaced(
            body.workload,
            body.pod,
            spot_of(body),
            started,
            "running" if body.wanted == "hold" else "releasing",
        )
    )
    body = replace(body, rules=state.loaded.rules.lease_rules(record.project, body.pool))
    record.leases[body.pod], record.started[body.id] = body, started
