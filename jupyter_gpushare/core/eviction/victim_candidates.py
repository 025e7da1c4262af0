"""Who would have to give way, in which order. Finds candidates; whether taking from them is fair is
for `reclaim` and `preempt` to say.

The order is that of service reversed: first from the queue that would be served last, in it from
the lowest priority, above-minimum pods before gangs, the newest first. Source: scheduling rules,
sections 3.5 and 5.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable

from ..cluster.pools import PoolState
from ..cluster.queues import QueueState, TurnKey, victim_key
from ..cluster.work import Member, Work
from ..model.amounts import NOTHING, Amounts

__all__ = ["ALL", "NONE", "SURPLUS", "EvictionUnit", "VictimCandidates", "chunks"]

NONE, SURPLUS, ALL = 0, 1, 2
"""How much of a workload may be taken: nothing, members above the minimum, or everything."""
JobKey = tuple[int, int, int, str]


class EvictionUnit:
    """Pods that are taken together: one surplus pod, or all that a workload has left."""

    __slots__ = ("charge", "hosts", "members", "place", "taken", "work")

    def __init__(self, work: Work, members: list[Member]) -> None:
        self.work, self.members = work, members
        self.hosts = sorted({m.node.name for m in members if m.node is not None})
        self.charge = _sum(m.charge for m in members)
        self.place = 0
        """Its place in the order of victims, in which they are charged."""
        self.taken = False
        """Already given up or moved for the workload that is being helped."""


class VictimCandidates:
    """A stream of units from these queues. `accepts` says how much of a workload may be taken."""

    def __init__(
        self,
        pool: PoolState,
        leaves: Iterable[QueueState],
        accepts: Callable[[Work], int],
        exist: bool | None = None,
    ) -> None:
        self.pool, self.accepts = pool, accepts
        self.count = 0
        self.stacks: dict[QueueState, list[tuple[JobKey, Work]]] = {}
        self.gone: dict[Work, set[Member]] = {}
        self.top: dict[QueueState, EvictionUnit] = {}
        self.taken: dict[QueueState, Amounts] = {}
        self.levels: dict[QueueState | None, list[tuple[TurnKey, QueueState]]] = {}
        for leaf in leaves:
            self.stacks[leaf] = list(leaf.lenders)  # type: ignore[arg-type]  # queues do not know workloads
            self._advance(leaf)
        queues = {queue for leaf in self.top for queue in leaf.path}
        for queue in sorted(queues, key=lambda q: (-len(q.path), q.name)):
            insort(self.levels.setdefault(queue.parent, []), (self._key(queue), queue))
        self.exist = bool(self.top) if exist is None else exist
        """Whether there is anybody to take from by kind, including queues that were left out
        because they hold no more than their share.
        """

    def next(self) -> EvictionUnit | None:
        """The next unit in order; None when there is none left."""
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

    def _key(self, queue: QueueState) -> TurnKey:
        best = queue
        while best not in self.top:
            best = self.levels[best][-1][1]
        return victim_key(
            queue, self.taken.get(queue, NOTHING), self.top[best].charge, self.pool.total
        )

    def _advance(self, leaf: QueueState) -> None:
        """Looks up what the queue would give next."""
        stack = self.stacks[leaf]
        while stack:
            _, work = stack.pop()
            allowed = self.accepts(work)
            unit = self._unit(work, allowed) if allowed else None
            if unit is not None:
                gone = self.gone.setdefault(work, set())
                gone.update(unit.members)
                if any(m.status == "running" and m not in gone for m in work.members.values()):
                    insort(stack, (self._key_without(work, gone), work))
                self.top[leaf] = unit
                return

    def _unit(self, work: Work, allowed: int) -> EvictionUnit | None:
        if len(work.members) == 1:
            return EvictionUnit(work, list(work.members.values())) if allowed == ALL else None
        gone = self.gone.get(work, set())
        above = [(s.active - _count(s.members, gone)) / s.minimum for s in work.podsets]
        fullest = max(range(len(above)), key=lambda i: (above[i], work.podsets[i].name))
        if above[fullest] > 1:
            surplus = [
                m for m in work.podsets[fullest].members if m.status == "running" and m not in gone
            ]
            return EvictionUnit(work, surplus[-1:]) if surplus else None
        if allowed == SURPLUS:
            return None
        return EvictionUnit(
            work, [m for m in work.members.values() if m.status == "running" and m not in gone]
        )

    def _key_without(self, work: Work, gone: set[Member]) -> JobKey:
        left = [(s.active - _count(s.members, gone), s.minimum) for s in work.podsets]
        elastic = 0 if any(n < m for n, m in left) else 2 if any(n > m for n, m in left) else 1
        return -work.priority, elastic, work.created, work.id


def _count(members: list[Member], gone: set[Member]) -> int:
    return sum(member in gone for member in members) if gone else 0


def _sum(charges: Iterable[Amounts]) -> Amounts:
    gpu = cpu = memory = 0
    for charge in charges:
        gpu, cpu, memory = gpu + charge[0], cpu + charge[1], memory + charge[2]
    return Amounts(gpu, cpu, memory)


def chunks(members: Iterable[tuple[Member, Amounts]]) -> list[Amounts]:
    """One workload's victims as they are charged: members beyond the minimum of their set one by
    one, then all others at once (section 6.3).
    """
    core, single = NOTHING, []
    seen: dict[object, int] = {}
    for member, charge in members:
        count = seen[member.podset] = seen.get(member.podset, 0) + 1
        if count > member.podset.minimum:
            single.append(charge)
        else:
            core = core.plus(charge)
    return [*single, core]
