"""Turns: idle workloads give their shares to workloads whose cell waits.

An idle workload loses nothing: its memory is saved when it is in the way, and its next cell asks
again. So it needs no notice and is not placed elsewhere. Candidates are workloads with one pod of
the same project and of no higher priority, else those of projects above their fair share, under
the rules of reclaim. Rules: docs/explanation/scheduling.md, Turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..allocation.gang import Allocation
from ..cluster.pools import PoolState
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.time_sharing import TimeSharing, give_way_order
from ..cluster.work import Member, Work
from ..model.amounts import Amounts
from ..queueing.order import NextWorkload
from .evicted_units import EvictedUnits
from .node_victims import NodeVictims
from .reclaim import ReclaimStrategy, is_entitled
from .rescheduling import TentativeChanges
from .victim_candidates import EvictionUnit

__all__ = ["Rotation"]

MAX_TRIES: Final = 100
"""Bound on the simulations for one workload in one cycle."""
Validator = Callable[[list[EvictionUnit], Amounts], bool]


class Rotation:
    """The workloads of one pool whose turn is over, in the order in which they give way."""

    def __init__(self, state: State, pool: PoolState, rules: TimeSharing, now: int) -> None:
        self.state, self.pool, self.rules, self.now = state, pool, rules, now
        works = [work for queue in pool.queues.values() for _, work in queue.candidates]
        single = [work for work in works if isinstance(work, Work) and len(work.members) == 1]
        self.protected: list[tuple[int, Work]] = []
        """Workloads that give way later, and from when."""
        self.idle = self._over(single, rules.idle_from)
        self.idle.sort(key=lambda work: (give_way_order(work.activity), work.id))
        self.exceeded = self._over(single, rules.ends_at)
        """Their cell has run for longer than a turn."""
        self.exceeded.sort(key=lambda work: (work.activity.turn_since, work.id))

    def _over(self, works: list[Work], end: Callable[..., int | None]) -> list[Work]:
        found = []
        for work in works:
            ends_at = end(work.activity)
            if ends_at is not None and ends_at <= self.now:
                found.append(work)
            elif ends_at is not None:
                self.protected.append((ends_at, work))
        return found

    @property
    def has_any(self) -> bool:
        return bool(self.idle or self.exceeded or self.protected)

    def take(self, turn: NextWorkload) -> list[Member]:
        """Promises the workload a place and evicts those that give way for it, which are returned.
        None give way: nothing has changed.
        """
        equals = [work for work in self.idle if _is_equal(turn, work)]
        taken = self._make_room(turn, equals, lambda _units, _ask: True)
        if not taken and is_entitled(turn):
            strategy = ReclaimStrategy(self.state, self.pool, turn, self.now)
            others = [work for work in self.idle if work.project != turn.work.project]
            taken = self._make_room(
                turn, others, lambda units, ask: strategy.is_fair(EvictedUnits(units), ask)
            )
        return taken

    def interrupt(self, turn: NextWorkload) -> list[Member]:
        """The same with equals whose cell has run for too long."""
        equals = [work for work in self.exceeded if _is_equal(turn, work)]
        return self._make_room(turn, equals, lambda _units, _ask: True)

    def next_end(self, turn: NextWorkload) -> int | None:
        """When the next protected turn ends that this workload may take."""
        return min((end for end, work in self.protected if _is_equal(turn, work)), default=None)

    def is_host_full(self, turn: NextWorkload) -> bool:
        """Whether equals are idle, and only stay because their memory could not be saved."""
        for _, work in self.pool.queue(turn.work.project).candidates:
            activity = work.activity  # type: ignore[attr-defined]
            if activity.is_host_full and activity.idle_since is not None:
                return True
        return False

    def _make_room(
        self, turn: NextWorkload, works: list[Work], is_allowed: Validator
    ) -> list[Member]:
        tentative = TentativeChanges(self.state, self.pool)
        members = turn.work.members_to_place()
        units = [_unit(work, place) for place, work in enumerate(works)]
        units = [unit for unit in units if unit.members[0].status == "running"]
        search = _RoomSearch(self.state, self.pool, turn.work, units)
        if units and all(search.place(member) for member in members):
            taken = [unit for unit in units if unit.members[0].status == "releasing"]
            if is_allowed(taken, turn.ask):
                return [unit.members[0] for unit in taken]
        tentative.undo()
        return []


class _RoomSearch:
    """Makes room for the pods of one workload, one after the other."""

    def __init__(
        self, state: State, pool: PoolState, work: Work, units: list[EvictionUnit]
    ) -> None:
        self.state, self.pool, self.work, self.units = state, pool, work, units
        self.leaf = pool.queue(work.project)
        self.tries = MAX_TRIES

    def place(self, member: Member) -> bool:
        """Promises the pod a place that is free, or that the first units leave which suffice."""
        if self._promise(member):
            return True
        by_node = NodeVictims(self.pool.nodes)
        for unit in self.units:
            if unit.members[0].status != "running":
                continue
            by_node.add(unit)
            (host,) = unit.hosts
            if self._would_fit(member, by_node, host) and self._try(member, by_node.on(host)):
                return True
        return False

    def _promise(self, member: Member) -> bool:
        if refusal(self.leaf, member.need.stated, self.work):
            return False
        return Allocation(self.state, self.pool, self.work, pipeline_only=True).place(member)

    def _would_fit(self, member: Member, by_node: NodeVictims, host: str) -> bool:
        if self.tries <= 0 or host not in self.pool.bucket_of:
            return False
        admits = self.pool.nodes[host].admits(member.need)
        return admits and by_node.would_fit(member.need, host)

    def _try(self, member: Member, units: list[EvictionUnit]) -> bool:
        self.tries -= 1
        tentative = TentativeChanges(self.state, self.pool)
        for unit in units:
            (victim,) = unit.members
            self.state.put(victim, "releasing", victim.node, victim.devices)
        if not self._promise(member):
            tentative.undo()
            return False
        for unit in reversed(units):
            self._keep_if_possible(unit.members[0])
        return True

    def _keep_if_possible(self, victim: Member) -> None:
        """One that was not in the way keeps its share."""
        node = victim.node
        assert node is not None
        charge = victim.need.charge(node.capacity)
        work = victim.work
        if refusal(self.pool.queue(work.project), charge, work):
            return
        if node.fits_on_devices(victim.need, victim.devices):
            self.state.put(victim, "running", node, victim.devices, charge)


def _is_equal(turn: NextWorkload, work: Work) -> bool:
    return work.project == turn.work.project and work.priority <= turn.work.priority


def _unit(work: Work, place: int) -> EvictionUnit:
    unit = EvictionUnit(work, list(work.members.values()), extras=[])
    unit.place = place
    return unit
