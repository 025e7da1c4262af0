"""The nodes: what their agents reported, who is connected, and what is sent to them. Turns reports
into the core's nodes.

A node stays known when its agent goes silent: its leases are in force until the grace time is over
and the policy says otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import structs

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.model.amounts import UNLIMITED
from jupyter_gpushare.core.model.errors import NotFound
from jupyter_gpushare.core.model.events import NodeJoined
from jupyter_gpushare.core.model.model import DEFAULT_POOL, Node, NodePool
from jupyter_gpushare.core.model.node_conditions import NodeCondition

from ..policy.policy_file import LoadedPolicy
from ..store.store import Store

__all__ = ["NodeRegistry", "Send"]

log = logging.getLogger("gpushare.scheduler")
COMES_BACK_MS: Final = 20_000
"""An agent whose link broke comes back within this time if it can: its longest pause between two
attempts is 15 s.
"""
Send = Callable[[m.ToAgent], None]


class NodeRegistry:
    """Mutable; owned by the service."""

    def __init__(self, cluster: Cluster, store: Store, loaded: LoadedPolicy) -> None:
        self.cluster, self.store, self.loaded = cluster, store, loaded
        self._reports: dict[str, m.NodeReport] = {}
        self._sends: dict[str, Send] = {}
        self._silent_since: dict[str, int | None] = {}
        """Since when (ms) the agent is gone; None: said already that the node is not ready."""
        self._problems: dict[str, NodeCondition] = {}
        """What is wrong with the link to its agent."""
        self._flags: dict[str, set[NodeCondition]] = {}
        """What is known here and not by the agents: cordoned, migrated."""

    @property
    def reports(self) -> Mapping[str, m.NodeReport]:
        return self._reports

    def report(self, node: str) -> m.NodeReport:
        """Raises NotFound."""
        if node not in self._reports:
            raise NotFound(f"there is no node {node!r}", field="node")
        return self._reports[node]

    def connected(self) -> list[str]:
        return sorted(self._sends)

    # -- coming and going
    # -----------------------------------------------------------------------------------------------------------

    def remember(self, report: m.NodeReport, now: int) -> None:
        """A node that was there before the service started: silent until its agent is back."""
        self._join(report)
        self._silent_since[report.name] = now

    def join(self, report: m.NodeReport) -> None:
        """The node is there, with what its agent found."""
        self._problems.pop(report.name, None)
        self._join(report)

    def refresh(self, report: m.NodeReport) -> bool:
        """Only what was measured has changed: it is remembered, and nothing depends on it. False:
        more has; it has to `join`.
        """
        known = self._reports.get(report.name)
        if (
            known is None
            or _unmeasured(known) != _unmeasured(report)
            or report.name in self._problems
        ):
            return False
        self._reports[report.name] = report
        return True

    def _join(self, report: m.NodeReport) -> None:
        self.cluster.apply(NodeJoined(self._node(report)))
        self._reports[report.name] = report

    def connect(self, name: str, send: Send) -> None:
        """This link speaks for the node from now on; an older one is forgotten."""
        self._sends[name] = send
        self._silent_since.pop(name, None)

    def disconnect(self, name: str, send: Send, now: int) -> bool:
        """False: another link speaks for the node already."""
        if self._sends.get(name) != send:
            return False
        del self._sends[name]
        self._silent_since[name] = now
        return True

    def overdue(self, now: int, grace: int) -> list[str]:
        """Nodes whose agents have been silent for longer than the grace time; each is named once. A
        clock that was set back starts the grace anew rather than never ending it.
        """
        late = []
        for name, since in self._silent_since.items():
            if since is not None and since > now:
                self._silent_since[name] = now
            elif since is not None and now - since >= grace:
                late.append(name)
        return late

    def cut_off(self, now: int) -> list[str]:
        """Nodes whose link has been broken for longer than an agent takes to come back; each is
        named once.
        """
        broken = {
            name
            for name, since in self._silent_since.items()
            if since is not None and now - since >= COMES_BACK_MS
        }
        return sorted(broken - self._problems.keys())

    def not_ready(self, name: str, why: NodeCondition) -> None:
        """The link is at fault, until the agent is back."""
        self._problems[name] = why
        if why is NodeCondition.AGENT_SILENT:
            self._silent_since[name] = None
        self.rejoin(name)

    def flag(self, name: str, why: NodeCondition, *, on: bool) -> bool:
        """Notes a reason, or takes it back; `rejoin` brings it into force. Gives whether that is
        news.
        """
        flags = self._flags.setdefault(name, set())
        if (why in flags) == on:
            return False
        flags.symmetric_difference_update({why})
        return True

    def is_flagged(self, name: str, why: NodeCondition) -> bool:
        return why in self._flags.get(name, ())

    def rejoin(self, name: str) -> None:
        """What is known of the node counts from now on. A node that is not there (yet) is passed
        over.
        """
        if name in self._reports:
            self.cluster.apply(NodeJoined(self._node(self._reports[name])))

    def use_policy(self, loaded: LoadedPolicy) -> None:
        """Nodes may belong to other pools now."""
        self.loaded = loaded
        for report in self._reports.values():
            self.cluster.apply(NodeJoined(self._node(report)))

    # -- what a node is
    # ---------------------------------------------------------------------------------------------------------------

    def _node(self, report: m.NodeReport) -> Node:
        # Planned GPUs are indexes: one that fell ill must not renumber the others, so it stays in
        # its place and is left out.
        ill = frozenset(device.index for device in report.devices if not device.healthy)
        reasons = list(report.reasons)
        reasons += (
            [NodeCondition.GPU_UNHEALTHY]
            if report.devices and len(ill) == len(report.devices)
            else []
        )
        reasons += [self._problems[report.name]] if report.name in self._problems else []
        reasons += sorted(self._flags.get(report.name, ()))
        labels = {"kubernetes.io/hostname": report.name, **report.labels}
        return Node(
            name=report.name,
            pool=self.pool_of(labels).name,
            gpus=len(report.devices),
            gpu_memory=min((device.total_mib for device in report.devices), default=0),
            cpu=report.cpu_milli or UNLIMITED,
            memory=report.memory_mib or UNLIMITED,
            # kernels are processes: Kubernetes' 110 pods per node is no bound of ours
            max_pods=1_000_000,
            ready=not reasons,
            reasons=tuple(dict.fromkeys(map(str, reasons))),
            labels=labels,
            unhealthy=ill,
        )

    def labels(self, name: str) -> dict[str, str]:
        """Of a node. Raises NotFound."""
        return {"kubernetes.io/hostname": name, **self.report(name).labels}

    def pool_of(self, labels: Mapping[str, str], loaded: LoadedPolicy | None = None) -> NodePool:
        """The first pool whose label the node carries; else `default`. `loaded`: by another policy
        than that in force.
        """
        pools = (loaded or self.loaded).policy.node_pools
        for pool in pools:
            if pool.label is not None and labels.get(pool.label[0]) == pool.label[1]:
                return pool
        return next((pool for pool in pools if pool.name == DEFAULT_POOL), NodePool(DEFAULT_POOL))

    def rules(self, name: str) -> m.NodeRules:
        """What the policy says about this node."""
        pool = self.pool_of(self.labels(name))
        pressure = self.loaded.pressure.get(pool.name, m.Pressure())
        return m.NodeRules(
            pool=pool.name,
            workloads_per_gpu=pool.workloads_per_gpu,
            notice_ms=self.loaded.admin.notice,
            pressure=pressure,
        )

    def uuid_of(self, node: str, device: int) -> str | None:
        """UUID of a planned device."""
        report = self._reports.get(node)
        return next((d.uuid for d in report.devices if d.index == device), None) if report else None

    # -- talking
    # ----------------------------------------------------------------------------------------------------------------------

    def send(self, node: str, message: m.ToAgent) -> None:
        """Tells the node's agent; one that is away learns it from the plan when it is back."""
        if (send := self._sends.get(node)) is not None:
            try:
                send(message)
            except Exception:
                log.exception(
                    "node %s could not be told; it will get the plan when it is back",
                    node,
                    extra={"node": node},
                )


def _unmeasured(report: m.NodeReport) -> m.NodeReport:
    devices = [
        structs.replace(one, used_mib=0, foreign_mib=0, foreign_processes=0, utilization=None)
        for one in report.devices
    ]
    return structs.replace(report, devices=devices)
