"""The state of each workload and of its pods, and which pods are placed next."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from ..model.activity import UNREPORTED, Activity
from ..model.amounts import NOTHING, Amounts
from ..model.errors import InvalidInput
from ..model.model import Pod, Spot, SubGroup, Workload
from ..model.requirements import PodRequirements, RequirementsCache
from .nodes import NodeState

if TYPE_CHECKING:
    from .queue_positions import WaitingClass

__all__ = [
    "ACTIVE",
    "EquivalenceClass",
    "Member",
    "Place",
    "PodSet",
    "Status",
    "Work",
    "place_in_line",
]

Status = Literal["pending", "running", "bound", "pipelined", "releasing", "succeeded", "failed"]

ACTIVE: Final = frozenset({"running", "bound", "pipelined"})
"""Members that count towards a gang's minimum."""
FAR_LAST: Final = 1 << 62
NEXT: Final = -FAR_LAST
"""The priority of a workload that a manager has put first."""
Place = tuple[int, int]
"""The place of a pending workload among those of its queue and priority; the smallest is first."""


class Member:
    """One pod and its place. `old` and `old_devices`: the place that a moved pod has not left
    yet.
    """

    __slots__ = (
        "charge",
        "devices",
        "name",
        "need",
        "node",
        "nominated",
        "old",
        "old_devices",
        "podset",
        "pod",
        "status",
        "work",
    )

    def __init__(self, work: Work, podset: PodSet, pod: Pod, need: PodRequirements) -> None:
        self.work, self.podset, self.pod, self.name, self.need = work, podset, pod, pod.name, need
        self.status: Status = "pending"
        self.node: NodeState | None = None
        self.devices: tuple[int, ...] = ()
        self.charge: Amounts = NOTHING
        self.old: NodeState | None = None
        self.old_devices: tuple[int, ...] = ()
        self.nominated: str | None = None
        """The node that the last cycle promised."""

    @property
    def key(self) -> tuple[str, str]:
        return self.work.id, self.name

    def spot(self) -> Spot | None:
        """Where it is or is promised a place."""
        return None if self.node is None else Spot(self.node.name, self.devices, self.node.pool)

    def old_spot(self) -> Spot | None:
        """The place that it has not left, while it is promised another one."""
        return None if self.old is None else Spot(self.old.name, self.old_devices, self.old.pool)


class PodSet:
    """The pods of one sub-group (or of a workload without groups), in the order of placement."""

    __slots__ = (
        "active",
        "done",
        "members",
        "minimum",
        "name",
        "pending",
        "running",
        "used",
        "wanted",
    )

    def __init__(self, name: str, minimum: int) -> None:
        self.name, self.minimum, self.wanted, self.done = name, minimum, minimum, 0
        self.members: list[Member] = []
        self.active = self.used = self.pending = self.running = 0

    def waiting(self) -> Iterator[Member]:
        """Pending members in order."""
        return (member for member in self.members if member.status == "pending")

    def count_succeeded(self, sign: int) -> None:
        """Counts one more succeeded member (or, at -1, one less), which lowers the minimum
        (`Workload.done_counts`).
        """
        self.done += sign
        self.minimum = max(1, self.wanted - self.done)

    @property
    def is_ready(self) -> bool:
        """Whether enough members are alive to reach the minimum."""
        return self.active + self.pending >= self.minimum


class Work:
    """A workload in the cluster. `started` and `stale_since` are ms; None: never, not stale."""

    __slots__ = (
        "activity",
        "asks_for_memory",
        "eq_class",
        "eq_class_entry",
        "created",
        "held",
        "id",
        "listed",
        "max_running",
        "members",
        "nominated",
        "pending_since",
        "podsets",
        "preemptible",
        "priority",
        "project",
        "promoted",
        "room",
        "shape",
        "started",
        "succeeded",
        "stale_since",
        "takes_turns",
        "user",
        "workload",
    )

    def __init__(self, workload: Workload, needs: RequirementsCache) -> None:
        self.workload, self.id, self.project = workload, workload.id, workload.project
        self.priority, self.preemptible, self.created = (
            workload.priority,
            workload.preemptible,
            workload.created,
        )
        self.user, self.pending_since = workload.user, workload.created
        self.max_running, self.room = workload.max_running, workload.room
        self.started: int | None = None
        self.stale_since: int | None = None
        self.succeeded = 0
        self.held = workload.held
        self.promoted = False
        """Whether it has the next turn in its project."""
        self.activity: Activity = UNREPORTED
        self.takes_turns = False
        """Whether one of its node pools shares time; set when it is classified."""
        self.eq_class: EquivalenceClass | None = None
        self.eq_class_entry: tuple[int, str] | None = None
        """Its entry in `EquivalenceClass.members`."""
        self.listed: tuple[str, tuple[int, int, int, str]] | None = None
        """The pool and the key under which it is listed as a candidate for eviction."""
        self.podsets = _podsets(workload)
        self.members: dict[str, Member] = {}
        self.nominated = 0
        """How many members the last cycle promised a node."""
        by_name = {podset.name: podset for podset in self.podsets}
        for pod in sorted(
            workload.pods,
            key=lambda p: (-p.priority if p.priority is not None else FAR_LAST, p.name),
        ):
            self._adopt(pod, by_name, needs)
        for podset in self.podsets:
            if podset.minimum < 0:
                podset.minimum = len(podset.members)
            podset.minimum = podset.wanted = max(1, podset.minimum)
        self.asks_for_memory = any(m.need.memory for m in self.members.values())
        """Whether a pod asks for GPU memory, which is charged by the node's device size."""
        self.shape = (
            tuple((s.name, s.minimum, tuple(m.need for m in s.members)) for s in self.podsets),
            workload.topology,
            workload.groups,
            workload.max_running,
            workload.room,
        )

    def _adopt(self, pod: Pod, by_name: dict[str, PodSet], needs: RequirementsCache) -> None:
        if pod.name in self.members:
            raise InvalidInput(f"workload {self.id} has two pods named {pod.name}", field="pods")
        podset = by_name.get(pod.group if self.workload.groups else "")
        if podset is None:
            message = f"pod {pod.name} of workload {self.id}: there is no leaf group {pod.group!r}"
            raise InvalidInput(message, field="group")
        member = Member(self, podset, pod, needs.of(pod))
        podset.members.append(member)
        podset.pending += 1
        self.members[pod.name] = member

    def order_key(self) -> tuple[int, int, int, str]:
        """Order inside a project: priority; below, at or above the minimum; age; id."""
        return -self.priority, self.elastic(), self.created, self.id

    def pending_order_key(self) -> tuple[bool, int, int, int, int, str]:
        """The same among pending workloads, after those that the last cycle promised a place and
        those that a manager has put first.

        Otherwise an unplaceable large request of the same project would represent the queue,
        another queue would take the promised room, and the two would evict each other repeatedly.
        """
        priority = NEXT if self.promoted else -self.priority
        return not self.nominated, priority, self.elastic(), *place_in_line(self), self.id

    @property
    def waits_for_turn(self) -> bool:
        """Whether a cell of it waits at the gate where time is shared."""
        return self.takes_turns and self.activity.waits_since is not None

    def elastic(self) -> int:
        """0: a group is below its minimum; 1: all are exactly at it; 2: one is above."""
        state = 1
        for podset in self.podsets:
            if podset.active < podset.minimum:
                return 0
            if podset.active > podset.minimum:
                state = 2
        return state

    def members_to_place(self) -> list[Member]:
        """The members placed in one turn: those that each group lacks to its minimum, or one more
        above it.
        """
        if len(self.members) == 1:
            return [m for m in self.members.values() if m.status == "pending"]
        below = [s for s in self.podsets if s.active < s.minimum]
        below.sort(key=lambda s: (s.active / s.minimum, s.name))
        if below:
            return [m for s in below for m in list(s.waiting())[: s.minimum - s.active]]
        above = sorted(
            (s for s in self.podsets if s.pending), key=lambda s: (s.active / s.minimum, s.name)
        )
        return [next(above[0].waiting())] if above else []

    @property
    def is_fresh(self) -> bool:
        """Whether every pod is pending."""
        return all(podset.pending == len(podset.members) for podset in self.podsets)

    @property
    def is_ready(self) -> bool:
        return all(podset.is_ready for podset in self.podsets)

    @property
    def pending(self) -> int:
        return sum(podset.pending for podset in self.podsets)

    @property
    def running(self) -> int:
        return sum(podset.running for podset in self.podsets)

    @property
    def is_stale(self) -> bool:
        """Whether a gang lost members below its minimum and none succeeded."""
        if self.succeeded or not any(podset.used for podset in self.podsets):
            return False
        return any(podset.used < podset.minimum for podset in self.podsets)

    def pool(self) -> str | None:
        """The pool where it already runs, to which its other pods have to go."""
        for member in self.members.values():
            if member.node is not None and member.status in ACTIVE:
                return member.node.pool
        return None


def place_in_line(work: Work) -> Place:
    """Where time is shared, workloads whose cell waits come first, in the order in which the cells
    arrived: in the order of their own age, those that came first would have every turn. All others
    are ordered by age.
    """
    if work.takes_turns and work.activity.waits_since is not None:
        return 0, work.activity.waits_since
    return 1, work.created


class EquivalenceClass:
    """Pending workloads of one project that differ only in age: same pools, priority,
    preemptibility and shape, and same person where the project has rules between its members.

    If the oldest finds no room, neither do the others until something is released.
    """

    __slots__ = (
        "_asks",
        "classification",
        "found",
        "head_key",
        "key",
        "waiting_class",
        "members",
        "pools",
        "project",
        "ready",
        "refused",
        "sample",
        "tried",
        "user",
        "wants",
    )

    def __init__(
        self,
        key: tuple[object, ...],
        sample: Work,
        pools: tuple[str, ...],
        classification: object = None,
    ) -> None:
        self.classification = classification
        self.key, self.sample, self.project, self.pools = key, sample, sample.project, pools
        self.user = ""
        """The person, where the project has rules between its members."""
        self.members: list[tuple[int, str]] = []
        """(place in line, id), in order; those of one class have the same first part of a place."""
        self.ready = sample.is_ready
        self._asks: dict[int, Amounts] = {}
        self.wants: dict[str, Amounts] = {}
        """The request of one of them, per pool."""
        self.refused: dict[str, int] = {}
        """Per pool: the value of `PoolState.freed` at the last failure, which stands until that
        changes.
        """
        self.found: dict[str, tuple[int, int]] = {}
        """Per pool: how many pods of a gang had room in the last attempt, at which version."""
        self.tried: dict[tuple[str, str], int] = {}
        """Per pool and evicting action: the version of the pool at the last failure."""
        self.head_key = sample.pending_order_key()
        self.waiting_class: WaitingClass | None = None
        """The class in the last snapshot, reused by the next one while its members are the same."""

    @property
    def is_room(self) -> bool:
        """Whether they keep GPUs free for a booking."""
        return self.sample.room is not None

    def ask(self, smallest: int) -> Amounts:
        """What one of them asks for in one turn, if this is the smallest GPU of the pool (MiB)."""
        known = self._asks.get(smallest)
        if known is None:
            known = NOTHING
            for member in self.sample.members_to_place():
                known = known.plus(member.need.estimate(smallest))
            if self.sample.is_fresh:  # others are placed pod by pod
                self._asks = {smallest: known}
        return known

    def join(self, work: Work) -> None:
        work.eq_class_entry = place_in_line(work)[1], work.id
        insort(self.members, work.eq_class_entry)
        self.waiting_class = None

    def leave(self, work: Work) -> None:
        assert work.eq_class_entry is not None
        del self.members[bisect_left(self.members, work.eq_class_entry)]
        self.waiting_class = None


def _podsets(workload: Workload) -> list[PodSet]:
    """One per leaf group, by name; -1 stands for "all its pods" until they are counted."""
    if not workload.groups:
        return [PodSet("", -1 if workload.min_pods is None else workload.min_pods)]
    leaves = list(_leaves(workload.groups))
    if len({leaf.name for leaf in leaves}) < len(leaves):
        raise InvalidInput(
            f"workload {workload.id} has two groups of the same name", field="groups"
        )
    return [
        PodSet(leaf.name, -1 if leaf.min_pods is None else leaf.min_pods)
        for leaf in sorted(leaves, key=lambda leaf: leaf.name)
    ]


def _leaves(groups: tuple[SubGroup, ...]) -> Iterator[SubGroup]:
    for group in groups:
        if group.groups:
            yield from _leaves(group.groups)
        else:
            yield group
