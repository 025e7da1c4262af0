"""REST bodies and stream messages of the Jupyter server extension (`gpushare/api/`)."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from .bookings import Bookings
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
from .people import People
from .scheduler import Workloads
from .tables import Nodes, Pools, Projects, Queues

__all__ = [
    "AffectedNotebook",
    "Alternative",
    "Displaced",
    "Kernel",
    "PendingChange",
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


class PendingChange(Body, frozen=True, kw_only=True):
    """A pending request that replaces the kernel's current share when it is granted."""

    workload: str
    request: Share = Share()
    limit: Share = Share()
    project: str | None = None
    reason: ReasonBody | None = None
    queue_position: int | None = None
    expected_wait: ExpectedWait | None = None


class Kernel(Body, frozen=True, kw_only=True):
    """One kernel, as shown to its owner."""

    kernel_id: str
    name: str = ""
    """The notebook's path; "": not known."""
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
    """Why the started cell waits; null: no cell waits."""
    memory_mib: MemoryMib = MemoryMib()
    gpu_memory_total_mib: int = 0
    """Memory of the GPU that it runs on; 0: none."""
    saved_mib: int = 0
    """GPU memory that is saved in host memory now."""
    reason: ReasonBody | None = None
    queue_position: int | None = None
    expected_wait: ExpectedWait | None = None
    """The remaining wait for its share; null: not pending, or no estimate has been made."""
    notice_deadline: Stamp | None = None
    """When memory will be reclaimed unless it is released before; null: no notice."""
    generation: int = 0
    workload: str | None = None
    utilization: float | None = None
    """Share of the last second in which its processes ran on the GPU, 0..1; null: not known."""
    user: str = ""
    """Its user; "": not known."""
    gated: bool = False
    """Whether its cells ask before they run. A kernel that is starting is assumed to."""
    gate_problem: str | None = None
    """Why a running kernel is not gated, and what to do; null: it is gated, or not known yet. Its
    memory is not guaranteed.
    """
    preset: str | None = None
    """The preset of its request; null: none."""
    pending_change: PendingChange | None = None
    """Its request for another share, while it keeps this one; null: none is pending."""
    events: list[Event] = field(default_factory=list)


class SchedulerStatus(Body, frozen=True, kw_only=True):
    """Whether the scheduler (or the agent) can be reached."""

    reachable: bool
    version: str | None = None
    problem: str | None = None
    """The problem in one sentence: not reachable, or a refused policy file."""
    policy_problems: list[str] = field(default_factory=list)
    """The lines of a refused policy file; also in `problem`."""


class Preset(Body, frozen=True, kw_only=True):
    """A share with a name, configured by the administrator."""

    name: str
    description: str = ""
    request: KernelRequest


class Status(Body, frozen=True, kw_only=True):
    """Answer of `GET status`."""

    mode: Literal["embedded", "remote"]
    simulated: bool
    scheduler: SchedulerStatus
    agent: SchedulerStatus
    node: str | None = None
    user: str = ""
    admin: bool = False
    """Whether this server may act as an administrator of the scheduler."""
    projects: list[str] = field(default_factory=list)
    """Projects of the user, the default first."""
    node_pools: list[str] = field(default_factory=list)
    priority_classes: list[str] = field(default_factory=list)
    presets: list[Preset] = field(default_factory=list)
    """Named shares, in the configured order."""
    tiers: list[str] = field(default_factory=list)
    """Capability tiers of this server's node."""
    tier_problems: dict[str, str] = field(default_factory=dict)
    """For each missing tier: why."""
    kernels: list[Kernel] = field(default_factory=list)


Table = (
    Queues
    | Nodes
    | Pools
    | Projects
    | Workloads
    | Evictions
    | People
    | QueueHistory
    | KernelHistory
    | Bookings
)
"""Answers whose first field lists the rows of a table."""


class Displaced(Body, frozen=True, kw_only=True):
    """A workload that would be evicted or moved."""

    workload: str
    project: str
    name: str = ""
    """Of its notebook or command; "": not visible to the caller."""
    action: str
    message: str
    notice_ms: int = 0
    """How long before that its user is warned."""


class AffectedNotebook(Body, frozen=True, kw_only=True):
    """A notebook or command whose GPU memory is saved, moved or lost when a share starts."""

    name: str
    """The notebook's path; of another user: "a notebook of project …"."""
    memory_mib: int
    notice_ms: int = 0
    """How long before that its user is warned; 0: it is idle, and loses nothing."""
    message: str


class Alternative(Body, frozen=True, kw_only=True):
    """A changed request that would start now, and a sentence."""

    request: Json
    message: str


class WhatIfAnswer(Body, frozen=True, kw_only=True):
    """Answer of `POST what-if`."""

    starts_now: bool
    node: str | None = None
    planned_gpu: str | None = None
    planned_gpus: list[str] = field(default_factory=list)
    """All planned GPUs; the node may use others of the same size."""
    gpus: list[str] = field(default_factory=list)
    """The GPUs where the share would be; empty: not known, or it would not start now."""
    affected: list[AffectedNotebook] = field(default_factory=list)
    """Notebooks whose memory makes room when the share starts."""
    notice_ms: int = 0
    """The longest of their notices: the share starts after it."""
    displaces: list[Displaced] = field(default_factory=list)
    reason: ReasonBody | None = None
    expected_wait: ExpectedWait | None = None
    """The expected wait; null: it would start now."""
    alternatives: list[Alternative] = field(default_factory=list)
    refused: bool = False
    """The request can never start: without `queue_anyway` it would be refused."""


class StreamState(Tagged, frozen=True, kw_only=True, tag="state"):
    """First frame of the Jupyter stream: the full state."""

    revision: int
    status: Status


class StreamKernel(Tagged, frozen=True, kw_only=True, tag="kernel"):
    """A kernel is new or has changed."""

    revision: int
    kernel_id: str
    kernel: Kernel


class StreamKernelGone(Tagged, frozen=True, kw_only=True, tag="kernel_gone"):
    """A kernel has ended."""

    revision: int
    kernel_id: str


class StreamEvent(Tagged, frozen=True, kw_only=True, tag="event"):
    """An event of one kernel; also in the kernel's `events`."""

    revision: int
    kernel_id: str
    event: Event


class StreamStatus(Tagged, frozen=True, kw_only=True, tag="status"):
    """The status changed apart from the kernels (scheduler reachable or not, projects); without
    its kernels.
    """

    revision: int
    status: Status


StreamFrame = StreamState | StreamKernel | StreamKernelGone | StreamEvent | StreamStatus
