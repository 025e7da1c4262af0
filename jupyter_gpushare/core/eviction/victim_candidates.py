"""Candidates for eviction, in order.

The order reverses queue order: first the queue that would be served last, in it the lowest
priority, pods above a minimum before gangs, the newest first. Rules:
docs/explanation/scheduling.md, Making room.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable

from ..cluster.pools import PoolState
from ..cluster.queues import QueueOrderKey, QueueState, victim_order_key
from ..cluster.work import Member, Work
from ..model.amounts import NOTHING, Amounts

__all__ = ["ALL", "NONE", "SURPLUS", "EvictionUnit", "VictimCandidates", "with_extras"]

NONE, SURPLUS, ALL = 0, 1, 2
"""How much of a workload may be evicted: nothing, members above the minimum, or everything."""
JobKey = tuple[int, int, int, str]


class EvictionUnit:
    """Pods that are evicted together: one pod above the minimum, or all that a workload has
    left.
    """

    __slots__ = ("charge", "extras", "hosts", "is_core", "is_used", "members", "place", "work")

    def __init__(
        self, work: Work, members: list[Member], *, extras: list[EvictionUnit] | None = None
    ) -> None:
        self.work, self.members = work, members
        self.is_core = extras is not None
        """Whether it is all that a workload has left, and not one pod above its minimum."""
        self.extras = extras or []
        """Of a core: the units of the workload's pods above the minimum, which cannot stay alone.
        """
        self.hosts = sorted({m.node.name for m in members if m.node is not None})
        self.charge = _sum(m.charge for m in members)
        self.place = 0
        """Its position in victim order, in which units are charged."""
        self.is_used = False
        """Whether it was already evicted or moved for the pending workload."""


class VictimCandidates:
    """A stream of units from these queues. `eligibility` says how much of a workload may be
    evicted.
    """

    def __init__(
        self,
        pool: PoolState,
        leaves: Iterable[QueueState],
        eligibility: Callable[[Work], int],
        has_any: bool = False,
    ) -> None:
        self.pool, self.eligibility = pool, eligibility
        self.has_any = has_any
        """Whether there are candidates at all, including queues left out because they hold no more
        than their share, and gangs of which a pod was moved in this cycle.
        """
        self.count = 0
        self.stacks: dict[QueueState, list[tuple[JobKey, Work]]] = {}
        self.selected: dict[Work, set[Member]] = {}
        self.extras: dict[Work, list[EvictionUnit]] = {}
        self.top: dict[QueueState, EvictionUnit] = {}
        self.taken: dict[QueueState, Amounts] = {}
        self.levels: dict[QueueState | None, list[tuple[QueueOrderKey, QueueState]]] = {}
        for leaf in leaves:
            # queues do not know workloads
            self.stacks[leaf] = list(leaf.candidates)  # type: ignore[arg-type]
            self._advance(leaf)
        queues = {queue for leaf in self.top for queue in leaf.path}
        for queue in sorted(queues, key=lambda q: (-len(q.path), q.name)):
            insort(self.levels.setdefault(queue.parent, []), (self._key(queue), queue))

    def next(self) -> EvictionUnit | None:
        """The next unit in order; None when none is left."""
        level = self.levels.get(None)
        if not level:
            return None
        path: list[QueueState] = []
        while True:
            queue = level[-1][1]
            path.append(queue)
            if queue in self.top:
                break
            level = self.levels[queue]
        unit = self.top.pop(queue)
        for above in path:
            self.taken[above] = self.taken.get(above, NOTHING).plus(unit.charge)
        self.count += 1
        unit.place = self.count
        self._advance(queue)
        for above in reversed(path):
            level = self.levels[above.parent]
            level.pop()
            if above in self.top or self.levels.get(above):
                insort(level, (self._key(above), above))
        return unit

    def _key(self, queue: QueueState) -> QueueOrderKey:
        best = queue
        while best not in self.top:
            best = self.levels[best][-1][1]
        return victim_order_key(
            queue, self.taken.get(queue, NOTHING), self.top[best].charge, self.pool.total
        )

    def _advance(self, leaf: QueueState) -> None:
        """Finds the next unit of this queue."""
        stack = self.stacks[leaf]
        while stack:
            _, work = stack.pop()
            allowed = self.eligibility(work)
            self.has_any = self.has_any or bool(allowed)
            unit = self._unit(work, allowed) if allowed else None
            if unit is not None:
                selected = self.selected.setdefault(work, set())
                selected.update(unit.members)
                if any(m.status == "running" and m not in selected for m in work.members.values()):
                    insort(stack, (self._key_without(work, selected), work))
                self.top[leaf] = unit
                return

    def _unit(self, work: Work, allowed: int) -> EvictionUnit | None:
        if len(work.members) == 1:
            if allowed != ALL:
                return None
            return EvictionUnit(work, list(work.members.values()), extras=[])
        selected = self.selected.get(work, set())
        above = [(s.active - _count(s.members, selected)) / s.minimum for s in work.podsets]
        fullest = max(range(len(above)), key=lambda i: (above[i], work.podsets[i].name))
        if above[fullest] > 1:
            surplus = [
                m
                for m in work.podsets[fullest].members
                if m.status == "running" and m not in selected
            ]
            return self._extra(work, surplus)
        if allowed == SURPLUS or not _is_settled(work):
            return None
        core = [m for m in work.members.values() if m.status == "running" and m not in selected]
        return EvictionUnit(work, core, extras=self.extras.get(work, []))

    def _extra(self, work: Work, surplus: list[Member]) -> EvictionUnit | None:
        """The last of the pods above the minimum; None: they do not run yet."""
        if not surplus:
            return None
        unit = EvictionUnit(work, surplus[-1:])
        self.extras.setdefault(work, []).append(unit)
        return unit

    def _key_without(self, work: Work, selected: set[Member]) -> JobKey:
        left = [(s.active - _count(s.members, selected), s.minimum) for s in work.podsets]
        elastic = 0 if any(n < m for n, m in left) else 2 if any(n > m for n, m in left) else 1
        return -work.priority, elastic, work.created, work.id


def _is_settled(work: Work) -> bool:
    """Whether all its active pods run. Pods that were bound or promised a place in this cycle are
    no victims, and could not stay alone.
    """
    return all(podset.active == podset.running for podset in work.podsets)


def with_extras(units: Iterable[EvictionUnit]) -> list[EvictionUnit]:
    """These units, with the pods above the minimum of each workload whose core is among them."""
    found: dict[EvictionUnit, None] = {}
    for unit in units:
        for extra in unit.extras:
            if extra.members[0].status == "running":
                found[extra] = None
        found[unit] = None
    return list(found)


def _count(members: list[Member], selected: set[Member]) -> int:
    return sum(member in selected for member in members) if selected else 0


def _sum(charges: Iterable[Amounts]) -> Amounts:
    gpu = cpu = memory = 0
    for charge in charges:
        gpu, cpu, memory = gpu + charge[0], cpu + charge[1], memory + charge[2]
    return Amounts(gpu, cpu, memory)
