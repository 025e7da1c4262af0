"""Cordoned nodes (no new workloads) and drained nodes (workloads leave). Stored, audited,
idempotent.

A drain evicts every lease through its agent, with notice, and saves GPU memory where possible; it
never kills during the notice. A kernel runs where its Jupyter server is, so its workload waits for
this node (`NodeNotReady`) and continues after `uncordon`; workloads that can run elsewhere do.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sql

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.node_conditions import NodeCondition

from ..state.audit import audit
from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord
from ..store import schema as s
from ..store.database import translated_errors
from ..store.store import StoreTransaction

__all__ = ["Cordons"]


@dataclass(frozen=True, slots=True)
class _Cordon:
    draining: bool
    actor: str


class Cordons:
    """Of one unit of work. Starts with the cordons in the store."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self.unit_of_work = unit_of_work
        self._cordons: dict[str, _Cordon] = {}
        self._pools: dict[str, str] = {}
        """The pool of each node at the last check."""
        with translated_errors(), unit_of_work.store.engine.connect() as connection:
            for row in connection.execute(sql.select(s.node_marks).where(s.node_marks.c.cordoned)):
                self._cordons[row.name] = _Cordon(row.draining, row.actor)
                unit_of_work.nodes.flag(row.name, NodeCondition.SCHEDULING_DISABLED, on=True)
                unit_of_work.nodes.rejoin(row.name)

    def is_cordoned(self, node: str) -> bool:
        return node in self._cordons

    def cordon(self, actor: str, node: str) -> m.CordonStatus:
        """Places nothing new on the node. Raises NotFound. A draining node stays draining."""
        self.unit_of_work.nodes.report(node)
        if node not in self._cordons:
            self._put(actor, "cordon", node, _Cordon(draining=False, actor=actor))
        return self.mark(node)

    def drain(self, actor: str, node: str) -> m.CordonStatus:
        """Cordons the node and evicts everything on it; called again, it reports progress. Raises
        NotFound.
        """
        self.unit_of_work.nodes.report(node)
        if node not in self._cordons or not self._cordons[node].draining:
            self._put(actor, "drain", node, _Cordon(draining=True, actor=actor))
        self._evict(node)
        return self.mark(node)

    def uncordon(self, actor: str, node: str) -> m.CordonStatus:
        """Allows workloads on the node again; evicted ones still leave, and may return. A cordoned
        node need not be known: its agent may not be back yet. Raises NotFound.
        """
        if node in self._cordons:
            self._put(actor, "uncordon", node, None)
        else:
            self.unit_of_work.nodes.report(node)
        return self.mark(node)

    def mark(self, node: str) -> m.CordonStatus:
        """The node's current state."""
        mark, here = self._cordons.get(node), self._here(node)
        draining = mark is not None and mark.draining
        return m.CordonStatus(
            node=node,
            cordoned=mark is not None,
            draining=draining,
            leases=len(here),
            message=_words(node, mark is not None, draining, here),
        )

    def tick(self) -> None:
        """Evicts what has just been placed on a draining node; clears the condition of a migrated
        node whose last old lease has ended.
        """
        for node, mark in self._cordons.items():
            if mark.draining:
                self._evict(node)
        pools = {
            node: self.unit_of_work.cluster.nodes[node].pool
            for node in self.unit_of_work.nodes.reports
        }
        suspects = [node for node, pool in pools.items() if self._may_be_old(node, pool)]
        if not suspects:
            return
        old = {
            lease.node
            for record in self.unit_of_work.records.values()
            for lease in record.leases.values()
            if lease.pool != pools.get(lease.node) or self._has_left(lease.node)
        }
        for node in suspects:
            if self.unit_of_work.nodes.flag(
                node, NodeCondition.UNDRAINED_MIGRATED_NODE, on=node in old
            ):
                self._rejoin(node)

    def _may_be_old(self, node: str, pool: str) -> bool:
        """Cheap, so that a tick without changes costs nothing on a large cluster: only if the pool
        has changed since the last check.
        """
        if (
            self._pools.get(node) == pool
            and not self._has_left(node)
            and not self.unit_of_work.nodes.is_flagged(node, NodeCondition.UNDRAINED_MIGRATED_NODE)
        ):
            return False
        self._pools[node] = pool
        return True

    def _has_left(self, node: str) -> bool:
        """Whether the platform gave the node's GPUs back to others."""
        platform = self.unit_of_work.nodes.platform(node)
        return platform is not None and not platform.is_managed

    def _put(self, actor: str, action: str, node: str, mark: _Cordon | None) -> None:
        with self.unit_of_work.transaction() as write:
            self._store(write, node, mark)
            audit(
                write,
                self.unit_of_work.clock(),
                actor,
                action,
                f"node {node}",
                _words(node, mark is not None, False, self._here(node)),
            )
        self._cordons = {name: known for name, known in self._cordons.items() if name != node} | (
            {node: mark} if mark else {}
        )
        self.unit_of_work.nodes.flag(node, NodeCondition.SCHEDULING_DISABLED, on=mark is not None)
        self._rejoin(node)

    def _store(self, write: StoreTransaction, node: str, mark: _Cordon | None) -> None:
        write.do(s.node_marks.delete().where(s.node_marks.c.name == node))
        if mark is not None:
            values = {
                "name": node,
                "cordoned": True,
                "draining": mark.draining,
                "actor": mark.actor,
                "since_ms": self.unit_of_work.clock(),
            }
            write.do(s.node_marks.insert(), values)

    def _rejoin(self, node: str) -> None:
        with self.unit_of_work.transaction():
            self.unit_of_work.nodes.rejoin(node)
        self.unit_of_work.status_changed()
        self.unit_of_work.wake()

    def _here(self, node: str) -> list[tuple[WorkloadRecord, m.LeaseBody]]:
        return [
            (record, lease)
            for record in self.unit_of_work.records.values()
            for lease in record.leases.values()
            if lease.node == node
        ]

    def _evict(self, node: str) -> None:
        actor, notice = self._cordons[node].actor, self.unit_of_work.loaded.admin.notice
        text = f"Node {node} is being drained by {actor or 'an administrator'}."
        for record, lease in self._here(node):
            if lease.wanted == "hold":
                self.unit_of_work.evict_leases(record, [lease], "drain", text, notice)


def _words(
    node: str, cordoned: bool, draining: bool, here: list[tuple[WorkloadRecord, m.LeaseBody]]
) -> str:
    leases = f"{len(here)} lease{'' if len(here) == 1 else 's'}"
    if not cordoned:
        return f"Node {node} accepts workloads."
    if not draining:
        remain = "remains" if len(here) == 1 else "remain"
        return f"Node {node} accepts no new workloads; {leases} {remain} on it."
    if not here:
        return f"Node {node} is drained."
    kernels = sum(lease.kernel_id is not None for _, lease in here)
    tied = (
        f" ({kernels} of kernels, which wait for this node and continue after `uncordon`)"
        if kernels
        else ""
    )
    return f"Node {node} is draining: {leases} left{tied}."
