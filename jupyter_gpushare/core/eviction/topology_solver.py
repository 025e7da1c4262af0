"""Making room for workloads with topology or sub-groups: domain by domain, the whole tree at once.

Pod by pod, as in `solver`, would not do: the first pod's domain would decide for all of them.
Inside one required domain after the other, victims are evicted down the list until the whole tree
can be seated; who was evicted in vain stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..allocation.gang import Allocation
from ..cluster.nodes import NodeState
from ..cluster.pools import PoolState
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.topology import topology_named
from ..cluster.work import Work
from ..model.amounts import Amounts
from ..queueing.order import asked
from .rescheduling import TentativeChanges, VictimRescheduler, is_touched
from .victim_candidates import EvictionUnit, VictimCandidates

__all__ = ["seat_structured"]

MAX_TRIES: Final = 200
"""Tries to seat the tree in one domain: every loop is bounded."""


def seat_structured(
    state: State,
    pool: PoolState,
    work: Work,
    victims: VictimCandidates,
    judge: Callable[[list[EvictionUnit], Amounts], bool],
) -> list[EvictionUnit] | None:
    """The units that were evicted or moved for it; None, and nothing changed, when there is no way."""
    units: list[EvictionUnit] = []
    while (unit := victims.next()) is not None:
        units.append(unit)
    for domain in _domains(state, pool, work):
        found = _DomainAttempt(state, pool, work, judge).solve(
            [u for u in units if domain.intersection(u.hosts)], domain
        )
        if found is not None:
            return found
    return None


def _domains(state: State, pool: PoolState, work: Work) -> list[frozenset[str]]:
    """Node names of each required domain of the whole workload, the one with most room first; else
    all nodes.
    """
    nodes = list(pool.ready_nodes())
    constraint = work.workload.topology
    topology = None if constraint is None else topology_named(state.policy, constraint.name)
    if constraint is None or constraint.required is None or topology is None:
        return [frozenset(n.name for n in nodes)]
    depth = topology.levels.index(constraint.required) + 1
    domains: dict[tuple[str, ...], list[NodeState]] = {}
    for node in nodes:
        if all(level in node.node.labels for level in topology.levels):
            domains.setdefault(
                tuple(node.node.labels[level] for level in topology.levels[:depth]), []
            ).append(node)
    ranked = sorted(domains.items(), key=lambda d: (-sum(n.room for n in d[1]), d[0]))
    return [frozenset(n.name for n in inside) for _, inside in ranked]


class _DomainAttempt:
    """The search in one domain."""

    def __init__(
        self,
        state: State,
        pool: PoolState,
        work: Work,
        judge: Callable[[list[EvictionUnit], Amounts], bool],
    ) -> None:
        self.state, self.pool, self.work, self.judge = state, pool, work, judge
        self.members = work.asking()
        self.ask = asked(self.members, pool.smallest)
        self.places = VictimRescheduler(state, pool)

    def solve(self, units: list[EvictionUnit], domain: frozenset[str]) -> list[EvictionUnit] | None:
        trial = TentativeChanges(self.state, self.pool)
        wanted, used = sum(m.need.whole for m in self.members), list[EvictionUnit]()
        patience, tries = 1, MAX_TRIES
        for unit in units:
            self.places.evict(unit)
            used.append(unit)
            patience -= 1
            if patience > 0 or tries == 0 or sum(self.pool.nodes[n].room for n in domain) < wanted:
                continue
            tries -= 1
            found = self._seat_all(used)
            if found is not None:
                return found
            patience = (
                1 + len(used) // 10
            )  # larger steps after more of them, so that the tries stay few
        found = self._seat_all(used) if used else None
        if found is None:
            trial.undo()
        return found

    def _seat_all(self, used: list[EvictionUnit]) -> list[EvictionUnit] | None:
        """The units that are still evicted or moved when everybody who could stay or be moved is."""
        trial = TentativeChanges(self.state, self.pool)
        seating = Allocation(self.state, self.pool, self.work, promise=True)
        is_refused = (
            refusal(self.pool.queue(self.work.project), self.ask, self.work.preemptible) is not None
        )
        if not is_refused and seating.seat_all(self.members):
            self.places.send_back(used)
            touched = [unit for unit in used if is_touched(unit)]
            if self.judge(touched, self.ask):
                return touched
        trial.undo()
        return None
