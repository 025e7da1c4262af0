"""Makes room for workloads with topology or sub-groups: domain by domain, the whole tree at once.

Pod by pod, as in `solver`, the first pod would decide the domain for all. Inside each required
domain, victims are evicted down the list until the whole tree can be placed; needless victims stay.
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
from ..queueing.order import total_request
from .rescheduling import TentativeChanges, VictimRescheduler, is_affected
from .victim_candidates import EvictionUnit, VictimCandidates, with_extras

__all__ = ["place_structured"]

MAX_TRIES: Final = 200
"""Bound on the attempts to place the tree in one domain."""


def place_structured(
    state: State,
    pool: PoolState,
    work: Work,
    victims: VictimCandidates,
    validator: Callable[[list[EvictionUnit], Amounts], bool],
) -> list[EvictionUnit] | None:
    """The units that were evicted or moved; None if there is no solution, with nothing changed."""
    units: list[EvictionUnit] = []
    while (unit := victims.next()) is not None:
        units.append(unit)
    for domain in _domains(state, pool, work):
        found = _DomainAttempt(state, pool, work, validator).solve(
            [u for u in units if domain.intersection(u.hosts)], domain
        )
        if found is not None:
            return found
    return None


def _domains(state: State, pool: PoolState, work: Work) -> list[frozenset[str]]:
    """Node names of each required domain of the workload, the one with the most room first; else
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
        validator: Callable[[list[EvictionUnit], Amounts], bool],
    ) -> None:
        self.state, self.pool, self.work, self.validator = state, pool, work, validator
        self.members = work.members_to_place()
        self.ask = total_request(self.members, pool.smallest)
        self.rescheduler = VictimRescheduler(state, pool)

    def solve(self, units: list[EvictionUnit], domain: frozenset[str]) -> list[EvictionUnit] | None:
        tentative = TentativeChanges(self.state, self.pool)
        wanted, used = sum(m.need.whole for m in self.members), list[EvictionUnit]()
        until_next_try, tries = 1, MAX_TRIES
        for unit in units:
            if is_affected(unit):
                continue  # evicted with the core of its workload
            for one in with_extras([unit]):
                self.rescheduler.evict(one)
                used.append(one)
            until_next_try -= 1
            if (
                until_next_try > 0
                or tries == 0
                or sum(self.pool.nodes[n].room for n in domain) < wanted
            ):
                continue
            tries -= 1
            found = self._place_all(used)
            if found is not None:
                return found
            until_next_try = (
                1 + len(used) // 10
            )  # larger steps after many victims, so that attempts stay few
        found = self._place_all(used) if used else None
        if found is None:
            tentative.undo()
        return found

    def _place_all(self, used: list[EvictionUnit]) -> list[EvictionUnit] | None:
        """The units that remain evicted or moved after all others were placed again."""
        tentative = TentativeChanges(self.state, self.pool)
        allocation = Allocation(self.state, self.pool, self.work, pipeline_only=True)
        work = self.work
        leaf = self.pool.queue(work.project)
        is_refused = refusal(leaf, self.ask, work) is not None
        if not is_refused and allocation.place_all(self.members):
            self.rescheduler.restore(used)
            affected = [unit for unit in used if is_affected(unit)]
            if self.validator(affected, self.ask):
                return affected
        tentative.undo()
        return None
