"""Scheduler <-> node agent: one WebSocket, or an in-process pair of queues."""

from __future__ import annotations

from msgspec import field

from .nouns import Body, Event, Tagged
from .scheduler import LeaseBody, LeaseReport

__all__ = [
    "AgentHello",
    "DeviceReport",
    "FromAgent",
    "LeaseChanged",
    "LeaseEvent",
    "LeaseLetGo",
    "LeaseUnwanted",
    "LeaseUsage",
    "LeaseWanted",
    "NodeChangedReport",
    "NodeReport",
    "NodeRules",
    "Plan",
    "ToAgent",
    "UsageReport",
]


class DeviceReport(Body, frozen=True, kw_only=True):
    index: int
    uuid: str
    model: str
    total_mib: int
    used_mib: int = 0
    healthy: bool = True


class NodeReport(Body, frozen=True, kw_only=True):
    """The machine as its agent found it."""

    name: str
    simulated: bool
    devices: list[DeviceReport]
    tiers: list[str] = field(default_factory=list)
    tier_problems: dict[str, str] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_mib: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)


class AgentHello(Tagged, frozen=True, kw_only=True, tag="agent_hello"):
    """First frame from an agent: the node, every lease that it holds, and the ends that were not acknowledged yet."""

    version: str
    node: NodeReport
    leases: list[LeaseReport] = field(default_factory=list)


class NodeChangedReport(Tagged, frozen=True, kw_only=True, tag="node_changed"):
    node: NodeReport


class LeaseChanged(Tagged, frozen=True, kw_only=True, tag="lease_changed"):
    report: LeaseReport


class LeaseLetGo(Tagged, frozen=True, kw_only=True, tag="lease_let_go"):
    """The lease holds nothing on the GPU any more. `ended`: its process is gone for good and so is the workload; otherwise the
    holder lives and its workload is pending again. Repeated until the plan no longer contains the lease."""

    lease: str
    ended: bool
    message: str = ""


class LeaseEvent(Tagged, frozen=True, kw_only=True, tag="lease_event"):
    lease: str
    event: Event


class UsageReport(Tagged, frozen=True, kw_only=True, tag="usage"):
    """GPU-milliseconds per lease since the last report, folded into ledgers; and how long what happened since then took."""

    since_ms: int
    rows: list[LeaseUsage]
    gate_waits_ms: list[int] = field(default_factory=list)
    suspends_ms: list[int] = field(default_factory=list)
    resumes_ms: list[int] = field(default_factory=list)


class LeaseUsage(Body, frozen=True, kw_only=True):
    lease: str
    held_ms: int
    busy_ms: int
    used_mib_ms: int
    borrowed_mib_ms: int


FromAgent = AgentHello | NodeChangedReport | LeaseChanged | LeaseLetGo | LeaseEvent | UsageReport


class NodeRules(Body, frozen=True, kw_only=True):
    """What the policy says about this node."""

    pool: str = "default"
    workloads_per_gpu: int | None = None
    notice_ms: int = 30_000


class Plan(Tagged, frozen=True, kw_only=True, tag="plan"):
    """The whole wanted state of this node: answer to the hello, and sent again after every change of rules. A lease that the
    agent holds and the plan lacks is to be let go."""

    revision: int
    rules: NodeRules
    leases: list[LeaseBody]


class LeaseWanted(Tagged, frozen=True, kw_only=True, tag="lease_wanted"):
    """One lease is new or changed (`wanted`, `limit_mib`)."""

    revision: int
    lease: LeaseBody


class LeaseUnwanted(Tagged, frozen=True, kw_only=True, tag="lease_unwanted"):
    """One lease is over: its holder gave it back, or its workload ended. The kernel lives on without a GPU; what it still holds is
    taken (suspended into host memory when it can be)."""

    revision: int
    lease: str


ToAgent = Plan | LeaseWanted | LeaseUnwanted
