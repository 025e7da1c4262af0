"""Seating a workload's pods together: all that ask, or none. Also which gangs have gone stale.

Sub-groups are seated inside out with their topology constraints, going back to try the next domain
when one fails. A member that has to wait makes the whole gang wait: it never starts in halves.
Source: scheduling rules, sections 4, 7.3 and 9.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cluster.nodes import NodeState
from ..cluster.pools import PoolState
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.topology import DomainCandidate, candidates, topology_named
from ..cluster.work import ACTIVE, Member, Work
from ..model.amounts import Amounts
from ..model.model import SubGroup, TopologyConstraint
from .placement import NodeAssignment, PlacementHints, best_seat

__all__ = ["Allocation", "go_stale"]


class Allocation:
    """Seats the asking members of one workload in one pool. With `promise`, nobody starts: all are
    pipelined (simulations).
    """

    def __init__(self, state: State, pool: PoolState, work: Work, *, promise: bool = False) -> None:
        self.state, self.pool, self.work, self.promise = state, pool, work, promise
        self.leaf = pool.queue(work.project)
        self.is_priced_late = any(member.need.memory for member in work.members.values())
        """GPU memory costs what it is of a node's device, so the gate is asked again for each seat,
        also those of its companions.
        """
        self.seated: list[Member] = []

    def seat_all(self, members: Sequence[Member]) -> bool:
        """Whether every member found a seat. On failure nothing is left changed; `seated` then
        tells who had found one.
        """
        state, mark = self.state, self.state.journal.mark()
        version, freed = self.pool.version, self.pool.freed
        if self._seat_tree(members):
            if not self.promise:
                self._wait_together(members)
            return True
        state.journal.undo_to(mark)
        self.pool.version, self.pool.freed = version, freed
        return False

    def seat(
        self,
        member: Member,
        among: tuple[NodeState, ...] | None = None,
        scores: dict[str, int] | None = None,
    ) -> bool:
        """Seats one member, on idle devices or on a promise."""
        need, leaf, work = member.need, self.leaf, self.work
        allowed = None
        if self.is_priced_late:

            def allowed(node: NodeState) -> bool:
                return refusal(leaf, need.charge(node.capacity), work.preemptible) is None

        seat = best_seat(self.pool, need, PlacementHints(among, scores, member.nominated), allowed)
        if seat is None:
            return False
        charge = need.charge(seat.node.capacity)
        if member.status == "releasing":
            self._reseat(member, seat, charge)
        else:
            self.state.put(
                member,
                "bound" if seat.now and not self.promise else "pipelined",
                seat.node,
                seat.devices,
                charge,
            )
        self.seated.append(member)
        return True

    def _reseat(self, member: Member, seat: NodeAssignment, charge: Amounts) -> None:
        """A victim that finds room stays where it is if that is the node, else it is moved."""
        node, devices = member.node, member.devices
        assert node is not None
        if seat.node is node and node.is_free_on(member.need, devices):
            self.state.put(member, "running", node, devices, charge)
        else:
            self.state.put(member, "pipelined", seat.node, seat.devices, charge, node, devices)

    def _seat_tree(self, members: Sequence[Member]) -> bool:
        work = self.work
        if work.workload.topology is None and not work.workload.groups:
            return all(self.seat(member) for member in members)
        return self._seat_group(
            work.workload.topology, work.workload.groups, list(members), None, {}
        )

    def _seat_group(
        self,
        constraint: TopologyConstraint | None,
        groups: tuple[SubGroup, ...],
        members: list[Member],
        among: tuple[NodeState, ...] | None,
        scores: dict[str, int],
    ) -> bool:
        """Seats one set: each candidate domain in turn, sub-groups first."""
        if not members:
            return True
        for candidate in self._domains(constraint, groups, members, among, scores):
            mark, seats = self.state.journal.mark(), len(self.seated)
            if self._seat_inside(groups, members, candidate):
                return True
            self.state.journal.undo_to(mark)
            del self.seated[seats:]
        return False

    def _seat_inside(
        self, groups: tuple[SubGroup, ...], members: list[Member], candidate: DomainCandidate
    ) -> bool:
        nodes, scores = candidate.nodes, candidate.scores
        if not groups:
            return all(self.seat(member, nodes, scores) for member in members)
        for group in sorted(groups, key=lambda g: (not g.groups, self._fullness(g), g.name)):
            inside = _leaf_names(group)
            mine = [m for m in members if m.podset.name in inside]
            if not self._seat_group(group.topology, group.groups, mine, nodes, scores):
                return False
        return True

    def _fullness(self, group: SubGroup) -> tuple[bool, float]:
        """Groups below their minimum first, then the emptier ones."""
        names = _leaf_names(group)
        sets = [s for s in self.work.podsets if s.name in names]
        return all(s.active >= s.minimum for s in sets), min(
            (s.active / s.minimum for s in sets), default=0.0
        )

    def _domains(
        self,
        constraint: TopologyConstraint | None,
        groups: tuple[SubGroup, ...],
        members: list[Member],
        among: tuple[NodeState, ...] | None,
        scores: dict[str, int],
    ) -> list[DomainCandidate]:
        nodes = tuple(self.pool.ready_nodes()) if among is None else among
        if constraint is None:
            return [DomainCandidate(nodes, scores)]
        topology = topology_named(self.state.policy, constraint.name)
        assert topology is not None, "workloads with an unknown topology never ask"
        names = {leaf for group in groups for leaf in _leaf_names(group)} or {
            m.podset.name for m in members
        }
        members_there = (
            m for m in self.work.members.values() if m.podset.name in names and m.status in ACTIVE
        )
        hosts = [
            m.node for m in members_there if m.node is not None
        ]  # also nodes that take nothing new any more
        found = candidates(topology, constraint, nodes, [m.need for m in members], hosts)
        promised = {m.nominated for m in members if m.nominated is not None}
        # a promise given in the cycle before counts for the choice of the domain too, or a moved
        # gang would move back
        if promised:
            found.sort(key=lambda c: -sum(node.name in promised for node in c.nodes))
        return found

    def _wait_together(self, members: Sequence[Member]) -> None:
        """A gang that would start below its minimum, because some of it must wait, waits as a
        whole.
        """
        if not any(m.status == "pipelined" for m in members):
            return
        waiting = {m.podset for m in members if m.status == "pipelined"}
        if not any(
            s.active - sum(m.status == "pipelined" for m in s.members) < s.minimum for s in waiting
        ):
            return
        for member in members:
            if member.status == "bound":
                self.state.put(member, "pipelined", member.node, member.devices, member.charge)


def _leaf_names(group: SubGroup) -> set[str]:
    if not group.groups:
        return {group.name}
    return {name for inner in group.groups for name in _leaf_names(inner)}


def go_stale(state: State, now: int) -> list[Member]:
    """Stamps gangs that are below their minimum, clears the stamp of those that recovered, and
    gives the members to evict of those that were stale for longer than the grace time. A negative
    grace: never.
    """
    grace = state.policy.options.staleness_grace
    victims: list[Member] = []
    for id_ in sorted(state.stale):
        work = state.works[id_]
        if work.stale_since is None:
            state.journal.assign(work, "stale_since", now)
        if grace >= 0 and work.stale_since is not None and now - work.stale_since >= grace:
            victims += [m for m in work.members.values() if m.status in ("running", "bound")]
    return victims
