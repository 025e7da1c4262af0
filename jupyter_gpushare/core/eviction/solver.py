"""Making room: the fewest steps down the list of victims after which a workload can be promised a
place. Knows no rule of fairness.

For one asking pod after the other, victims are thought away in order until the pod would fit on a
node that hosts them; those are evicted in the journal, the pod and then the victims are seated
again in queue order, and the caller's rule judges what is left evicted. What was found for one pod
stays while the next one is served, so a gang costs the sum of its pods, not their product; only
victims that were moved make way again for later pods, as all of them come before. Source:
scheduling rules, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..allocation.gang import Allocation
from ..allocation.placement import best_seat
from ..cluster.pools import PoolState
from ..cluster.queues import QueueState, turn_key
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.work import Member, Work
from ..model.amounts import NOTHING, Amounts
from .rescheduling import TentativeChanges, VictimRescheduler, is_lost, is_moved, is_touched
from .smallest_victims import SmallestVictimSet
from .topology_solver import seat_structured
from .victim_candidates import EvictionUnit, VictimCandidates

__all__ = ["Judge", "Solver"]

Judge = Callable[[Sequence[EvictionUnit], Amounts], bool]
"""Whether these units may be evicted for a workload that asks for so much."""
MAX_TRIES: Final = 2000
"""Simulations for one workload before giving up in this cycle: every loop is bounded."""


class Solver:
    """Tries to seat one workload's asking members by evicting victims. On success the state holds
    the result, else it is unchanged.
    """

    def __init__(
        self,
        state: State,
        pool: PoolState,
        work: Work,
        victims: VictimCandidates,
        judge: Judge,
        *,
        max_moved: int | None = None,
        max_tries: int = MAX_TRIES,
    ) -> None:
        self.state, self.pool, self.work, self.victims, self.judge = (
            state,
            pool,
            work,
            victims,
            judge,
        )
        self.max_moved, self.tries = max_moved, max_tries
        self.leaf = pool.queue(work.project)
        self.asking = work.asking()
        self.places = VictimRescheduler(state, pool)
        self.ask = NOTHING
        self.units: list[EvictionUnit] = []
        self.lost: list[EvictionUnit] = []
        """Units that have no place any more, in the order of victims."""
        self.moved: list[EvictionUnit] = []
        """Units that were promised another place, which they give up again for the next pod."""
        self.by_host: dict[str, list[EvictionUnit]] = {}
        self.position = 0
        self.need: object = None
        self.cheapest: SmallestVictimSet | None = None
        self.is_outranked = False
        """Whether a victim came before the workload in the order of the queues."""

    def solve(self) -> bool:
        """Whether every asking member got a promise."""
        trial = TentativeChanges(self.state, self.pool)
        if self._is_solved():
            used = self.used
            self.places.send_back(used)
            self.places.keep_in_place(used, self.asking)
            if self._is_allowed(
                used
            ):  # once more for all of it: pods that found room by themselves count too
                self._take_over(used)
                return True
        trial.undo()
        return False

    @property
    def used(self) -> list[EvictionUnit]:
        """Units that were evicted or moved."""
        return [*self.lost, *self.moved]

    def _take_over(self, units: list[EvictionUnit]) -> None:
        self.lost, self.moved = (
            [u for u in units if is_lost(u)],
            [u for u in units if is_moved(u) and not is_lost(u)],
        )

    def _is_solved(self) -> bool:
        if not self.victims.exist:
            return (
                False  # without anybody to take from nothing is tried: allocate has failed already
            )
        if self.work.workload.topology is not None or self.work.workload.groups:
            found = seat_structured(self.state, self.pool, self.work, self.victims, self._judged)
            self._take_over(found or [])
            return found is not None
        if not all(self._help(member) for member in self.asking):
            return False
        if len(self.asking) > 1 and not self.is_outranked:
            self._seat_again()
        return True

    def _judged(self, used: list[EvictionUnit], ask: Amounts) -> bool:
        self.ask = ask
        return self._is_allowed(used)

    def _is_allowed(self, used: list[EvictionUnit], lost: list[EvictionUnit] | None = None) -> bool:
        """Whether the judge and the cap on moves allow it. `lost` are those units that were lost
        before and are not looked at again.
        """
        lost = _in_order([*(lost or ()), *(u for u in used if is_lost(u))])
        if self.max_moved is not None and len({u.work for u in (*lost, *used)}) > self.max_moved:
            return False
        return self.judge(lost, self.ask)

    # -- one pod
    # ---------------------------------------------------------------------------------------------------

    def _help(self, member: Member) -> bool:
        """Seats one more pod: on what is free by now, else by taking more."""
        self.ask = self.ask.plus(member.need.estimate(self.pool.smallest))
        trial = TentativeChanges(self.state, self.pool)
        moved = self._lift_moved()
        if self._seat(member):
            self._seat_units(moved)
            if not moved or self._is_allowed(moved, self.lost):
                self._add(moved)
                return True
        trial.undo()
        return self._make_room(member)

    def _add(self, units: list[EvictionUnit]) -> None:
        """Sorts units that were touched just now under lost and moved."""
        self.lost = _in_order([*self.lost, *(u for u in units if is_lost(u))])
        self.moved = [u for u in units if is_moved(u) and not is_lost(u)]

    def _lift_moved(self) -> list[EvictionUnit]:
        """Victims that were moved for earlier pods make way for this one, and are seated again
        behind it.
        """
        moved = list(reversed(self.moved))
        for unit in moved:
            self.places.lift(unit)
        return moved

    def _seat(self, member: Member) -> bool:
        """Promises the pod a place that is free, or is being left already."""
        if refusal(self.leaf, member.need.stated, self.work.preemptible):
            return False
        return Allocation(self.state, self.pool, self.work, promise=True).seat(member)

    def _seat_units(self, units: list[EvictionUnit]) -> None:
        for unit in units:
            self.places.seat(unit)

    def _make_room(self, member: Member) -> bool:
        """Goes down the list of victims until the pod fits. A like pod goes on where the last one
        stopped: what did not make room for that one does not for this one either.
        """
        if member.need is not self.need:
            self.need, self.position, self.by_host = member.need, 0, {}
        if self.pool.config.victims == "smallest":
            return self._make_room_cheaply(member)
        somewhere = (
            best_seat(self.pool, member.need) is not None
        )  # then a bound is in the way, and any victim may lift it
        while self.tries > 0:
            unit = self._unit_at(self.position)
            if unit is None:
                return False
            self.position += 1
            if unit.taken:
                continue
            for host in unit.hosts:
                self.by_host.setdefault(host, []).append(unit)
            if any(
                self._would_fit(member, host, somewhere) and self._try(member, self.by_host[host])
                for host in unit.hosts
            ):
                self._go_on(unit)
                return True
        return False

    def _go_on(self, unit: EvictionUnit) -> None:
        """Where the next pod begins: with the last victim again, as its host may have room for one
        more; or from the top, when that victim has also left a host where others alone did not make
        room before.
        """
        self.position = max(0, self.position - 1)
        if len(unit.hosts) > 1:
            self.position, self.by_host = 0, {}

    def _make_room_cheaply(self, member: Member) -> bool:
        """The same with the cheapest victims of all, by node (option `victims: smallest`)."""
        while self._unit_at(len(self.units)) is not None:
            continue
        if self.cheapest is None or self.cheapest.need is not member.need:
            self.cheapest = SmallestVictimSet(self.pool, member.need, self.units)
        while self.tries > 0 and (units := self.cheapest.next()) is not None:
            if self._try(member, units):
                for host in {h for u in units for h in u.hosts}:
                    self.cheapest.again(host)
                return True
        return False

    def _unit_at(self, position: int) -> EvictionUnit | None:
        if position == len(self.units):
            unit = self.victims.next()
            if unit is None:
                return None
            self.units.append(unit)
        return self.units[position]

    def _would_fit(self, member: Member, host: str, somewhere: bool) -> bool:
        node = self.pool.nodes.get(host)
        live = self.by_host[host] = [u for u in self.by_host[host] if not u.taken]
        if somewhere or node is None or host not in self.pool.where:
            return somewhere
        if not node.admits(member.need):
            return False
        moved_in = [
            m for u in self.moved for m in u.members if m.node is node and m.status == "pipelined"
        ]
        gone = [(m.need, m.devices) for u in live for m in u.members if m.node is node]
        return node.would_fit(member.need, gone + [(m.need, m.devices) for m in moved_in])

    def _try(self, member: Member, units: list[EvictionUnit]) -> bool:
        """Evicts, seats the pod and the victims again in queue order, and asks the judge; undone
        unless it says yes.
        """
        self.tries -= 1
        trial = TentativeChanges(self.state, self.pool)
        units = list(dict.fromkeys(units))
        moved = self._lift_moved()
        for unit in units:
            self.places.evict(unit)
        if self._seat_in_order(member, units):
            self._seat_units(moved)
            for unit in units:
                unit.taken = is_touched(unit)
            used = [*moved, *(u for u in units if u.taken)]
            if self._is_allowed(used, self.lost):
                self._add(used)
                return True
        trial.undo()
        for unit in units:
            unit.taken = False
        return False

    def _seat_in_order(self, member: Member, units: list[EvictionUnit]) -> bool:
        """Seats the pod and the victims as the queues would have it; whether the pod found a seat.
        Victims that come first get theirs back first.
        """
        waiting: list[EvictionUnit | None] = [None, *units]
        ask = member.need.estimate(self.pool.smallest)
        seated = False
        while waiting:
            lines: dict[QueueState, list[tuple[tuple[int, int, int, str], int]]] = {}
            for index, unit in enumerate(waiting):
                work = self.work if unit is None else unit.work
                lines.setdefault(self.pool.queue(work.project), []).append(
                    (work.order_key(), index)
                )
            asks = [ask if unit is None else unit.charge for unit in waiting]
            unit = waiting.pop(_next_in(lines, asks, self.pool.total))
            if unit is not None:
                self.places.seat(unit)
                self.is_outranked = self.is_outranked or not seated
            elif self._seat(member):
                seated = True
            else:
                return False
        return seated

    def _seat_again(self) -> None:
        """Seats the whole gang once more in its own order, now that all victims are known; the old
        seats stay if that fails.
        """
        trial = TentativeChanges(self.state, self.pool)
        moved = self._lift_moved()
        for member in self.asking:
            self.state.put(member, "pending")
        if all(self._seat(member) for member in self.asking):
            self._seat_units(moved)
            if self._is_allowed(moved, self.lost):
                self._add(moved)
                return
        trial.undo()


def _in_order(units: list[EvictionUnit]) -> list[EvictionUnit]:
    """As they came down the list of victims: the order in which they are charged decides whether
    the last one is fair.
    """
    return sorted(units, key=lambda unit: unit.place)


def _next_in(
    lines: dict[QueueState, list[tuple[tuple[int, int, int, str], int]]],
    asks: list[Amounts],
    total: Amounts,
) -> int:
    """The index of whoever is served first among a few workloads, walking the tree of their queues
    from the top.
    """
    firsts = {leaf: min(line)[1] for leaf, line in lines.items()}
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
                else min(siblings, key=lambda q: turn_key(q, asks[firsts[q]], total))
            )
            first = firsts[best]
            for queue in siblings:
                del firsts[queue]
            if parent is None:
                return first
            firsts[parent] = first
    return next(iter(firsts.values()))
