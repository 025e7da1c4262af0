"""The nouns of the scheduler: pools, queues, nodes, workloads and pods. Values only; they decide
nothing.

Amounts are integers (`amounts`), times are integer milliseconds since the epoch (or since the start
of a scenario).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from .amounts import MILLI, UNLIMITED, Amounts

__all__ = [
    "ACTIONS",
    "BUILT_IN_PRIORITY_CLASSES",
    "DEFAULT_POOL",
    "Affinity",
    "Department",
    "SubGroup",
    "Node",
    "NodePool",
    "Options",
    "Pod",
    "PodState",
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
"""Priorities from here on are non-preemptible unless stated otherwise (facts, section 10)."""
ACTIONS: Final = ("allocate", "consolidation", "reclaim", "preempt", "stale_gang_eviction")

Strategy = Literal["binpack", "spread"]
PodState = Literal["pending", "running", "releasing", "succeeded", "failed"]


class Quota(NamedTuple):
    """One queue's rules in one pool: quota, limit and over-quota weight per resource, and the rank.

    `weight` is in thousandths (1000 = weight 1). Unset GPU quota is 0; CPU and memory that nobody
    configured are unlimited.
    """

    quota: Amounts = Amounts(0, UNLIMITED, UNLIMITED)
    limit: Amounts = Amounts(UNLIMITED, UNLIMITED, UNLIMITED)
    weight: Amounts = Amounts(MILLI, MILLI, MILLI)
    rank: int = 100
    preempt_min_runtime: int | None = None
    reclaim_min_runtime: int | None = None


@dataclass(frozen=True, slots=True)
class Department:
    """A queue that holds queues. `pools` maps a node pool's name to the quota there; an absent pool
    is open with quota 0.
    """

    name: str
    parent: str | None = None
    pools: Mapping[str, Quota] = field(default_factory=dict)
    created: int = 0


@dataclass(frozen=True, slots=True)
class Project:
    """A leaf queue, where workloads are submitted. `node_pools` is its default list, tried in
    order.
    """

    name: str
    department: str | None = None
    pools: Mapping[str, Quota] = field(default_factory=dict)
    created: int = 0
    node_pools: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    """User names and `group:NAME`. Empty: everybody."""


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
    """Where a workload or sub-group must (`required`) or should (`preferred`) stay together: a
    level of a topology.
    """

    name: str
    required: str | None = None
    preferred: str | None = None


@dataclass(frozen=True, slots=True)
class NodePool:
    """Nodes that share rules. `workloads_per_gpu` switches node-level scheduling on (2..5); None:
    actual = planned.
    """

    name: str
    label: tuple[str, str] | None = None
    gpu: Strategy = "binpack"
    gpu_device: Strategy | None = None
    """How a device inside a node is chosen; None: as `gpu`."""
    cpu: Strategy = "binpack"
    workloads_per_gpu: int | None = None
    time_based: TimeBased | None = None
    topology: str | None = None
    victims: Literal["fair", "smallest"] = "fair"
    reserve_after: int | None = None
    usage: Literal["cluster", "siblings"] = "cluster"
    defragment: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """Tunables of the cycle (facts, section 15). Times in ms; None for `max_consolidation_victims`
    is no cap.
    """

    actions: tuple[str, ...] = ACTIONS
    max_consolidation_victims: int | None = 16
    staleness_grace: int = 60_000
    saturation_multiplier: int = 1000
    allow_consolidating_reclaim: bool = True
    preempt_min_runtime: int = 0
    reclaim_min_runtime: int = 0


@dataclass(frozen=True, slots=True)
class Policy:
    """What the admin's file says about scheduling: pools, queues, classes, options. Without
    departments every project stands under an unlimited department `default`.
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
    """The projects: looking through all of them for every workload that waits took half of the time
    of telling them.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {project.name: project for project in self.projects})


@dataclass(frozen=True, slots=True)
class Node:
    """A machine. All its GPUs are alike: `gpu_memory` MiB each (counted as it is; a scenario's GiB
    are exact).
    """

    name: str
    pool: str = DEFAULT_POOL
    gpus: int = 0
    gpu_memory: int = 0
    cpu: int = UNLIMITED
    memory: int = UNLIMITED
    max_pods: int = 110
    ready: bool = True
    reasons: tuple[str, ...] = ()
    """Why it is not ready, in the words of the field; empty when it is."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[tuple[str, str, str], ...] = ()
    mig: Mapping[str, int] = field(default_factory=dict)
    """MIG profile -> instances, e.g. {"3g.40gb": 2}. Devices of their own, beside `gpus`."""
    unhealthy: frozenset[int] = frozenset()
    """Indexes of GPUs that take nothing new; they count nowhere. What runs on them runs."""


class Affinity(NamedTuple):
    """Pods that carry all of `match` must share (or not share) the value of the node label
    `topology`.
    """

    topology: str
    match: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Pod:
    """One member process as it was asked for. Exactly one of `gpu` > 0, `gpu_memory`, `mig` names a
    GPU request; none: CPU only.

    `gpu` is milli-GPU: a multiple of 1000 is whole devices, less than 1000 a fraction. `gpu_memory`
    is MiB per device. `gpu_devices` is the number of distinct devices that each give the fraction
    or the memory.
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
    """Names of nodes it may run on; empty: any."""
    tolerations: tuple[tuple[str, str], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    anti_affinity: Affinity | None = None


@dataclass(frozen=True, slots=True)
class SubGroup:
    """A sub-group: a leaf has pods and `min_pods`; an inner one has groups, all of them required."""

    name: str
    min_pods: int | None = None
    topology: TopologyConstraint | None = None
    groups: tuple[SubGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """What is scheduled as a whole. A notebook kernel is a workload with one pod. `id` is unique;
    `created` orders by age (ms).
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
    """Not to be scheduled until it is released by its owner; its reason is `Held`."""
    ends_when_evicted: bool = False
    done_counts: bool = False
    """A pod that has succeeded counts towards the minimum: the others may lose their places and
    come back without it (batch work).
    """


class Spot(NamedTuple):
    """Where a pod is or would be: node, planned devices (indexes on the node; empty for CPU-only
    pods), its pool.
    """

    node: str
    devices: tuple[int, ...]
    pool: str
