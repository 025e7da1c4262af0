"""Scheduler <-> node agent: one WebSocket, or a pair of queues in one process."""

from __future__ import annotations

from msgspec import field

from .common import Body, Event, Tagged
from .scheduler import LeaseBody, LeaseReport
from .tables import NodeMeasurements

__all__ = [
    "ActivityReport",
    "AgentHello",
    "WorkloadRequeued",
    "DeviceReport",
    "FromAgent",
    "KernelActivity",
    "KernelOwner",
    "KernelsChanged",
    "LeaseChanged",
    "LeaseEvent",
    "LeaseKept",
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
    """One GPU or MIG instance, as measured."""

    index: int
    uuid: str
    model: str
    total_mib: int
    used_mib: int = 0
    healthy: bool = True
    health: str = ""
    """What is wrong with the GPU, in one sentence; "" while it is healthy."""
    foreign_mib: int = 0
    """Memory of other processes: never offered, never touched."""
    foreign_processes: int = 0
    utilization: float | None = None
    """Share of the last second in which something ran on the GPU, 0..1; null: not known."""
    temperature_c: int | None = None
    """Temperature of the GPU in °C; null: not measured."""
    power_w: int | None = None
    """Power draw of the whole GPU in watts; null: not measured."""
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


class KernelOwner(Body, frozen=True, kw_only=True):
    """A kernel that is registered with the agent, and its user's name at the scheduler; "" if the
    agent cannot know it.
    """

    kernel_id: str
    user: str


class AgentHello(Tagged, frozen=True, kw_only=True, tag="agent_hello"):
    """First frame from an agent: its node, its leases, and ended leases that the scheduler has not
    acknowledged.
    """

    version: str
    node: NodeReport
    leases: list[LeaseReport] = field(default_factory=list)
    kernels: list[KernelOwner] = field(default_factory=list)
    """All registered kernels. Later changes are reported by `KernelsChanged`."""


class KernelsChanged(Tagged, frozen=True, kw_only=True, tag="kernels_changed"):
    """Kernels were registered or have ended. A workload names a kernel only if it belongs to its
    user: a workload of another user is refused, or ended when this report arrives later.
    """

    registered: list[KernelOwner] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


class NodeChangedReport(Tagged, frozen=True, kw_only=True, tag="node_changed"):
    """The node changed: health, capability tiers, or pressure."""

    node: NodeReport


class LeaseChanged(Tagged, frozen=True, kw_only=True, tag="lease_changed"):
    """The state of a lease changed on the node."""

    report: LeaseReport


class LeaseReleased(Tagged, frozen=True, kw_only=True, tag="lease_let_go"):
    """The lease has released the GPU. With `ended`, its process has exited and the workload has
    ended; otherwise the workload is pending again. Repeated until the plan no longer contains the
    lease.
    """

    lease: str
    ended: bool
    message: str = ""
    held: bool = False
    """It was released while idle: the workload requests nothing until `WorkloadRequeued`."""
    exit_code: int | None = None
    """Exit code of the pod's command; then `ended` is true, for this pod only."""


class LeaseKept(Tagged, frozen=True, kw_only=True, tag="lease_kept"):
    """The lease was to be released only if nothing is lost (`LeaseBody.lossless`), and is kept: the
    kernel is in use, or its memory cannot be saved. Idempotent.
    """

    lease: str


class KernelActivity(Body, frozen=True, kw_only=True):
    """What one kernel does, for turns. Times are ms before the report; null: it does not."""

    workload: str
    waits_ms: int | None = None
    """For how long its oldest cell has waited for a GPU."""
    idle_ms: int | None = None
    """For how long nothing has run: no cell, and no work that a cell has left on the GPU."""
    turn_ms: int | None = None
    """How long ago its turn began: its share was granted, or its memory restored."""
    copy_ms: int = 0
    """How long its memory takes to be saved or restored."""
    pinned: bool = False
    can_save: bool = True
    host_full: bool = False
    """Its memory cannot be saved because the host memory for saved GPU memory is full."""


class ActivityReport(Tagged, frozen=True, kw_only=True, tag="activity"):
    """Kernels whose activity changed, several changes in one report. Sent only where the node pool
    shares time (`NodeRules.shares_time`).
    """

    rows: list[KernelActivity]


class WorkloadRequeued(Tagged, frozen=True, kw_only=True, tag="ask_again"):
    """A workload that was released while idle is needed again: it is pending like any other.
    Idempotent.
    """

    workload: str


class LogChunk(Tagged, frozen=True, kw_only=True, tag="log"):
    """Output of a command: bytes `start` to `stop` of its output under this lease, as text. Sent
    again until acknowledged.
    """

    lease: str
    start: int
    stop: int
    text: str


class LogAcknowledged(Tagged, frozen=True, kw_only=True, tag="log_taken"):
    """The scheduler has stored the output of this lease's command up to here."""

    lease: str
    stop: int


class LeaseEvent(Tagged, frozen=True, kw_only=True, tag="lease_event"):
    """An event in the life of a lease, for its owner."""

    lease: str
    event: Event


class UsageReport(Tagged, frozen=True, kw_only=True, tag="usage"):
    """GPU-milliseconds per lease since the previous report, and the durations of waits, suspends
    and resumes in that period.

    `life` (of the agent process) and `number` identify the rows: the agent repeats them until
    `UsageAcknowledged` arrives, and they are counted once. Number 0 (an older agent, or no rows) is
    counted and not acknowledged.
    """

    since_ms: int
    rows: list[LeaseUsage]
    life: str = ""
    number: int = 0
    gate_waits_ms: list[int] = field(default_factory=list)
    suspends_ms: list[int] = field(default_factory=list)
    resumes_ms: list[int] = field(default_factory=list)
    rungs: dict[str, int] = field(default_factory=dict)
    """How often memory was reclaimed by each step: `caches`, `notice`, `suspended`, `moved`,
    `killed`.
    """


class LeaseUsage(Body, frozen=True, kw_only=True):
    """Usage of one lease in the period of a report."""

    lease: str
    held_ms: int
    busy_ms: int
    used_mib_ms: int
    borrowed_mib_ms: int
    lent_mib_ms: int = 0
    """Memory of its guarantee that other leases borrowed."""


FromAgent = (
    AgentHello
    | KernelsChanged
    | NodeChangedReport
    | LeaseChanged
    | LeaseReleased
    | LeaseKept
    | ActivityReport
    | LeaseEvent
    | UsageReport
    | WorkloadRequeued
    | LogChunk
)


class Pressure(Body, frozen=True, kw_only=True):
    """Thresholds below which a node is under pressure: free disk and memory (MiB), free process
    ids, and the share of time in which all processes stall for memory (pressure stall information,
    `full avg10`, in per cent).
    """

    disk_mib: int = 1024
    memory_mib: int = 256
    memory_stall_percent: float = 50.0
    pids: int = 200


class NodeRules(Body, frozen=True, kw_only=True):
    """The policy's settings for this node."""

    pool: str = "default"
    workloads_per_gpu: int | None = None
    notice_ms: int = 30_000
    pressure: Pressure = Pressure()
    shares_time: bool = False
    """Whether workloads take turns: the agent reports what kernels do."""


class Plan(Tagged, frozen=True, kw_only=True, tag="plan"):
    """The desired state of the node: sent after the hello and after every change of rules. Leases
    that are not in it are to be released.
    """

    revision: int
    rules: NodeRules
    leases: list[LeaseBody]


class LeaseUpdated(Tagged, frozen=True, kw_only=True, tag="lease_wanted"):
    """A lease is new or has changed (`wanted`, `limit_mib`)."""

    revision: int
    lease: LeaseBody


class LeaseRevoked(Tagged, frozen=True, kw_only=True, tag="lease_unwanted"):
    """A lease has ended: it was released, or its workload ended. The kernel continues without a
    GPU; memory that it still uses is reclaimed (saved to host memory where possible).
    """

    revision: int
    lease: str


class UsageAcknowledged(Tagged, frozen=True, kw_only=True, tag="usage_taken"):
    """The scheduler has stored the rows of this report."""

    life: str
    number: int


ToAgent = Plan | LeaseUpdated | LeaseRevoked | LogAcknowledged | UsageAcknowledged
