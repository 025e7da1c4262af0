"""REST bodies and stream messages of the Jupyter server extension (`gpushare/api/`)."""

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
from .history import Evictions, KernelHistory, QueueHistory
from .scheduler import Workloads
from .tables import Nodes, Pools, Projects, Queues

__all__ = [
    "Action",
    "Alternative",
    "Displaced",
    "Kernel",
    "Preset",
    "SchedulerStatus",
    "Status",
    "Table",
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


Table = Queues | Nodes | Pools | Projects | Workloads | Evictions | QueueHistory | KernelHistory
"""Answers whose first field lists the rows of a table."""


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
