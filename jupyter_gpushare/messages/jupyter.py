"""The Jupyter server extension's REST bodies and stream (contract of the names under
`gpushare/api/`).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from .common import (
    Body,
    Event,
    ExpectedWait,
    Json,
    KernelRequest,
    KernelState,
    MemoryMib,
    ReasonBody,
    Share,
    Stamp,
    Tagged,
)

__all__ = [
    "Action",
    "Alternative",
    "DeviceMemory",
    "DeviceRow",
    "Displaced",
    "Kernel",
    "NodeRow",
    "Nodes",
    "PoolRow",
    "Pools",
    "Preset",
    "ProjectRow",
    "Projects",
    "QueueRow",
    "Queues",
    "SchedulerStatus",
    "Status",
    "StreamEvent",
    "StreamFrame",
    "StreamKernel",
    "StreamKernelGone",
    "StreamState",
    "StreamStatus",
    "WhatIfAnswer",
]


class Kernel(Body, frozen=True, kw_only=True):
    """One kernel as its owner sees it."""

    kernel_id: str
    name: str = ""
    """The notebook's path, or "" when it is not known."""
    state: KernelState = "detached"
    project: str | None = None
    request: Share = Share()
    limit: Share = Share()
    node: str | None = None
    planned_gpu: str | None = None
    gpu_uuid: str | None = None
    simulated: bool = False
    pinned: bool = False
    busy: bool = False
    cell_waits: str | None = None
    """Why the cell that was started waits at the gate; null while none waits."""
    memory_mib: MemoryMib = MemoryMib()
    gpu_memory_total_mib: int = 0
    """Size of the GPU it runs on; 0 while it has none."""
    saved_mib: int = 0
    """What of its GPU memory is kept in host memory now; it is not on the GPU."""
    reason: ReasonBody | None = None
    queue_position: int | None = None
    expected_wait: ExpectedWait | None = None
    """How much longer it will wait for its share; null: it does not wait, or nobody has looked yet.
    """
    notice_deadline: Stamp | None = None
    """When memory will be taken unless it is given back before; null when nothing is announced."""
    generation: int = 0
    workload: str | None = None
    utilization: float | None = None
    """Share of the last second in which its processes ran on the GPU, 0..1; null: not known."""
    preset: str | None = None
    """Name of the preset that it was asked with; null: none."""
    events: list[Event] = field(default_factory=list)


class SchedulerStatus(Body, frozen=True, kw_only=True):
    reachable: bool
    version: str | None = None
    problem: str | None = None
    """What is wrong in one sentence: not reachable, or a policy file that was refused."""


class Preset(Body, frozen=True, kw_only=True):
    """A share that the administrator has given a name."""

    name: str
    description: str = ""
    request: KernelRequest


class Status(Body, frozen=True, kw_only=True):
    mode: Literal["embedded", "remote"]
    simulated: bool
    scheduler: SchedulerStatus
    agent: SchedulerStatus
    node: str | None = None
    user: str = ""
    projects: list[str] = field(default_factory=list)
    """Projects that this person may use, the default first."""
    node_pools: list[str] = field(default_factory=list)
    priority_classes: list[str] = field(default_factory=list)
    presets: list[Preset] = field(default_factory=list)
    """Shares that are offered by name, in the administrator's order."""
    tiers: list[str] = field(default_factory=list)
    """Capability tiers of this server's node."""
    tier_problems: dict[str, str] = field(default_factory=dict)
    """For each tier that it lacks: why."""
    kernels: list[Kernel] = field(default_factory=list)


class QueueRow(Body, frozen=True, kw_only=True):
    """One queue in one pool for one resource (GPUs, cores or MiB); null = unlimited."""

    queue: str
    kind: Literal["project", "department"]
    pool: str
    resource: Literal["gpu", "cpu", "memory"]
    quota: float | None
    limit: float | None
    fair_share: float
    allocated: float
    requested: float


class Queues(Body, frozen=True, kw_only=True):
    queues: list[QueueRow]


class DeviceMemory(Body, frozen=True, kw_only=True):
    """MiB of one GPU. `used` is what those hold that run here with a lease; `borrowed` is what of
    that is above their guarantees.
    """

    total: int
    guaranteed: int
    used: int
    borrowed: int = 0


class DeviceRow(Body, frozen=True, kw_only=True):
    uuid: str
    model: str
    memory_mib: DeviceMemory
    kernels: list[str] = field(default_factory=list)
    """Kernel ids (workload names for pods that are no kernels) that run here now."""
    planned: list[str] = field(default_factory=list)
    """The same for the scheduler's plan."""
    healthy: bool = True
    health: str = ""
    """What is wrong with it, in one sentence."""
    foreign_mib: int = 0
    """Memory that processes outside of this product hold: counted, never touched."""
    foreign_processes: int = 0
    utilization: float | None = None
    """Share of the last second in which something ran on it, 0..1; null: not known."""
    mig: bool = False


class NodeRow(Body, frozen=True, kw_only=True):
    name: str
    pool: str
    status: str
    reasons: list[str] = field(default_factory=list)
    simulated: bool = False
    gpus: int = 0
    gpu_allocated: float = 0.0
    tiers: list[str] = field(default_factory=list)
    tier_problems: dict[str, str] = field(default_factory=dict)
    """For each capability tier that the node lacks: why."""
    driver: str = ""
    """Version of its NVIDIA driver; "" where there is none."""
    cordoned: bool = False
    """An administrator keeps new workloads away."""
    devices: list[DeviceRow] = field(default_factory=list)


class Nodes(Body, frozen=True, kw_only=True):
    nodes: list[NodeRow]


class PoolRow(Body, frozen=True, kw_only=True):
    name: str
    nodes: int
    gpus: int
    gpu_allocated: float
    placement_gpu: str
    placement_cpu: str
    workloads_per_gpu: int | None
    pending: int
    status: str = "Ready"
    """Ready while one of its nodes is, else Not ready (also without any node)."""
    nodes_ready: int = 0
    reasons: list[str] = field(default_factory=list)
    """Why nodes of it are not ready: each reason with the number of nodes it holds for."""


class Pools(Body, frozen=True, kw_only=True):
    pools: list[PoolRow]


class ProjectRow(Body, frozen=True, kw_only=True):
    """One project in one pool. `member`: whether the caller may submit to it."""

    name: str
    department: str | None
    pool: str
    member: bool
    gpu_quota: float | None
    gpu_limit: float | None
    gpu_fair_share: float
    gpu_allocated: float
    gpu_requested: float


class Projects(Body, frozen=True, kw_only=True):
    projects: list[ProjectRow]


class Displaced(Body, frozen=True, kw_only=True):
    workload: str
    project: str
    action: str
    message: str


class Alternative(Body, frozen=True, kw_only=True):
    """Something else that would start now: a changed request and a sentence."""

    request: Json
    message: str


class WhatIfAnswer(Body, frozen=True, kw_only=True):
    starts_now: bool
    node: str | None = None
    planned_gpu: str | None = None
    displaces: list[Displaced] = field(default_factory=list)
    reason: ReasonBody | None = None
    expected_wait: ExpectedWait | None = None
    """How long it would wait; null: it would start now."""
    alternatives: list[Alternative] = field(default_factory=list)


class Action(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST kernels/<id>/actions/<action>`: empty."""


class StreamState(Tagged, frozen=True, kw_only=True, tag="state"):
    """First frame of the Jupyter stream: everything."""

    revision: int
    status: Status


class StreamKernel(Tagged, frozen=True, kw_only=True, tag="kernel"):
    """One kernel changed; the whole of it."""

    revision: int
    kernel_id: str
    kernel: Kernel


class StreamKernelGone(Tagged, frozen=True, kw_only=True, tag="kernel_gone"):
    revision: int
    kernel_id: str


class StreamEvent(Tagged, frozen=True, kw_only=True, tag="event"):
    """One event of one kernel, as it happens (it is also in the kernel's `events`)."""

    revision: int
    kernel_id: str
    event: Event


class StreamStatus(Tagged, frozen=True, kw_only=True, tag="status"):
    """Something beside the kernels changed (scheduler gone or back, projects): the status without
    its kernels.
    """

    revision: int
    status: Status


StreamFrame = StreamState | StreamKernel | StreamKernelGone | StreamEvent | StreamStatus
