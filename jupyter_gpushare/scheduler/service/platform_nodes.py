"""Nodes as the platform below (Kubernetes) describes them: labels, conditions, deleted nodes.

The platform's engine calls this module; the scheduler itself reads no platform. Conditions keep new
workloads away; what runs on a node stays, unless the node was deleted and its agent is silent: then
its processes cannot live any more, and its leases end.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.events import NodeLeft
from jupyter_gpushare.core.model.node_conditions import NodeCondition
from jupyter_gpushare.core.model.platform_node import PlatformNode

from ..state.unit_of_work import UnitOfWork
from .reports import AgentReports

__all__ = ["PlatformNodes"]

log = logging.getLogger("gpushare.scheduler")


class PlatformNodes:
    """Of one unit of work."""

    def __init__(self, unit_of_work: UnitOfWork, reports: AgentReports) -> None:
        self._unit_of_work, self._reports = unit_of_work, reports
        self._deleted: set[str] = set()

    def names(self) -> set[str]:
        """The platform's nodes, also those of the store that it has not described yet."""
        return self._unit_of_work.nodes.platform_names()

    def update(self, nodes: Mapping[str, PlatformNode], deleted: Collection[str] = ()) -> None:
        """Puts new descriptions into force. `deleted`: nodes that no longer exist.

        Raises StoreUnavailable; then nothing has changed.
        """
        self._describe(nodes)
        self._deleted -= nodes.keys()
        gone = [name for name in deleted if name in self.names()]
        message = "the node object no longer exists; the agent is still connected"
        self._describe(
            {
                name: PlatformNode(
                    self._labels(name), {NodeCondition.NODE_DELETED: message}, is_managed=False
                )
                for name in gone
            }
        )
        self._deleted |= set(gone)
        self.tick()

    def set_status(self, status: m.KubernetesStatus) -> None:
        """What the engine reports of itself."""
        if self._unit_of_work.kubernetes_status != status:
            self._unit_of_work.kubernetes_status = status
            self._unit_of_work.status_changed()

    def connected(self) -> set[str]:
        """Nodes whose agents are connected."""
        return set(self._unit_of_work.nodes.connected())

    def tick(self) -> None:
        """Ends leases of deleted nodes with silent agents, and forgets nodes that have left."""
        nodes = self._unit_of_work.nodes
        for name in self.names():
            platform = nodes.platform(name)
            if platform is None or platform.is_managed or nodes.is_connected(name):
                continue
            if name in self._deleted:
                self._end_leases(name)
            if name in nodes.reports and not self._has_leases(name):
                self._forget(name)
            if name in self._deleted and name not in nodes.reports:
                nodes.describe(name, None)
                self._deleted.discard(name)

    def undrained(self) -> dict[str, list[str]]:
        """Node that left without a drain -> kernels (or workloads) with leases there."""
        found: dict[str, list[str]] = {}
        for record in self._unit_of_work.records.values():
            for lease in record.leases.values():
                platform = self._unit_of_work.nodes.platform(lease.node)
                if platform is not None and not platform.is_managed:
                    found.setdefault(lease.node, []).append(lease.kernel_id or lease.workload)
        return {node: sorted(kernels) for node, kernels in sorted(found.items())}

    def _labels(self, name: str) -> Mapping[str, str]:
        platform = self._unit_of_work.nodes.platform(name)
        return {} if platform is None else platform.labels

    def _describe(self, described: Mapping[str, PlatformNode]) -> None:
        """One transaction for all of them: two hundred nodes are described at once."""
        nodes = self._unit_of_work.nodes
        before = {name: nodes.platform(name) for name in described}
        changed = [name for name, node in described.items() if before[name] != node]
        known = [name for name in changed if name in nodes.reports]
        pools = {name: nodes.pool_of(nodes.labels(name)) for name in known}
        for name in changed:
            nodes.describe(name, described[name])
        if not known:
            return
        try:
            with self._unit_of_work.transaction() as write:
                for name in known:
                    nodes.rejoin(name)
                    if before[name] is None or self._labels(name) != _labels_of(before[name]):
                        write.node(nodes.report(name), self._labels(name))
        except BaseException:
            for name in changed:
                nodes.describe(name, before[name])
            raise
        for name in known:
            self._log(name, before[name])
            if nodes.pool_of(nodes.labels(name)) != pools[name]:
                self._reports.send_plan(name)
        self._unit_of_work.status_changed()
        self._unit_of_work.wake()

    def _log(self, name: str, before: PlatformNode | None) -> None:
        after = self._unit_of_work.nodes.platform(name)
        old = before.conditions if before is not None else {}
        new = after.conditions if after is not None else {}
        for condition in new.keys() - old.keys():
            log.warning("node %s: %s: %s", name, condition, new[condition], extra={"node": name})
        for condition in old.keys() - new.keys():
            log.info("node %s: no longer %s", name, condition, extra={"node": name})

    def _has_leases(self, name: str) -> bool:
        return any(
            lease.node == name
            for record in self._unit_of_work.records.values()
            for lease in record.leases.values()
        )

    def _end_leases(self, name: str) -> None:
        message = f"Node {name} was deleted."
        for record in list(self._unit_of_work.records.values()):
            here = [lease for lease in record.leases.values() if lease.node == name]
            for lease in here:
                self._reports.lease_released(
                    name, m.LeaseReleased(lease=lease.id, ended=True, message=message)
                )

    def _forget(self, name: str) -> None:
        with self._unit_of_work.transaction() as write:
            self._unit_of_work.cluster.apply(NodeLeft(name))
            write.node_removed(name)
        self._unit_of_work.nodes.forget_report(name)
        log.info("node %s has left", name, extra={"node": name})
        self._unit_of_work.status_changed()
        self._unit_of_work.wake()


def _labels_of(node: PlatformNode | None) -> Mapping[str, str]:
    return {} if node is None else node.labels
