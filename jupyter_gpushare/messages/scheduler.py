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
    "KubernetesStatus",
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
    """One pod of a workload. Amounts are numbers or text with a unit. `gpu_limit` is the burst
    limit in GPUs (null: the whole GPU).
    """

    name: str = ""
    """Empty: its index among the pods."""
    gpu: float | int | str | None = None
    gpu_memory: int | str | None = None
    gpu_devices: int = 1
    gpu_limit: float | int | str | None = None
    cpu: float | int | str = 0
    memory: int | str = 0
    group: str = ""
    nodes: list[str] = field(default_factory=list)
    """Nodes it may run on (a kernel: the node of its process); empty: any."""
    node_selector: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


class TopologyRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topology constraint: all pods in one domain of level `required` of the topology `name`, if
    possible in one of level `preferred`.
    """

    name: str
    required: str | None = None
    preferred: str | None = None


class GroupRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sub-group of pods. A leaf has pods (their `group` is its name) and `min_pods` (null: all);
    any other has `groups`.
    """

    name: str
    min_pods: int | None = None
    topology: TopologyRequest | None = None
    groups: list[GroupRequest] = field(default_factory=list)


class CommandRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The command of a pod, run by the node's agent as the user: argument vector, environment in
    addition to the node's, and working directory ("": the user's home directory).
    """

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""


class WorkloadRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST workloads`. The client chooses `id`, so that the request is idempotent. `kernel_id`
    marks the workload of a notebook kernel.
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
    """The command that every pod runs; null: the client runs its own process (a kernel)."""
    user: str | None = None
    """The user for whom a server or an admin submits; null: the caller."""
    queue_anyway: bool = False
    """Accept a request that can never start with the present nodes, limits and quotas. Otherwise it
    is refused with 409 and the code `NeverFits`, `OverLimit` or `NonPreemptibleOverQuota`.
    """
    replaces: str | None = None
    """Id of a workload of the same user, which keeps its GPUs until this one is granted: it ends in
    the same transaction. One without GPUs ends at once. To cancel both, end both.
    """


class WorkloadName(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`PATCH workloads/<id>`: the new name (of a kernel: its notebook's path). The share does not
    change.
    """

    name: str


class LeaseRules(Body, frozen=True, kw_only=True):
    """Time limits of a lease in ms: the four steps of the idle rule count from the last GPU work,
    `max_running_ms` from the grant; null: never. The agent applies the idle rule, the scheduler
    `max_running_ms`. `places` maps a step (`idle.warn`, ..., `max_running`) to its field in the
    policy.
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
    """Indexes of the planned GPUs on the node."""
    request_mib: int
    """Guarantee per device in MiB."""
    limit_mib: int
    """Burst limit per device in MiB."""
    request: Share = Share()
    limit: Share = Share()
    wanted: Literal["hold", "evict", "yield"] = "hold"
    """`evict`: the lease is to be released after a notice of `notice_ms`; `message` gives the
    reason. `yield`: it is to be released at once if the kernel is idle, else kept (`LeaseKept`).
    """
    lossless: bool = False
    """With `evict`: its process is not killed. If its memory cannot be saved, the lease is kept."""
    notice_ms: int = 30_000
    message: str = ""
    rules: LeaseRules = LeaseRules()
    ends_at: Stamp | None = None
    """When its running time ends; `message` gives the rule for the notice to the owner."""
    command: CommandRequest | None = None
    """The command that the agent runs under this lease; null: a kernel of a Jupyter server."""


class LeaseReport(Body, frozen=True, kw_only=True):
    """The state of one lease on its node."""

    lease: str
    state: KernelState
    gpu_uuids: list[str] = field(default_factory=list)
    assigned_uuids: list[str] | None = None
    """GPUs on which its memory is guaranteed: not `gpu_uuids` while it moves; null: not known."""
    memory_mib: MemoryMib = MemoryMib()
    generation: int = 0
    busy: bool = False
    utilization: float | None = None
    """Share of the last second in which its processes ran on the GPU, 0..1; null: not known."""
    gated: bool = True
    """Whether a notebook's cells ask before they run; always true for a command."""


class PodView(Body, frozen=True, kw_only=True):
    """One pod of a workload."""

    name: str
    state: Literal["pending", "running", "bound", "pipelined", "releasing", "succeeded", "failed"]
    lease: LeaseBody | None = None
    report: LeaseReport | None = None
    exit_code: int | None = None
    """Exit code of its command, once it has ended."""


class WorkloadView(Body, frozen=True, kw_only=True):
    """One workload."""

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
    """The remaining wait; null: it is not pending, or no estimate has been made."""
    revision: int = 0
    command: list[str] | None = None
    """The command of its pods; null: no batch workload, or not visible to the caller."""
    exit_code: int | None = None
    """Exit code of an ended batch workload: the first that is not 0, else 0."""
    message: str = ""
    """How the workload ended; "" before."""
    replaces: str | None = None
    """Id of the workload that ends when this one is granted, or that ended when it was."""


class Workloads(Body, frozen=True, kw_only=True):
    """Answer of `GET workloads`."""

    workloads: list[WorkloadView]


class Logs(Body, frozen=True, kw_only=True):
    """Output of a workload's pods after the given cursor, at most about 256 KiB per answer."""

    lines: list[LogText]
    cursor: int
    """The cursor for the next request."""
    is_over: bool
    """Whether the output is complete."""


class LogText(Body, frozen=True, kw_only=True):
    """A piece of one pod's output."""

    pod: str
    text: str


class Ended(Body, frozen=True, kw_only=True):
    """Answer of `DELETE workloads/<id>`, also if the workload had ended before."""

    id: str
    ended: bool = True


class KubernetesStatus(Body, frozen=True, kw_only=True):
    """What the scheduler knows from Kubernetes."""

    nodes: int = 0
    """Managed nodes."""
    unreachable_since: Stamp | None = None
    """Since when the API server has not responded; null: it responds. Until then the state of nodes
    is the last known one.
    """
    problems: list[str] = field(default_factory=list)
    """Missing permissions, and managed nodes that cannot be used, one sentence each."""
    undrained: dict[str, list[str]] = field(default_factory=dict)
    """Node that was taken out without `drain` -> kernels that still run there; for admins."""


class ServiceStatus(Body, frozen=True, kw_only=True):
    """The scheduler, its policy, and the caller."""

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
    acts_for: list[str] = field(default_factory=list)
    """The users for whom the caller may submit, the default first; `*`: every user."""
    policy_changed: Stamp | None = None
    """When the policy was last changed; null: not since the service started."""
    policy_changes: list[str] = field(default_factory=list)
    """The changes and the affected workloads, one sentence each; for admins."""
    kubernetes: KubernetesStatus | None = None
    time_zones: str = ""
    """Version and place of the time zone database with which booked times are computed."""
    """null: this scheduler does not read Kubernetes."""
    manages: list[str] = field(default_factory=list)
    """Projects whose people the caller manages."""


class WhoAmI(Body, frozen=True, kw_only=True):
    """The caller's identity and permissions. `users`: the users on whose behalf a server may act
    (`*`: all).
    """

    user: str
    scope: str
    admin: bool = False
    groups: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    projects: list[str] = field(default_factory=list)
    source: Literal["token", "hub", "kubernetes", "socket", "process"] = "token"
    """How the caller was authenticated: a token of the scheduler, JupyterHub, a service-account
    token of Kubernetes, the unix user of the socket's peer, or the same process.
    """


class SchedulerState(Tagged, frozen=True, kw_only=True, tag="state"):
    """First frame of the scheduler's stream, also after a `since` that is too old: everything that
    the caller may see.
    """

    revision: int
    status: ServiceStatus
    workloads: list[WorkloadView]


class WorkloadChanged(Tagged, frozen=True, kw_only=True, tag="workload"):
    """A workload is new or has changed."""

    revision: int
    workload: WorkloadView


class WorkloadGone(Tagged, frozen=True, kw_only=True, tag="workload_gone"):
    """A workload has ended."""

    revision: int
    id: str
    kernel_id: str | None
    message: str = ""
    reason: ReasonBody | None = None
    """Why a rule (the longest waiting time) ended it while it was pending; null otherwise."""


class WorkloadEvent(Tagged, frozen=True, kw_only=True, tag="event"):
    """An event of one workload."""

    revision: int
    id: str
    kernel_id: str | None
    event: Event


class ServiceChanged(Tagged, frozen=True, kw_only=True, tag="status"):
    """The status of the service changed."""

    revision: int
    status: ServiceStatus


SchedulerFrame = SchedulerState | WorkloadChanged | WorkloadGone | WorkloadEvent | ServiceChanged
