"""The nodes: their agents' reports, connections, and messages to them. Turns reports into the
core's nodes.

A node stays known when its agent is silent: its leases are in force until the grace period ends and
the policy says otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import structs

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cluster.time_sharing import TIME_SHARING
from jupyter_gpushare.core.model.amounts import UNLIMITED
from jupyter_gpushare.core.model.errors import NotFound
from jupyter_gpushare.core.model.events import NodeJoined
from jupyter_gpushare.core.model.model import DEFAULT_POOL, KERNELS_ONLY, Node, NodePool
from jupyter_gpushare.core.model.node_conditions import NODE_WARNINGS, NodeCondition
from jupyter_gpushare.core.model.platform_node import PlatformNode

from ..policy.policy_file import LoadedPolicy
from ..store.store import Store

__all__ = ["NodeRegistry", "Send"]

log = logging.getLogger("gpushare.scheduler")
COMES_BACK_MS: Final = 20_000
"""A disconnected agent reconnects within this time if it can: its longest pause between two
attempts is 15 s.
"""
Send = Callable[[m.ToAgent], None]


class NodeRegistry:
    """Mutable; owned by the service."""

    def __init__(self, cluster: Cluster, store: Store, loaded: LoadedPolicy) -> None:
        self.cluster, self.store, self.loaded = cluster, store, loaded
        self.version = 0
        """Grows with every change of a node that the cluster sees."""
        self._reports: dict[str, m.NodeReport] = {}
        self._sends: dict[str, Send] = {}
        self._silent_since: dict[str, int | None] = {}
        """Since when (ms) the agent is disconnected; None: the node has already been marked not
        ready.
        """
        self._problems: dict[str, NodeCondition] = {}
        """State of the connection to its agent, if it is broken."""
        self._flags: dict[str, set[NodeCondition]] = {}
        """Conditions that the service sets, not the agent: cordoned, migrated."""
        self._platform: dict[str, PlatformNode] = {}
        """What the platform says; nodes outside of it are missing."""

    @property
    def reports(self) -> Mapping[str, m.NodeReport]:
        return self._reports

    def report(self, node: str) -> m.NodeReport:
        """Raises NotFound."""
        if node not in self._reports:
            raise NotFound(f"unknown node {node!r}", field="node")
        return self._reports[node]

    def platform(self, name: str) -> PlatformNode | None:
        """The node as the platform describes it; None: it is not one of the platform's."""
        return self._platform.get(name)

    def platform_names(self) -> set[str]:
        """The platform's nodes, with or without an agent."""
        return set(self._platform)

    def is_connected(self, name: str) -> bool:
        """Whether the node's agent is connected."""
        return name in self._sends

    def connected(self) -> list[str]:
        return sorted(self._sends)

    # -- joining and leaving

    def remember(self, report: m.NodeReport, now: int, labels: Mapping[str, str] | None) -> None:
        """Adds a node from the store: silent until its agent reconnects. `labels`: the platform's
        when it was stored; None: not one of its nodes.
        """
        if labels is not None:
            self._platform[report.name] = PlatformNode(labels)
        self._join(report)
        self._silent_since[report.name] = now

    def join(self, report: m.NodeReport) -> None:
        """Adds or updates the node from its agent's report."""
        self._problems.pop(report.name, None)
        self._join(report)

    def refresh(self, report: m.NodeReport) -> bool:
        """Takes new measurements over. False: more than measurements changed, so the node has to
        `join`.
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
        self._apply(report)
        self._reports[report.name] = report

    def _apply(self, report: m.NodeReport) -> None:
        self.cluster.apply(NodeJoined(self._node(report)))
        self.version += 1

    def connect(self, name: str, send: Send) -> None:
        """This connection speaks for the node from now on; an older one is dropped."""
        self._sends[name] = send
        self._silent_since.pop(name, None)

    def disconnect(self, name: str, send: Send, now: int) -> bool:
        """False: another connection already speaks for the node."""
        if self._sends.get(name) != send:
            return False
        del self._sends[name]
        self._silent_since[name] = now
        return True

    def overdue(self, now: int, grace: int) -> list[str]:
        """Nodes whose agents have been silent for longer than the grace period, each once. If the
        clock was set back, the grace period starts again.
        """
        late = []
        for name, since in self._silent_since.items():
            if since is not None and since > now:
                self._silent_since[name] = now
            elif since is not None and now - since >= grace:
                late.append(name)
        return late

    def cut_off(self, now: int) -> list[str]:
        """Nodes whose connection has been broken for longer than an agent needs to reconnect, each
        once.
        """
        broken = {
            name
            for name, since in self._silent_since.items()
            if since is not None and now - since >= COMES_BACK_MS
        }
        return sorted(broken - self._problems.keys())

    def not_ready(self, name: str, why: NodeCondition) -> None:
        """Marks the node not ready because of its connection, until the agent reconnects."""
        self._problems[name] = why
        if why is NodeCondition.AGENT_SILENT:
            self._silent_since[name] = None
        self.rejoin(name)

    def flag(self, name: str, why: NodeCondition, *, on: bool) -> bool:
        """Sets or clears a condition; `rejoin` puts it into force. Returns whether it changed."""
        flags = self._flags.setdefault(name, set())
        if (why in flags) == on:
            return False
        flags.symmetric_difference_update({why})
        return True

    def is_flagged(self, name: str, why: NodeCondition) -> bool:
        return why in self._flags.get(name, ())

    def describe(self, name: str, node: PlatformNode | None) -> None:
        """The platform's description; `rejoin` puts it into force. None: forgets it."""
        if node is None:
            self._platform.pop(name, None)
        else:
            self._platform[name] = node

    def forget_report(self, name: str) -> None:
        """Forgets a node that has left the cluster and has no agent any more. It stays cordoned."""
        self._reports.pop(name, None)
        self._silent_since.pop(name, None)
        self._problems.pop(name, None)
        self.version += 1

    def rejoin(self, name: str) -> None:
        """Applies the node's current state to the cluster. Ignores unknown nodes."""
        if name in self._reports:
            self._apply(self._reports[name])

    def use_policy(self, loaded: LoadedPolicy) -> None:
        """Recomputes the pools of all nodes."""
        self.loaded = loaded
        for report in self._reports.values():
            self._apply(report)

    # -- properties

    def _node(self, report: m.NodeReport) -> Node:
        # Planned GPUs are indexes: an unhealthy GPU must not renumber the others, so it keeps its
        # index and is excluded.
        ill = frozenset(device.index for device in report.devices if not device.healthy)
        reasons = list(report.reasons)
        reasons += (
            [NodeCondition.GPU_UNHEALTHY]
            if report.devices and len(ill) == len(report.devices)
            else []
        )
        reasons += [self._problems[report.name]] if report.name in self._problems else []
        reasons += sorted(self._flags.get(report.name, ()))
        platform = self._platform.get(report.name)
        reasons += sorted(platform.conditions) if platform is not None else []
        labels = self._labels(report)
        return Node(
            name=report.name,
            pool=self.pool_of(labels).name,
            gpus=len(report.devices),
            gpu_memory=min((device.total_mib for device in report.devices), default=0),
            cpu=report.cpu_milli or UNLIMITED,
            memory=report.memory_mib or UNLIMITED,
            # kernels are processes: Kubernetes' limit of 110 pods per node does not apply
            max_pods=1_000_000,
            taints=(KERNELS_ONLY,) if platform is not None and platform.is_managed else (),
            ready=NODE_WARNINGS.issuperset(reasons),
            reasons=tuple(dict.fromkeys(map(str, reasons))),
            labels=labels,
            unhealthy=ill,
        )

    def labels(self, name: str) -> dict[str, str]:
        """The labels of a node. Raises NotFound."""
        return self._labels(self.report(name))

    def _labels(self, report: m.NodeReport) -> dict[str, str]:
        platform = self._platform.get(report.name)
        given = platform.labels if platform is not None else {}
        return {"kubernetes.io/hostname": report.name, **report.labels, **given}

    def pool_of(self, labels: Mapping[str, str], loaded: LoadedPolicy | None = None) -> NodePool:
        """The first pool whose label the node has; else `default`. `loaded`: another policy than
        the one in force.
        """
        pools = (loaded or self.loaded).policy.node_pools
        for pool in pools:
            if pool.label is not None and labels.get(pool.label[0]) == pool.label[1]:
                return pool
        return next((pool for pool in pools if pool.name == DEFAULT_POOL), NodePool(DEFAULT_POOL))

    def rules(self, name: str) -> m.NodeRules:
        """The policy's rules for this node."""
        pool = self.pool_of(self.labels(name))
        pressure = self.loaded.pressure.get(pool.name, m.Pressure())
        return m.NodeRules(
            pool=pool.name,
            workloads_per_gpu=pool.workloads_per_gpu,
            notice_ms=self.loaded.admin.notice,
            pressure=pressure,
            shares_time=TIME_SHARING.first(pool) is not None,
        )

    def uuid_of(self, node: str, device: int) -> str | None:
        """UUID of a planned device."""
        report = self._reports.get(node)
        return next((d.uuid for d in report.devices if d.index == device), None) if report else None

    # -- sending

    def send(self, node: str, message: m.ToAgent) -> None:
        """Sends to the node's agent; a disconnected one gets the plan when it reconnects."""
        if (send := self._sends.get(node)) is not None:
            try:
                send(message)
            except Exception:
                log.exception(
                    "node %s: sending failed; its agent will get the plan when it reconnects",
                    node,
                    extra={"node": node},
                )


def _unmeasured(report: m.NodeReport) -> m.NodeReport:
    devices = [
        structs.replace(
            one,
            used_mib=0,
            foreign_mib=0,
            foreign_processes=0,
            utilization=None,
            temperature_c=None,
            power_w=None,
        )
        for one in report.devices
    ]
    return structs.replace(
        report,
        devices=devices,
        host_cpu=None,
        host_memory_mib=None,
        host_used_mib=None,
        saved_mib=0,
        saved_left_mib=None,
    )
