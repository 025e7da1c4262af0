"""Making room: the fewest steps down the list of victims after which a workload can be promised a place. Knows no rule of fairness.

For one asking pod after the other, victims are thought away in order until the pod would fit on a node that hosts them; those are evicted
in the journal, the pod and then the victims are seated again in queue order, and the caller's rule judges what is left evicted. What was
found for one pod stays while the next one is served, so a gang costs the sum of its pods, not their product. Victims that fit somewhere
after all stay where they are if they can, else they move. Source: scheduling rules, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from .amounts import NOTHING, Amounts
from .devices import NodeState
from .gang import Seating
from .placement import best_seat
from .pools import PoolState
from .queue import QueueState, turn_key
from .quota import refusal
from .smallest import Cheapest
from .state import State
from .turns import asked
from .victims import Unit, Victims
from .work import Member, Work

__all__ = ["Judge", "Solver"]

Judge = Callable[[Sequence[Unit], Amounts], bool]
"""Whether these units may be evicted for a workload that asks for so much."""
MAX_TRIES: Final = 2000
"""Simulations for one workload before giving up in this cycle: every loop is bounded."""


class Solver:
    """Tries to seat one workload's asking members by evicting victims. On success the state holds the result, else it is unchanged."""

    def __init__(
        self, state: State, pool: PoolState, work: Work, victims: Victims, judge: Judge, *, max_moved: int | None = None,
        max_tries: int = MAX_TRIES,
    ) -> None:  # fmt: skip
        self.state, self.pool, self.work, self.victims, self.judge = state, pool, work, victims, judge
        self.max_moved, self.tries = max_moved, max_tries
        self.leaf = pool.queue(work.project)
        self.ask = NOTHING
        self.units: list[Unit] = []
        self.used: list[Unit] = []
        """Units that were evicted or moved."""
        self.by_host: dict[str, list[Unit]] = {}
        self.position = 0
        self.need: object = None
        self.cheapest: Cheapest | None = None

    def solve(self) -> bool:
        """Whether every asking member got a promise."""
        state, pool, mark = self.state, self.pool, self.state.journal.mark()
        version, freed = pool.version, pool.freed
        if not self.victims.exist:
            solved = False  # without anybody to take from nothing is tried: allocate has failed already
        elif self._is_structured():
            solved = self._solve_together()
        else:
            solved = all(self._help(member) for member in self.work.asking())
        if solved:
            self._send_back()
            self.used = [u for u in self.used if any(m.status != "running" for m in u.members)]
        if solved and self._is_allowed(self.used):  # once more for all of it: pods that found room by themselves count too
            return True
        state.journal.undo_to(mark)
        pool.version, pool.freed = version, freed
        return False

    @property
    def evicted(self) -> list[Unit]:
        """Units that lost their place and got no other."""
        return [unit for unit in self.used if any(m.status == "releasing" for m in unit.members)]

    def _is_structured(self) -> bool:
        return self.work.workload.topology is not None or bool(self.work.workload.groups)

    # -- pod by pod ------------------------------------------------------------------------------------------------

    def _help(self, member: Member) -> bool:
        self.ask = self.ask.plus(member.need.estimate(self.pool.smallest))
        return self._seat(member) or self._make_room(member)

    def _seat(self, member: Member) -> bool:
        """Promises the pod a place that is free, or is being left already."""
        if refusal(self.leaf, member.need.stated, self.work.preemptible):
            return False
        return Seating(self.state, self.pool, self.work, promise=True).seat(member)

    def _make_room(self, member: Member) -> bool:
        """Goes down the list of victims until the pod fits. A like pod goes on where the last one stopped: what did not make room
        for that one does not for this one either."""
        if member.need is not self.need:
            self.need, self.position, self.by_host = member.need, 0, {}
        if self.pool.config.victims == "smallest":
            return self._make_room_cheaply(member)
        somewhere = best_seat(self.pool, member.need) is not None  # then a bound is in the way, and any victim may lift it
        while self.tries > 0:
            unit = self._unit_at(self.position)
            if unit is None:
                return False
            self.position += 1
            if unit.taken:
                continue
            for host in unit.hosts:
                self.by_host.setdefault(host, []).append(unit)
            if any(self._would_fit(member, host, somewhere) and self._try(member, self.by_host[host]) for host in unit.hosts):
                self.position = max(0, self.position - 1)  # its host may have room for one more
                return True
        return False

    def _make_room_cheaply(self, member: Member) -> bool:
        """The same with the cheapest victims of all, by node (option `victims: smallest`)."""
        while self._unit_at(len(self.units)) is not None:
            continue
        if self.cheapest is None or self.cheapest.need is not member.need:
            self.cheapest = Cheapest(self.pool, member.need, self.units)
        while self.tries > 0 and (units := self.cheapest.next()) is not None:
            if self._try(member, units):
                for host in {h for u in units for h in u.hosts}:
                    self.cheapest.again(host)
                return True
        return False

    def _unit_at(self, position: int) -> Unit | None:
        if position == len(self.units):
            unit = self.victims.next()
            if unit is None:
                return None
            self.units.append(unit)
        return self.units[position]

    def _would_fit(self, member: Member, host: str, somewhere: bool) -> bool:
        node = self.pool.nodes.get(host)
        if node is None or host not in self.pool.where:
            return somewhere
        live = [u for u in self.by_host[host] if not u.taken]
        self.by_host[host] = live
        if somewhere:
            return True
        if not node.admits(member.need):
            return False
        return node.would_fit(member.need, [(m.need, m.devices) for u in live for m in u.members if m.node is node])

    def _try(self, member: Member, units: list[Unit]) -> bool:
        """Evicts, seats the pod and the victims again in queue order, and asks the judge; undone unless it says yes."""
        self.tries -= 1
        state, pool, mark = self.state, self.pool, self.state.journal.mark()
        version, freed = pool.version, pool.freed
        units = list(dict.fromkeys(units))
        for unit in units:
            self._evict(unit)
        if self._seat_in_order(member, units):
            for unit in units:
                unit.taken = any(m.status != "running" for m in unit.members)
            used = [*self.used, *(u for u in units if u.taken)]
            if self._is_allowed(used):
                self.used = used
                return True
        state.journal.undo_to(mark)
        pool.version, pool.freed = version, freed
        for unit in units:
            unit.taken = False
        return False

    def _is_allowed(self, used: list[Unit]) -> bool:
        if self.max_moved is not None and len({u.work for u in used}) > self.max_moved:
            return False
        return self.judge([u for u in used if any(m.status == "releasing" for m in u.members)], self.ask)

    def _evict(self, unit: Unit) -> None:
        for member in unit.members:
            self.state.put(member, "releasing", member.node, member.devices)

    def _seat_in_order(self, member: Member, units: list[Unit]) -> bool:
        """Seats the pod and the victims as the queues would have it; whether the pod found a seat. Victims that come first get theirs
        back first."""
        waiting: list[Unit | None] = [None, *units]
        ask = member.need.estimate(self.pool.smallest)
        seated = False
        while waiting:
            lines: dict[QueueState, list[tuple[tuple[int, int, int, str], int]]] = {}
            for index, unit in enumerate(waiting):
                work = self.work if unit is None else unit.work
                lines.setdefault(self.pool.queue(work.project), []).append((work.order_key(), index))
            asks = [ask if unit is None else unit.charge for unit in waiting]
            unit = waiting.pop(_next_in(lines, asks, self.pool.total))
            if unit is not None:
                self._seat_unit(unit)
            elif self._seat(member):
                seated = True
            else:
                return False
        return seated

    def _seat_unit(self, unit: Unit) -> bool:
        """All of its pods, or none."""
        state, pool, mark = self.state, self.pool, self.state.journal.mark()
        version, freed = pool.version, pool.freed
        leaf = pool.queue(unit.work.project)
        if not refusal(leaf, unit.charge, unit.work.preemptible):
            evicted = [m for m in unit.members if m.status == "releasing"]
            if Seating(state, pool, unit.work, promise=True).seat_all(evicted):
                return True
        state.journal.undo_to(mark)
        pool.version, pool.freed = version, freed
        return False

    def _send_back(self) -> None:
        """Moved pods whose old place is still free stay there, and evicted ones that now fit somewhere keep running or move."""
        for unit in reversed(self.used):
            for member in unit.members:
                old = member.old
                if member.status == "pipelined" and old is not None and old.is_free_on(member.need, member.old_devices):
                    self.state.put(member, "running", old, member.old_devices, member.need.charge(old.capacity))
            if all(m.status == "releasing" for m in unit.members):
                self._stay_or_move(unit)

    def _stay_or_move(self, unit: Unit) -> None:
        mark = self.state.journal.mark()
        version, freed = self.pool.version, self.pool.freed
        if refusal(self.pool.queue(unit.work.project), unit.charge, unit.work.preemptible):
            return  # the bound that it was evicted for
        for member in unit.members:
            node = member.node
            if node is not None and node.is_free_on(member.need, member.devices):
                self.state.put(member, "running", node, member.devices, member.need.charge(node.capacity))
        if all(m.status == "running" for m in unit.members):
            return
        self.state.journal.undo_to(mark)
        self.pool.version, self.pool.freed = version, freed
        self._seat_unit(unit)

    # -- workloads with topology or sub-groups ---------------------------------------------------------------------

    def _solve_together(self) -> bool:
        """Evicts down the list, inside one required domain after the other, until the whole tree can be seated; who was evicted in vain
        stays. Pod by pod would not do: the first pod's domain decides for all."""
        members = self.work.asking()
        self.ask = asked(members, self.pool.smallest)
        while self._unit_at(len(self.units)) is not None:
            continue
        return any(self._solve_inside(domain, members) for domain in self._domains())

    def _domains(self) -> list[frozenset[str]]:
        """Node names of each required domain of the whole workload, the one with most room first; else all nodes."""
        nodes = list(self.pool.ready_nodes())
        constraint = self.work.workload.topology
        if constraint is None or constraint.required is None:
            return [frozenset(n.name for n in nodes)]
        levels = next(t.levels for t in self.state.policy.topologies if t.name == constraint.name)
        depth = levels.index(constraint.required) + 1
        domains: dict[tuple[str, ...], list[NodeState]] = {}
        for node in nodes:
            if all(level in node.node.labels for level in levels):
                domains.setdefault(tuple(node.node.labels[level] for level in levels[:depth]), []).append(node)
        ranked = sorted(domains.items(), key=lambda d: (-sum(n.room for n in d[1]), d[0]))
        return [frozenset(n.name for n in inside) for _, inside in ranked]

    def _solve_inside(self, domain: frozenset[str], members: list[Member]) -> bool:
        state, pool, mark = self.state, self.pool, self.state.journal.mark()
        version, freed = pool.version, pool.freed
        self.used = []
        wanted = sum(m.need.whole for m in members)
        patience = 1
        for unit in self.units:
            if not domain.intersection(unit.hosts):
                continue
            self._evict(unit)
            self.used.append(unit)
            patience -= 1
            if patience > 0 or sum(pool.nodes[n].room for n in domain) < wanted or self.tries <= 0:
                continue
            self.tries -= 1
            if self._seat_all(members):
                return True
            patience = 1 + len(self.used) // 10  # a larger step after more of them, so that the tries stay few
        if self.used and self._seat_all(members):
            return True
        state.journal.undo_to(mark)
        pool.version, pool.freed = version, freed
        return False

    def _seat_all(self, members: list[Member]) -> bool:
        mark = self.state.journal.mark()
        if refusal(self.leaf, asked(members, self.pool.smallest), self.work.preemptible):
            return False
        if not Seating(self.state, self.pool, self.work, promise=True).seat_all(members):
            return False
        self._send_back()
        if self._is_allowed([u for u in self.used if any(m.status != "running" for m in u.members)]):
            self.used = [u for u in self.used if any(m.status != "running" for m in u.members)]
            return True
        self.state.journal.undo_to(mark)
        return False


def _next_in(lines: dict[QueueState, list[tuple[tuple[int, int, int, str], int]]], asks: list[Amounts], total: Amounts) -> int:
    """The index of whoever is served first among a few workloads, walking the tree of their queues from the top."""
    firsts = {leaf: min(line)[1] for leaf, line in lines.items()}
    while len(firsts) > 1:  # merge the deepest siblings into their parent until one is left
        depth = max(len(queue.path) for queue in firsts)
        deepest = [queue for queue in firsts if len(queue.path) == depth]
        groups: dict[QueueState | None, list[QueueState]] = {}
        for queue in deepest:
            groups.setdefault(queue.parent, []).append(queue)
        for parent, siblings in groups.items():
            best = siblings[0] if len(siblings) == 1 else min(siblings, key=lambda q: turn_key(q, asks[firsts[q]], total))
            first = firsts[best]
            for queue in siblings:
                del firsts[queue]
            if parent is None:
                return first
            firsts[parent] = first
    return next(iter(firsts.values()))
