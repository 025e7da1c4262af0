"""Pools, queues, nodes, workloads and pods, as immutable values.

Amounts are integers (`amounts`), times are integer milliseconds since the epoch (or since the start
of a scenario).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from .amounts import MILLI, UNLIMITED, Amounts
from .booked_window import BookedWindow
from .pool_option import OptionValue

__all__ = [
    "ACTIONS",
    "BUILT_IN_PRIORITY_CLASSES",
    "DEFAULT_POOL",
    "KERNELS_ONLY",
    "MembersPolicy",
    "Affinity",
    "Department",
    "SubGroup",
    "Node",
    "NodePool",
    "Options",
    "PersonLimit",
    "Pod",
    "Policy",
    "Project",
    "Quota",
    "Spot",
    "Strategy",
    "TimeBased",
    "Topology",
    "TopologyConstraint",
    "Workload",
]

DEFAULT_POOL: Final = "default"
BUILT_IN_PRIORITY_CLASSES: Final[Mapping[str, int]] = {
    "train": 50,
    "interactive": 75,
    "build": 100,
    "inference": 125,
}
NON_PREEMPTIBLE_FROM: Final = 100
"""Workloads of this priority or above are non-preemptible unless they state otherwise."""
ACTIONS: Final = (
    "allocate",
    "rotate",
    "consolidation",
    "reclaim",
    "preempt",
    "stale_gang_eviction",
)

KERNELS_ONLY: Final = ("gpushare.jupyter.org/kernels-only", "true", "NoSchedule")
"""Taint of nodes on which kernels run in containers of their own, and commands cannot be started.
"""

Strategy = Literal["binpack", "spread"]


class Quota(NamedTuple):
    """The rules of one queue in one pool: quota, limit and over-quota weight per resource, and
    rank.

    `weight` is in thousandths (1000 = weight 1). Unset GPU quota is 0; unset CPU and memory are
    unlimited.
    """

    quota: Amounts = Amounts(0, UNLIMITED, UNLIMITED)
    limit: Amounts = Amounts(UNLIMITED, UNLIMITED, UNLIMITED)
    weight: Amounts = Amounts(MILLI, MILLI, MILLI)
    rank: int = 100
    preempt_min_runtime: int | None = None
    reclaim_min_runtime: int | None = None


@dataclass(frozen=True, slots=True)
class Department:
    """A queue that contains queues. `pools` maps a node pool to the quota there; without an entry
    the quota is 0.
    """

    name: str
    parent: str | None = None
    pools: Mapping[str, Quota] = field(default_factory=dict)
    created: int = 0


class PersonLimit(NamedTuple):
    """What one person may have in a project. None: unlimited. `gpu` is milli-GPU."""

    gpu: int | None = None
    notebooks: int | None = None
    """Workloads, whatever their state."""
    pending: int | None = None
    """Workloads that wait, when another one is submitted."""


@dataclass(frozen=True, slots=True)
class MembersPolicy:
    """Rules between the members of a project. `half_life` in ms (0: no decay), weights in
    thousandths.
    """

    fairness: Literal["equal", "none"] = "none"
    half_life: int = 86_400_000
    weights: Mapping[str, int] = field(default_factory=dict)
    """Weights by user name; the others have 1000."""
    limit: PersonLimit = PersonLimit()


@dataclass(frozen=True, slots=True)
class Project:
    """A leaf queue, to which workloads are submitted. `node_pools` is its default list of pools,
    tried in order.
    """

    name: str
    department: str | None = None
    pools: Mapping[str, Quota] = field(default_factory=dict)
    created: int = 0
    node_pools: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    """User names and `group:NAME`. Empty: all users."""
    managers: tuple[str, ...] = ()
    """User names and `group:NAME` that see and manage the workloads of all members."""
    members_policy: MembersPolicy | None = None
    """None: the order is by age, and nobody is limited. Its limit counts in all pools together."""
    pool_members_policies: Mapping[str, MembersPolicy] = field(default_factory=dict)
    """Where a pool has rules of its own; the limit of such rules counts in that pool, in addition
    to the one for all pools.
    """

    def members_policy_in(self, pool: str) -> MembersPolicy | None:
        """The rules between members in one pool."""
        return self.pool_members_policies.get(pool, self.members_policy)


class TimeBased(NamedTuple):
    """Time-based fair share of a pool: k in thousandths, window and half-life in ms (half-life 0:
    no decay).
    """

    k: int = 1000
    window: int = 7 * 86_400_000
    half_life: int = 0


@dataclass(frozen=True, slots=True)
class Topology:
    """Node label keys from coarse to fine."""

    name: str
    levels: tuple[str, ...]


class TopologyConstraint(NamedTuple):
    """The topology level in whose domain a workload or sub-group must (`required`) or should
    (`preferred`) stay together.
    """

    name: str
    required: str | None = None
    preferred: str | None = None


@dataclass(frozen=True, slots=True)
class NodePool:
    """Nodes that share rules. `workloads_per_gpu` (2..5) switches node-level scheduling on; None:
    actual = planned.
    """

    name: str
    label: tuple[str, str] | None = None
    gpu: Strategy = "binpack"
    gpu_device: Strategy | None = None
    """Strategy for the device inside a node; None: as `gpu`."""
    cpu: Strategy = "binpack"
    workloads_per_gpu: int | None = None
    time_based: TimeBased | None = None
    topology: str | None = None
    defragment: bool = False
    options: tuple[tuple[str, OptionValue], ...] = ()
    """Named options that are not at their default; see `pool_option.chosen`."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the cycle. Times in ms; None for `max_consolidation_victims` is no cap."""

    actions: tuple[str, ...] = ACTIONS
    max_consolidation_victims: int | None = 16
    staleness_grace: int = 60_000
    saturation_multiplier: int = 1000
    allow_consolidating_reclaim: bool = True
    preempt_min_runtime: int = 0
    reclaim_min_runtime: int = 0


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy file as far as it concerns scheduling. Without departments, all projects are in an
    unlimited department `default`.
    """

    node_pools: tuple[NodePool, ...] = (NodePool(DEFAULT_POOL),)
    departments: tuple[Department, ...] = ()
    projects: tuple[Project, ...] = ()
    topologies: tuple[Topology, ...] = ()
    priority_classes: Mapping[str, int] = field(
        default_factory=lambda: dict(BUILT_IN_PRIORITY_CLASSES)
    )
    default_priority_class: str = "interactive"
    options: Options = Options()
    by_name: Mapping[str, Project] = field(init=False, compare=False, repr=False)
    """The projects by name. Searching the tuple for each pending workload was measurably slow."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {project.name: project for project in self.projects})


@dataclass(frozen=True, slots=True)
class Node:
    """A machine whose GPUs are all of one kind, with `gpu_memory` MiB each."""

    name: str
    pool: str = DEFAULT_POOL
    gpus: int = 0
    gpu_memory: int = 0
    cpu: int = UNLIMITED
    memory: int = UNLIMITED
    max_pods: int = 110
    ready: bool = True
    reasons: tuple[str, ...] = ()
    """Why it is not ready, and warnings (`NodeCondition` values)."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()
    mig: Mapping[str, int] = field(default_factory=dict)
    """MIG profile -> instances, such as {"3g.40gb": 2}. They are counted in addition to `gpus`."""
    unhealthy: frozenset[int] = frozenset()
    """Indexes of GPUs that accept no new pods and count as no capacity. Their pods keep running."""


class Affinity(NamedTuple):
    """Pods that match all of `match` must share (or must not share) the value of the node label
    `topology`.
    """

    topology: str
    match: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Pod:
    """One member process, as requested. At most one of `gpu` > 0, `gpu_memory` and `mig` is set;
    none: CPU only.

    `gpu` is milli-GPU: a multiple of 1000 is whole devices, less than 1000 a fraction. `gpu_memory`
    is MiB per device. `gpu_devices` is the number of distinct devices that each provide the
    fraction or the memory.
    """

    name: str
    gpu: int = 0
    gpu_memory: int | None = None
    gpu_devices: int = 1
    mig: tuple[tuple[str, int], ...] = ()
    cpu: int = 0
    memory: int = 0
    group: str = ""
    priority: int | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_affinity: tuple[str, ...] = ()
    """Names of the nodes on which it may run; empty: any."""
    tolerations: tuple[tuple[str, str], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    anti_affinity: Affinity | None = None


@dataclass(frozen=True, slots=True)
class SubGroup:
    """A sub-group. A leaf has pods and `min_pods`; an inner one has groups, all of which are
    required.
    """

    name: str
    min_pods: int | None = None
    topology: TopologyConstraint | None = None
    groups: tuple[SubGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """What is scheduled as a whole. A notebook kernel is a workload with one pod. `id` is unique;
    `created` is its age (ms).
    """

    id: str
    project: str
    pods: tuple[Pod, ...]
    priority: int = BUILT_IN_PRIORITY_CLASSES["train"]
    preemptible: bool = True
    created: int = 0
    min_pods: int | None = None
    """None: all pods (a gang)."""
    groups: tuple[SubGroup, ...] = ()
    topology: TopologyConstraint | None = None
    node_pools: tuple[str, ...] = ()
    held: bool = False
    """Not scheduled until its owner resumes it; the reason is `Held`."""
    ends_when_evicted: bool = False
    done_counts: bool = False
    """A pod that has succeeded counts towards the minimum, so that the remaining pods can be
    evicted and placed again without it (batch).
    """
    user: str = ""
    """The person whom it counts for, where the project has rules between its members, and where
    people book GPUs.
    """
    max_running: int | None = field(default=None, compare=False)
    """How long (ms) it may run at most; None: unlimited. A rule of the policy, so a repeated
    submission may differ.
    """
    room: BookedWindow | None = None
    """It has no processes: it keeps what is left of this booking free."""


class Spot(NamedTuple):
    """A place: node, planned devices (indexes on the node; empty for CPU-only pods) and the node's
    pool.
    """

    node: str
    devices: tuple[int, ...]
    pool: str
