"""Events that change a cluster from outside: `cluster.apply(event)`. Only cycles change it
otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .activity import Activity
from .booked_window import BookedWindow
from .model import Node, PersonLimit, Policy, Spot, Workload

__all__ = [
    "ActivityReported",
    "BookingsChanged",
    "Event",
    "EvictionCancelled",
    "StaleSince",
    "NodeChanged",
    "NodeJoined",
    "NodeLeft",
    "PendingSince",
    "PersonLimited",
    "PersonMeasured",
    "PodEnded",
    "PodEvicted",
    "PodNominated",
    "PodPlaced",
    "PodReleased",
    "PolicyChanged",
    "UsageMeasured",
    "WorkloadEnded",
    "WorkloadHeld",
    "WorkloadPromoted",
    "WorkloadSubmitted",
]


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """A new policy is in force. Removed projects keep their running workloads (draining) and accept
    no new ones.
    """

    policy: Policy


@dataclass(frozen=True, slots=True)
class BookingsChanged:
    """All bookings that are under way or begin soon; replaces what was known. They take effect in
    cycles.
    """

    windows: tuple[BookedWindow, ...]


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A node joined. Idempotent: the same name replaces what was known; placed pods stay."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """The readiness, labels or capacity of a node changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeLeft:
    """The node is gone. Its pods are pending again, or ended if their workload ends when
    evicted.
    """

    name: str


@dataclass(frozen=True, slots=True)
class WorkloadSubmitted:
    """A workload was submitted.

    Idempotent by `workload.id`; a known id with different content raises `Conflict`.
    """

    workload: Workload


@dataclass(frozen=True, slots=True)
class WorkloadHeld:
    """The owner holds a pending workload, or resumes it."""

    id: str
    held: bool


@dataclass(frozen=True, slots=True)
class WorkloadEnded:
    """The workload is over: it releases everything and is forgotten."""

    id: str


@dataclass(frozen=True, slots=True)
class PodPlaced:
    """A pod runs at a spot (initial pods of a scenario; leases found in the store at start).

    Accepted as given, even if it overcommits the node.
    """

    workload: str
    pod: str
    spot: Spot
    started: int
    """ms; when the workload last started."""
    state: Literal["running", "releasing"] = "running"


@dataclass(frozen=True, slots=True)
class PodNominated:
    """The last cycle before a snapshot promised this pending pod a node, which it prefers in the
    next cycle (`Cluster.nominated`).
    """

    workload: str
    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class PodEvicted:
    """An administrator, a drain or an idle rule evicted the pod: it is releasing from now on."""

    workload: str
    pod: str


@dataclass(frozen=True, slots=True)
class EvictionCancelled:
    """A releasing pod keeps its place: it was to give way because it was idle, and is in use."""

    workload: str
    pod: str


@dataclass(frozen=True, slots=True)
class ActivityReported:
    """Its agent reported what the workload's kernel does."""

    workload: str
    activity: Activity


@dataclass(frozen=True, slots=True)
class PodReleased:
    """A releasing pod has released its place. It is pending again with its age, or ended if its
    workload ends when evicted.
    """

    workload: str
    pod: str


@dataclass(frozen=True, slots=True)
class PodEnded:
    """The pod's process has ended for good."""

    workload: str
    pod: str
    outcome: Literal["succeeded", "failed"] = "succeeded"


@dataclass(frozen=True, slots=True)
class StaleSince:
    """A gang has been below its minimum since this time, ms (from a snapshot, or the store at
    start). Cycles set it otherwise.
    """

    workload: str
    since: int


@dataclass(frozen=True, slots=True)
class PendingSince:
    """Since when a pending workload has been waiting, ms (from a snapshot, or the store at
    start).
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


@dataclass(frozen=True, slots=True)
class PersonMeasured:
    """What a person has used so far of a pool in a project with rules between its members (from
    the store at start, or from a snapshot). `active_at`: when the person was waiting or held a
    share last (ms).
    """

    project: str
    pool: str
    user: str
    used: int
    """Milli-GPU-ms, decayed until `at` (ms)."""
    at: int
    served: int | None = None
    """The last time (ms) at which a share was held."""
    active_at: int | None = None


@dataclass(frozen=True, slots=True)
class PersonLimited:
    """A manager of the project limits one of its members, in all pools together and in addition to
    the policy's limits.
    """

    project: str
    user: str
    limit: PersonLimit


@dataclass(frozen=True, slots=True)
class WorkloadPromoted:
    """A manager of the project lets the workload have the next turn in its project; until it
    starts, or the promotion is withdrawn.
    """

    id: str
    promoted: bool


Event = (
    PolicyChanged
    | BookingsChanged
    | NodeJoined
    | NodeChanged
    | NodeLeft
    | WorkloadSubmitted
    | WorkloadHeld
    | WorkloadEnded
    | PodPlaced
    | PodEvicted
    | EvictionCancelled
    | ActivityReported
    | PodReleased
    | PodEnded
    | PodNominated
    | StaleSince
    | UsageMeasured
    | PendingSince
    | PersonLimited
    | PersonMeasured
    | WorkloadPromoted
)
