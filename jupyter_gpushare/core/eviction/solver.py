"""Finds the shortest prefix of the victim list that makes room for a workload.

For one pending pod after the other, victims are assumed gone in order until the pod would fit on
one of their nodes. These are evicted tentatively, the pod and then the victims are placed again in
queue order, and the caller's validator judges what remains evicted. The result for one pod is kept
while the next is served, so a gang costs the sum of its pods, not their product. Victims that were
moved make way again for later pods, which precede them. Rules: docs/explanation/scheduling.md,
Making room.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..allocation.gang import Allocation
from ..allocation.placement import best_assignment
from ..cluster.pools import PoolState
from ..cluster.queues import QueueState, queue_order_key
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.work import Member, Work
from ..model.amounts import NOTHING, Amounts
from .evicted_units import EvictedUnits
from .hooks import EVICTION_LIMIT, VICTIM_SELECTION, SelectVictims, VictimSelection
from .node_victims import NodeVictims
from .rescheduling import TentativeChanges, VictimRescheduler, is_affected, is_evicted, is_moved
from .topology_solver import place_structured
from .victim_candidates import EvictionUnit, VictimCandidates, with_extras

__all__ = ["Validator", "Solver"]

Validator = Callable[[EvictedUnits, Amounts], bool]
"""Whether these units may be evicted for a workload that asks for this amount."""
MAX_TRIES: Final = 2000
"""Bound on the simulations for one workload in one cycle."""


class Solver:
    """Places one workload's pods by evicting victims. On failure the state is unchanged."""

    def __init__(
        self,
        state: State,
        pool: PoolState,
        work: Work,
        victims: VictimCandidates,
        validator: Validator,
        *,
        max_moved: int | None = None,
        max_tries: int = MAX_TRIES,
    ) -> None:
        self.state, self.pool, self.work, self.victims, self.validator = (
            state,
            pool,
            work,
            victims,
            validator,
        )
        self.max_moved, self.tries, self._most = max_moved, max_tries, max_tries
        self.leaf = pool.queue(work.project)
        self.members_to_place = work.members_to_place()
        self.rescheduler = VictimRescheduler(state, pool)
        self.ask = NOTHING
        self.units: list[EvictionUnit] = []
        self.affected: list[EvictionUnit] = []
        """The result: units that were evicted, then units that were moved."""
        self.evicted = EvictedUnits()
        """Units that have lost their place."""
        self.moved: list[EvictionUnit] = []
        """Units that were promised another place, which they give up again for the next pod."""
        self.by_node = NodeVictims(pool.nodes)
        self.position = 0
        self.need: object = None
        self.selection: VictimSelection | None = None
        self.is_outranked = False
        """Whether a victim precedes the workload in queue order."""

    @property
    def trials(self) -> int:
        """Simulations so far, at least one."""
        return max(1, self._most - self.tries)

    def solve(self) -> bool:
        """Whether every pod was promised a place."""
        tentative = TentativeChanges(self.state, self.pool)
        affected = self._search()
        if affected is not None:
            self.rescheduler.restore(affected)
            self.rescheduler.keep_in_place(affected, self.members_to_place)
            # validates all of it again, with pods that found room without evictions
            if self._allowed(affected, EvictedUnits()) is not None:
                self.affected = _evicted_first(affected)
                return True
        tentative.undo()
        return False

    def _search(self) -> list[EvictionUnit] | None:
        """The units that were evicted or moved; None: not every pod found a place."""
        if not self.victims.has_any:
            return None  # without candidates nothing is tried, since allocate has failed already
        if self.work.workload.topology is not None or self.work.workload.groups:
            found = place_structured(
                self.state, self.pool, self.work, self.victims, self._validate_all
            )
            return None if found is None else _evicted_first(found)
        if not all(self._place_pod(member) for member in self.members_to_place):
            return None
        if len(self.members_to_place) > 1 and not self.is_outranked:
            self._place_again()
        return [*self.evicted, *self.moved]

    def _validate_all(self, affected: list[EvictionUnit], ask: Amounts) -> bool:
        self.ask = ask
        return self._allowed(affected, EvictedUnits()) is not None

    def _allowed(self, affected: list[EvictionUnit], earlier: EvictedUnits) -> EvictedUnits | None:
        """All evicted units, if the validator and the cap on moves allow them; `earlier` were
        evicted before.
        """
        evicted = earlier.grown(filter(is_evicted, affected))
        if (
            self.max_moved is not None
            and len({u.work for u in (*evicted, *affected)}) > self.max_moved
        ):
            return None
        if not all(allows(evicted) for allows in EVICTION_LIMIT.all(self.pool.config)):
            return None
        return evicted if self.validator(evicted, self.ask) else None

    # -- one pod

    def _place_pod(self, member: Member) -> bool:
        """Places one more pod: on free resources, else by evicting more."""
        self.ask = self.ask.plus(member.need.estimate(self.pool.smallest))
        tentative = TentativeChanges(self.state, self.pool)
        moved = self._withdraw_moved()
        if self._place(member):
            moved = self._reschedule(moved)
            if not moved or self._accept(moved):
                return True
        tentative.undo()
        return self._make_room(member)

    def _accept(self, affected: list[EvictionUnit]) -> bool:
        """Sorts units that were just affected into evicted and moved, if they are allowed."""
        evicted = self._allowed(affected, self.evicted)
        if evicted is None:
            return False
        for unit in affected:
            unit.is_used = True
        self.evicted = evicted
        self.moved = [u for u in affected if is_moved(u) and not is_evicted(u)]
        self.by_node.drop_used(affected, self.moved)
        return True

    def _withdraw_moved(self) -> list[EvictionUnit]:
        """Withdraws victims that were moved for earlier pods; they are placed again behind this
        one.
        """
        moved = list(reversed(self.moved))
        for unit in moved:
            self.rescheduler.withdraw(unit)
        return moved

    def _place(self, member: Member) -> bool:
        """Promises the pod a place that is free or being released."""
        if refusal(self.leaf, member.need.stated, self.work):
            return False
        return Allocation(self.state, self.pool, self.work, pipeline_only=True).place(member)

    def _reschedule(self, units: list[EvictionUnit]) -> list[EvictionUnit]:
        """Places withdrawn units again, pods above a minimum last. Returns all affected units."""
        for unit in sorted(units, key=lambda unit: not unit.is_core):
            self.rescheduler.reschedule(unit)
        return list(dict.fromkeys([*units, *self.rescheduler.evict_extras(units)]))

    def _make_room(self, member: Member) -> bool:
        """Goes down the victim list until the pod fits.

        A pod with the same requirements continues where the last one stopped, since earlier victims
        do not make room for it either.
        """
        if member.need is not self.need:
            self.need, self.position = member.need, 0
            self.by_node.clear()
        if (select := VICTIM_SELECTION.first(self.pool.config)) is not None:
            return self._make_room_with(select, member)
        is_bound_only = (
            best_assignment(self.pool, member.need) is not None
        )  # if a node has room, the obstacle is a limit or quota, which any victim may lift
        while self.tries > 0:
            unit = self._unit_at(self.position)
            if unit is None:
                return False
            self.position += 1
            if unit.is_used:
                continue
            self.by_node.add(unit)
            if any(
                self._would_fit(member, host, is_bound_only)
                and self._try(member, self.by_node.on(host))
                for host in unit.hosts
            ):
                self._resume_after(unit)
                return True
        return False

    def _resume_after(self, unit: EvictionUnit) -> None:
        """Where the next pod continues: at the last victim again, whose node may have room for one
        more; or at the top, if that victim has also left another node.
        """
        self.position = max(0, self.position - 1)
        if len(unit.hosts) > 1:
            self.position = 0
            self.by_node.clear()

    def _make_room_with(self, select: SelectVictims, member: Member) -> bool:
        """The same with the victims that an option of the pool selects."""
        while self._unit_at(len(self.units)) is not None:
            continue
        if self.selection is None or self.selection.need is not member.need:
            self.selection = select(self.pool, member.need, self.units)
        while self.tries > 0 and (units := self.selection.next()) is not None:
            if self._try(member, units):
                for host in {h for u in units for h in u.hosts}:
                    self.selection.requeue(host)
                return True
        return False

    def _unit_at(self, position: int) -> EvictionUnit | None:
        if position == len(self.units):
            unit = self.victims.next()
            if unit is None:
                return None
            self.units.append(unit)
        return self.units[position]

    def _would_fit(self, member: Member, host: str, is_bound_only: bool) -> bool:
        node = self.pool.nodes.get(host)
        if is_bound_only or node is None or host not in self.pool.bucket_of:
            return is_bound_only
        return node.admits(member.need) and self.by_node.would_fit(member.need, host)

    def _try(self, member: Member, units: list[EvictionUnit]) -> bool:
        """Evicts, places the pod and the victims again in queue order, and validates; undone on
        failure.
        """
        self.tries -= 1
        tentative = TentativeChanges(self.state, self.pool)
        units = with_extras(units)
        moved = self._withdraw_moved()
        for unit in units:
            self.rescheduler.evict(unit)
        if self._place_in_order(member, units):
            moved = self._reschedule(moved)
            # a victim that keeps its node was not moved, and does not make way again
            placed = [m for m in self.members_to_place if m.status == "pipelined"]
            staying = [unit for unit in (*moved, *units) if _keeps_nodes(unit)]
            self.rescheduler.keep_in_place(staying, placed)
            lone = self.rescheduler.evict_extras(units)
            affected = list(dict.fromkeys([*moved, *filter(is_affected, units), *lone]))
            if self._accept(affected):
                return True
        tentative.undo()
        return False

    def _place_in_order(self, member: Member, units: list[EvictionUnit]) -> bool:
        """Places the pod and the victims in queue order; returns whether the pod was placed."""
        waiting: list[EvictionUnit | None] = [None, *units]
        ask = member.need.estimate(self.pool.smallest)
        is_placed = False
        while waiting:
            lines: dict[QueueState, list[tuple[tuple[int, int, int, str], int]]] = {}
            for index, unit in enumerate(waiting):
                work = self.work if unit is None else unit.work
                # of one workload the core comes first, which is the last of its units
                lines.setdefault(self.pool.queue(work.project), []).append(
                    (work.order_key(), -index)
                )
            asks = [ask if unit is None else unit.charge for unit in waiting]
            unit = waiting.pop(_next_in(lines, asks, self.pool.total))
            if unit is not None:
                self.rescheduler.reschedule(unit)
                self.is_outranked = self.is_outranked or not is_placed
            elif self._place(member):
                is_placed = True
            else:
                return False
        return is_placed

    def _place_again(self) -> None:
        """Places the whole gang again in its own order, now that all victims are known; keeps the
        old places if that fails.
        """
        tentative = TentativeChanges(self.state, self.pool)
        moved = self._withdraw_moved()
        for member in self.members_to_place:
            self.state.put(member, "pending")
        is_placed = all(self._place(member) for member in self.members_to_place)
        if is_placed and self._accept(self._reschedule(moved)):
            return
        tentative.undo()


def _keeps_nodes(unit: EvictionUnit) -> bool:
    """Whether each of its moved pods was promised other GPUs of its own node."""
    return all(m.node is m.old for m in unit.members if m.status == "pipelined")


def _evicted_first(units: list[EvictionUnit]) -> list[EvictionUnit]:
    """The evicted units, then those that were only moved."""
    evicted = [unit for unit in units if is_evicted(unit)]
    return [*evicted, *(unit for unit in units if is_moved(unit) and not is_evicted(unit))]


def _next_in(
    lines: dict[QueueState, list[tuple[tuple[int, int, int, str], int]]],
    asks: list[Amounts],
    total: Amounts,
) -> int:
    """The index of the workload served first among a few, walking the tree of queues from the
    top.
    """
    firsts = {leaf: -min(line)[1] for leaf, line in lines.items()}
    while len(firsts) > 1:  # merge the deepest siblings into their parent until one is left
        depth = max(len(queue.path) for queue in firsts)
        deepest = [queue for queue in firsts if len(queue.path) == depth]
        groups: dict[QueueState | None, list[QueueState]] = {}
        for queue in deepest:
            groups.setdefault(queue.parent, []).append(queue)
        for parent, siblings in groups.items():
            best = (
                siblings[0]
                if len(siblings) == 1
                else min(siblings, key=lambda q: queue_order_key(q, asks[firsts[q]], total))
            )
            first = firsts[best]
            for queue in siblings:
                del firsts[queue]
            if parent is None:
                return first
            firsts[parent] = first
    return next(iter(firsts.values()))
