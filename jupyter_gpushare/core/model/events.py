"""What can happen to a cluster from outside. The only way to change a `Cluster` other than a cycle:
`cluster.apply(fact)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .model import Node, Policy, Spot, Workload

__all__ = [
    "Fact",
    "StaleSince",
    "NodeChanged",
    "NodeJoined",
    "NodeLeft",
    "PodEnded",
    "PodEvicted",
    "PodNominated",
    "PodPlaced",
    "PodReleased",
    "PolicyChanged",
    "UsageMeasured",
    "WorkloadEnded",
    "WorkloadHeld",
    "WorkloadSubmitted",
]


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """A new policy is in force. Projects that are gone keep their running workloads (they drain)
    and take no new ones.
    """

    policy: Policy


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node is there (idempotent: the same name replaces what was known, placed pods stay)."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """Readiness, labels or sizes changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeLeft:
    """The node is gone; its pods are pending again (or ended, for workloads that end when evicted)."""

    name: str


@dataclass(frozen=True, slots=True)
class WorkloadSubmitted:
    """Somebody asks. Idempotent by `workload.id`; a known id with another content is refused
    (`Conflict`).
    """

    workload: Workload


@dataclass(frozen=True, slots=True)
class WorkloadHeld:
    """The owner holds a pending workload back, or lets it go."""

    id: str
    held: bool


@dataclass(frozen=True, slots=True)
class WorkloadEnded:
    """The workload is over: all its pods are forgotten and hold nothing."""

    id: str


@dataclass(frozen=True, slots=True)
class PodPlaced:
    """A pod is known to run at a spot (initial pods of a scenario; leases found in the store at
    start). Counts as given, even if it over-commits: what runs, runs.
    """

    workload: str
    pod: str
    spot: Spot
    started: int
    """ms; when the workload last started."""
    state: Literal["running", "releasing"] = "running"


@dataclass(frozen=True, slots=True)
class PodNominated:
    """A pending pod was promised this node by the last cycle before a snapshot, and prefers it in
    the next one (`Cluster.nominated`).
    """

    workload: str
    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class PodEvicted:
    """Somebody outside the cycle (an admin, a drain, an idle rule) takes the pod's place away:
    releasing from now on.
    """

    workload: str
    pod: str


@dataclass(frozen=True, slots=True)
class PodReleased:
    """A releasing pod has let go of everything: it is pending again, with its age (or ended, if it
    ends when evicted).
    """

    workload: str
    pod: str


@dataclass(frozen=True, slots=True)
class PodEnded:
    """The pod's process is over for good."""

    workload: str
    pod: str
    outcome: Literal["succeeded", "failed"] = "succeeded"


@dataclass(frozen=True, slots=True)
class StaleSince:
    """A gang is known to be below its minimum since this time, ms (a snapshot, or the store at
    start). The cycle stamps others itself.
    """

    workload: str
    since: int


@dataclass(frozen=True, slots=True)
class UsageMeasured:
    """Historical usage of a queue in a pool, as a share of capacity in millionths per resource
    (gpu, cpu, memory).
    """

    queue: str
    pool: str
    usage: tuple[int, int, int]


Fact = (
    PolicyChanged
    | NodeJoined
    | NodeChanged
    | NodeLeft
    | WorkloadSubmitted
    | WorkloadHeld
    | WorkloadEnded
    | PodPlaced
    | PodEvicted
    | PodReleased
    | PodEnded
    | PodNominated
    | StaleSince
    | UsageMeasured
)
