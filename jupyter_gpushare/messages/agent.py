"""Scheduler <-> node agent: one WebSocket, or an in-process pair of queues."""

from __future__ import annotations

from msgspec import field

from .common import Body, Event, Tagged
from .scheduler import LeaseBody, LeaseReport
from .tables import NodeMeasurements

__all__ = [
    "AgentHello",
    "WorkloadRequeued",
    "DeviceReport",
    "FromAgent",
    "LeaseChanged",
    "LeaseEvent",
    "LeaseReleased",
    "LeaseRevoked",
    "LeaseUsage",
    "LeaseUpdated",
    "LogChunk",
    "LogAcknowledged",
    "NodeChangedReport",
    "NodeReport",
    "NodeRules",
    "Plan",
    "Pressure",
    "ToAgent",
    "UsageReport",
    "UsageAcknowledged",
]


class DeviceReport(Body, frozen=True, kw_only=True):
    index: int
    uuid: str
    model: str
    total_mib: int
    used_mib: int = 0
    healthy: bool = True
    health: str = ""
    """What is wrong with it, in one sentence; "" while it is healthy."""
    foreign_mib: int = 0
    """Memory of processes that are no kernel's of ours: never offered, never touched."""
    foreign_processes: int = 0
    utilization: float | None = None
    """Share of the last second in which something ran on it, 0..1; null: not known."""
    mig: bool = False
    """A MIG instance: a device of its own."""


class NodeReport(NodeMeasurements, frozen=True, kw_only=True):
    """The machine as its agent measures it."""

    name: str
    simulated: bool
    devices: list[DeviceReport]
    cpu_milli: int = 0
    memory_mib: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)


class AgentHello(Tagged, frozen=True, kw_only=True, tag="agent_hello"):
    """First frame from an agent: the node, every lease that it holds, and the ends that were not
    acknowledged yet.
    """

    version: str
    node: NodeReport
    leases: list[LeaseReport] = field(default_factory=list)


class NodeChangedReport(Tagged, frozen=True, kw_only=True, tag="node_changed"):
    node: NodeReport


class LeaseChanged(Tagged, frozen=True, kw_only=True, tag="lease_changed"):
    report: LeaseReport


class LeaseReleased(Tagged, frozen=True, kw_only=True, tag="lease_let_go"):
    """The lease holds nothing on the GPU any more. `ended`: its process is gone for good and so is
    the workload; otherwise the holder lives and its workload is pending again. Repeated until the
    plan no longer contains the lease.
    """

    lease: str
    ended: bool
    message: str = ""
    held: bool = False
    """The idle rule gave it back: its workload asks for nothing until `WorkloadRequeued`."""
    exit_code: int | None = None
    """The lease's command is over (then `ended` is true): this pod's alone, not its workload's."""


class WorkloadRequeued(Tagged, frozen=True, kw_only=True, tag="ask_again"):
    """The owner of a workload that the idle rule had given back is at work again: it waits for a
    GPU like any other. Idempotent.
    """

    workload: str


class LogChunk(Tagged, frozen=True, kw_only=True, tag="log"):
    """What a command printed: bytes `start` to `stop` of what it has printed under this lease, as
    text. Sent again until taken.
    """

    lease: str
    start: int
    stop: int
    text: str


class LogAcknowledged(Tagged, frozen=True, kw_only=True, tag="log_taken"):
    """Up to here what the command of this lease printed is kept; the agent goes on from there."""

    lease: str
    stop: int


class LeaseEvent(Tagged, frozen=True, kw_only=True, tag="lease_event"):
    lease: str
    event: Event


class UsageReport(Tagged, frozen=True, kw_only=True, tag="usage"):
    """GPU-milliseconds per lease since the report before, folded into ledgers; and how long what
    happened since then took.

    `life` and `number` name the rows: the agent says them again under the same name until
    `UsageAcknowledged` answers, and they are counted once. Number 0 (an older agent, or no rows) is
    counted as it comes, and not answered.
    """

    since_ms: int
    rows: list[LeaseUsage]
    life: str = ""
    number: int = 0
    gate_waits_ms: list[int] = field(default_factory=list)
    suspends_ms: list[int] = field(default_factory=list)
    resumes_ms: list[int] = field(default_factory=list)
    rungs: dict[str, int] = field(default_factory=dict)
    """How often each rung of the ladder was used to take memory back for somebody else: `caches`,
    `notice`, `suspended`, `moved`, `killed`.
    """


class LeaseUsage(Body, frozen=True, kw_only=True):
    lease: str
    held_ms: int
    busy_ms: int
    used_mib_ms: int
    borrowed_mib_ms: int
    lent_mib_ms: int = 0
    """What others had borrowed of its own guarantee."""


FromAgent = (
    AgentHello
    | NodeChangedReport
    | LeaseChanged
    | LeaseReleased
    | LeaseEvent
    | UsageReport
    | WorkloadRequeued
    | LogChunk
)


class Pressure(Body, frozen=True, kw_only=True):
    """When a node counts as under pressure: less than this left of disk and memory (MiB) and
    process ids, or processes that stall for memory for more than this share of the time (the
    kernel's pressure stall information, `full avg10`, in per cent).
    """

    disk_mib: int = 1024
    memory_mib: int = 256
    memory_stall_percent: float = 50.0
    pids: int = 200


class NodeRules(Body, frozen=True, kw_only=True):
    """What the policy says about this node."""

    pool: str = "default"
    workloads_per_gpu: int | None = None
    notice_ms: int = 30_000
    pressure: Pressure = Pressure()


class Plan(Tagged, frozen=True, kw_only=True, tag="plan"):
    """The whole wanted state of this node: answer to the hello, and sent again after every change
    of rules. A lease that the agent holds and the plan lacks is to be let go.
    """

    revision: int
    rules: NodeRules
    leases: list[LeaseBody]


class LeaseUpdated(Tagged, frozen=True, kw_only=True, tag="lease_wanted"):
    """One lease is new or changed (`wanted`, `limit_mib`)."""

    revision: int
    lease: LeaseBody


class LeaseRevoked(Tagged, frozen=True, kw_only=True, tag="lease_unwanted"):
    """One lease is over: its holder gave it back, or its workload ended. The kernel lives on
    without a GPU; what it still holds is taken (suspended into host memory when it can be).
    """

    revision: int
    lease: str


class UsageAcknowledged(Tagged, frozen=True, kw_only=True, tag="usage_taken"):
    """The rows of this report are on the scheduler's disk."""

    life: str
    number: int


ToAgent = Plan | LeaseUpdated | LeaseRevoked | LogAcknowledged | UsageAcknowledged
