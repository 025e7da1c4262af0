"""The scheduler service's REST bodies and stream."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from .common import (
    Body,
    Event,
    ExpectedWait,
    KernelState,
    MemoryMib,
    ReasonBody,
    Share,
    Stamp,
    Tagged,
)

__all__ = [
    "CommandRequest",
    "Ended",
    "GroupRequest",
    "LeaseBody",
    "LeaseReport",
    "LogText",
    "Logs",
    "LeaseRules",
    "PodRequest",
    "PodView",
    "SchedulerFrame",
    "SchedulerState",
    "ServiceChanged",
    "ServiceStatus",
    "TopologyRequest",
    "WhoAmI",
    "WorkloadName",
    "WorkloadChanged",
    "WorkloadEvent",
    "WorkloadGone",
    "WorkloadRequest",
    "WorkloadView",
    "Workloads",
]


class PodRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pod of a workload. Amounts as people write them. `gpu_limit` is the burst ceiling in GPUs
    (null: the whole GPU).
    """

    name: str = ""
    """Empty: its number among the pods, from 0."""
    gpu: float | int | str | None = None
    gpu_memory: int | str | None = None
    gpu_devices: int = 1
    gpu_limit: float | int | str | None = None
    cpu: float | int | str = 0
    memory: int | str = 0
    group: str = ""
    nodes: list[str] = field(default_factory=list)
    """Names of nodes it may run on (a kernel: the one where its process is); empty: any."""
    node_selector: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


class TopologyRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pods that belong together: in one domain of level `required` of the topology `name`, and if
    possible in one of `preferred`.
    """

    name: str
    required: str | None = None
    preferred: str | None = None


class GroupRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sub-group of pods. A leaf has pods (their `group` is its name) and `min_pods` (null: all of
    them); any other has `groups`.
    """

    name: str
    min_pods: int | None = None
    topology: TopologyRequest | None = None
    groups: list[GroupRequest] = field(default_factory=list)


class CommandRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agent of a pod's node runs for it, as the person who asked: argument vector,
    environment beside the node's own, and the working directory there ("": the person's home).
    """

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""


class WorkloadRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST workloads`. `id` is made by the client (idempotent). `kernel_id` marks a notebook
    kernel's workload.
    """

    id: str
    name: str = ""
    kernel_id: str | None = None
    project: str | None = None
    """null: the caller's first project."""
    pods: list[PodRequest]
    priority_class: str | int | None = None
    preemptible: bool | None = None
    min_pods: int | None = None
    groups: list[GroupRequest] = field(default_factory=list)
    topology: TopologyRequest | None = None
    node_pools: list[str] = field(default_factory=list)
    command: CommandRequest | None = None
    """Every pod is a process that runs this; null: whoever asks runs something by itself (a
    kernel).
    """
    user: str | None = None
    """On whose behalf (only servers and admins may say so)."""
    replaces: str | None = None
    """Id of a workload of the same user, which keeps its GPUs until this one is granted: it ends in
    the same transaction. One without GPUs ends at once. To cancel both, end both.
    """


class WorkloadName(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`PATCH workloads/<id>`: what its owner calls it from now on (of a kernel: its notebook's
    path); its share stays as it is.
    """

    name: str


class LeaseRules(Body, frozen=True, kw_only=True):
    """What the policy allows this lease, in ms since its last GPU work (the four steps of the idle
    rule) and since it was granted; null: never. The agent acts on the idle steps, the scheduler on
    `max_running_ms`. `places`: step (`idle.warn`, ..., `max_running`) -> where in the policy it
    stands.
    """

    idle_warn_ms: int | None = None
    idle_suspend_ms: int | None = None
    idle_release_ms: int | None = None
    idle_end_ms: int | None = None
    max_running_ms: int | None = None
    places: dict[str, str] = field(default_factory=dict)


class LeaseBody(Body, frozen=True, kw_only=True):
    """An allocation in force, held by one pod."""

    id: str
    workload: str
    pod: str
    kernel_id: str | None
    name: str = ""
    user: str = ""
    project: str
    node: str
    pool: str
    planned_gpus: list[int]
    """Indexes of the planned devices on the node."""
    request_mib: int
    """Guarantee per device in MiB."""
    limit_mib: int
    """Burst ceiling per device in MiB."""
    request: Share = Share()
    limit: Share = Share()
    wanted: Literal["hold", "evict"] = "hold"
    """`evict`: the scheduler wants it back; `message` says for whom and why, `notice_ms` how long
    its holder is to be warned.
    """
    notice_ms: int = 30_000
    message: str = ""
    rules: LeaseRules = LeaseRules()
    ends_at: Stamp | None = None
    """Its running time is over at this moment, and `message` says why: its holder is to be told."""
    command: CommandRequest | None = None
    """What the agent runs under this lease; null: somebody else does (a kernel's server)."""


class LeaseReport(Body, frozen=True, kw_only=True):
    """What the agent knows of one lease."""

    lease: str
    state: KernelState
    gpu_uuids: list[str] = field(default_factory=list)
    memory_mib: MemoryMib = MemoryMib()
    generation: int = 0
    busy: bool = False
    utilization: float | None = None
    """Share of the last second in which its processes ran on the GPU, 0..1; null: not known."""


class PodView(Body, frozen=True, kw_only=True):
    name: str
    state: Literal["pending", "running", "bound", "pipelined", "releasing", "succeeded", "failed"]
    lease: LeaseBody | None = None
    report: LeaseReport | None = None
    exit_code: int | None = None
    """Of its command, once it is over."""


class WorkloadView(Body, frozen=True, kw_only=True):
    id: str
    name: str
    kernel_id: str | None
    user: str
    project: str
    priority: int
    preemptible: bool
    node_pools: list[str]
    created: Stamp
    state: Literal["pending", "running", "partial", "ended"]
    request: Share = Share()
    limit: Share = Share()
    pods: list[PodView] = field(default_factory=list)
    reason: ReasonBody | None = None
    queue_position: int | None = None
    expected_wait: ExpectedWait | None = None
    """How much longer it will wait; null: it does not wait, or nobody has looked yet."""
    revision: int = 0
    command: list[str] | None = None
    """What its pods run; null: it is no batch work, or the caller may not see it."""
    exit_code: int | None = None
    """Of batch work that is over: the first that was not 0, else 0."""
    message: str = ""
    """How it ended; "" before."""
    replaces: str | None = None
    """Id of the workload that ends when this one is granted, or that ended when it was."""


class Workloads(Body, frozen=True, kw_only=True):
    workloads: list[WorkloadView]


class Logs(Body, frozen=True, kw_only=True):
    """What the pods of a workload have printed after the cursor that was given; at most some 256
    KiB at a time.
    """

    lines: list[LogText]
    cursor: int
    """Ask again with this."""
    is_over: bool
    """Nothing more will come."""


class LogText(Body, frozen=True, kw_only=True):
    """A piece of what one pod printed, in order."""

    pod: str
    text: str


class Ended(Body, frozen=True, kw_only=True):
    """Answer of `DELETE workloads/<id>`: also when it had ended before."""

    id: str
    ended: bool = True


class ServiceStatus(Body, frozen=True, kw_only=True):
    version: str
    revision: int
    leader: bool = True
    policy_file: str | None = None
    policy_problems: list[str] = field(default_factory=list)
    user: str = ""
    admin: bool = False
    projects: list[str] = field(default_factory=list)
    node_pools: list[str] = field(default_factory=list)
    priority_classes: list[str] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    policy_changed: Stamp | None = None
    """When the policy in force was taken over; null: at the start of the service."""
    policy_changes: list[str] = field(default_factory=list)
    """What that change was and whom it affects, a sentence each; for admins."""


class WhoAmI(Body, frozen=True, kw_only=True):
    """Who the caller is to the scheduler, and what they may do. `users`: on whose behalf a server
    may ask (`*`: everybody's).
    """

    user: str
    scope: str
    admin: bool = False
    groups: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    projects: list[str] = field(default_factory=list)
    source: Literal["token", "hub", "socket", "process"] = "token"
    """How this is known: a token of the scheduler's, JupyterHub, the unix user at the other end of
    the socket, or this very process.
    """


class SchedulerState(Tagged, frozen=True, kw_only=True, tag="state"):
    """First frame of the scheduler's stream, and the answer to a `since` that is too old:
    everything the caller may see.
    """

    revision: int
    status: ServiceStatus
    workloads: list[WorkloadView]


class WorkloadChanged(Tagged, frozen=True, kw_only=True, tag="workload"):
    revision: int
    workload: WorkloadView


class WorkloadGone(Tagged, frozen=True, kw_only=True, tag="workload_gone"):
    revision: int
    id: str
    kernel_id: str | None
    message: str = ""
    reason: ReasonBody | None = None
    """Why it was ended without its owner's wish while it waited (the rule of the longest waiting
    time); null otherwise.
    """


class WorkloadEvent(Tagged, frozen=True, kw_only=True, tag="event"):
    revision: int
    id: str
    kernel_id: str | None
    event: Event


class ServiceChanged(Tagged, frozen=True, kw_only=True, tag="status"):
    revision: int
    status: ServiceStatus


SchedulerFrame = SchedulerState | WorkloadChanged | WorkloadGone | WorkloadEvent | ServiceChanged
