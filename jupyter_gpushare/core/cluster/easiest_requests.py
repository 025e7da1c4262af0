"""The easiest pending requests: what none of them can do, none of the others can.

Requests are comparable if they have the same project, pools and constraints. One is easier than
another if it has at least its priority, and asks for no more pods and for no more of anything. A
cycle with thousands of different requests then costs what the few easiest ones cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.requirements import PodRequirements
from .work import EquivalenceClass, Member, Work

__all__ = [
    "EasiestRequests",
    "RequestGroup",
    "RequestSize",
    "constraints",
    "covers",
    "is_comparable",
    "request_sizes",
]

RequestSize = tuple[int, int, int, int, int]
"""(whole GPUs, share, MiB of GPU memory, CPU, memory) of one pod."""


def is_comparable(work: Work, members: Sequence[Member]) -> bool:
    """Requests with sub-groups, topology, affinity, MIG or a promised node are not."""
    if work.workload.topology is not None or work.workload.groups:
        return False
    return not any(
        m.need.mig or m.need.affinity or m.need.anti_affinity or m.nominated for m in members
    )


def constraints(members: Sequence[Member]) -> tuple[object, ...]:
    """What must be equal: where the pods may run, and how they ask for GPUs."""
    found = {_constraint(member.need) for member in members}
    return tuple(sorted(found, key=repr)) if len(found) > 1 else tuple(found)


def _constraint(need: PodRequirements) -> tuple[object, ...]:
    is_whole, is_share = bool(need.whole), bool(need.share)
    return need.selector, need.node_names, need.tolerations, need.devices, is_whole, is_share


def request_sizes(members: Sequence[Member]) -> tuple[RequestSize, ...]:
    """Largest first."""
    needs = [m.need for m in members]
    return tuple(sorted(((n.whole, n.share, n.memory, n.cpu, n.ram) for n in needs), reverse=True))


def covers(sizes: Sequence[RequestSize], other: Sequence[RequestSize]) -> bool:
    """Whether `sizes` asks for at least as many pods, each at least as large in every resource."""
    if len(sizes) < len(other):
        return False
    return all(
        all(mine >= theirs for mine, theirs in zip(a, b, strict=True))
        for a, b in zip(sizes, other, strict=False)
    )


class RequestGroup:
    """Comparable requests of one project."""

    __slots__ = ("_easiest", "_sizes", "is_single")

    def __init__(self, is_single: bool) -> None:
        self.is_single = is_single
        """Whether each asks for one pod."""
        self._sizes: dict[EquivalenceClass, tuple[RequestSize, ...]] = {}
        self._easiest: list[EquivalenceClass] | None = []

    def __bool__(self) -> bool:
        return bool(self._sizes)

    def all(self) -> Sequence[EquivalenceClass]:
        return list(self._sizes)

    def add(self, eq_class: EquivalenceClass, sizes: tuple[RequestSize, ...]) -> None:
        self._sizes[eq_class] = sizes
        if self._easiest is not None:
            self._insert(self._easiest, eq_class)

    def remove(self, eq_class: EquivalenceClass) -> None:
        del self._sizes[eq_class]
        if self._easiest is not None and eq_class in self._easiest:
            self._easiest = None  # others were left out because of it

    def easiest(self) -> Sequence[EquivalenceClass]:
        """Those than which none is easier."""
        if self._easiest is None:
            self._easiest = []
            for eq_class in self._sizes:
                self._insert(self._easiest, eq_class)
        return self._easiest

    def _insert(self, easiest: list[EquivalenceClass], new: EquivalenceClass) -> None:
        if not any(self._is_easier(known, new) for known in easiest):
            easiest[:] = [known for known in easiest if not self._is_easier(new, known)]
            easiest.append(new)

    def _is_easier(self, one: EquivalenceClass, other: EquivalenceClass) -> bool:
        return one.sample.priority >= other.sample.priority and covers(
            self._sizes[other], self._sizes[one]
        )


class EasiestRequests:
    """Groups of pending requests per list of pools, kept up to date as classes come and go."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, ...], dict[tuple[object, ...], RequestGroup]] = {}
        self._keys: dict[EquivalenceClass, tuple[object, ...]] = {}
        self._others: dict[tuple[str, ...], dict[EquivalenceClass, None]] = {}

    def add(self, eq_class: EquivalenceClass) -> None:
        """Adds a new class, unless it is not ready to be placed."""
        if not eq_class.ready:
            return
        work = eq_class.sample
        members = work.members_to_place()
        if not (work.is_fresh and is_comparable(work, members)):
            self._others.setdefault(eq_class.pools, {})[eq_class] = None
            return
        rank = work.project, work.preemptible, eq_class.user, work.waits_for_turn
        key = (*rank, len(members) == 1, constraints(members))
        self._keys[eq_class] = key
        groups = self._groups.setdefault(eq_class.pools, {})
        if key not in groups:
            groups[key] = RequestGroup(len(members) == 1)
        groups[key].add(eq_class, request_sizes(members))

    def remove(self, eq_class: EquivalenceClass) -> None:
        """Removes a class that has no members any more."""
        self._others.get(eq_class.pools, {}).pop(eq_class, None)
        key = self._keys.pop(eq_class, None)
        if key is not None:
            groups = self._groups[eq_class.pools]
            groups[key].remove(eq_class)
            if not groups[key]:
                del groups[key]

    def groups(self, pool: str) -> list[RequestGroup]:
        """Comparable requests for this pool alone."""
        return list(self._groups.get((pool,), {}).values())

    def others(self, pool: str) -> list[EquivalenceClass]:
        """Requests for this pool alone that are not comparable."""
        return list(self._others.get((pool,), ()))
