"""Places a workload's pods together, all or none; and finds stale gangs.

Sub-groups are placed with their topology constraints; if one fails, the next domain is tried. If a
member must wait for resources, the whole gang is pipelined. Rules: docs/explanation/scheduling.md,
Gangs and elastic workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..cluster.nodes import NodeState
from ..cluster.pools import PoolState
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.topology import DomainCandidate, candidates, topology_named
from ..cluster.work import ACTIVE, Member, Work
from ..model.amounts import Amounts
from ..model.model import SubGroup, TopologyConstraint
from .placement import NodeAssignment, PlacementHints, best_assignment
from .replanning import best_replan

__all__ = ["Allocation", "stale_members"]


class Allocation:
    """Places members of one workload in one pool. With `pipeline_only` all are pipelined
    (simulations).
    """

    def __init__(
        self, state: State, pool: PoolState, work: Work, *, pipeline_only: bool = False
    ) -> None:
        self.state, self.pool, self.work, self.pipeline_only = state, pool, work, pipeline_only
        self.leaf = pool.queue(work.project)
        self.placed: list[Member] = []

    def place_all(self, members: Sequence[Member]) -> bool:
        """Whether every member was placed. On failure nothing has changed; `placed` lists those
        that fit.
        """
        state, mark = self.state, self.state.undo_log.mark()
        version, freed = self.pool.version, self.pool.freed
        if self._place_groups(members):
            if not self.pipeline_only:
                self._wait_together(members)
            return True
        state.undo_log.undo_to(mark)
        self.pool.version, self.pool.freed = version, freed
        return False

    def place(
        self,
        member: Member,
        among: tuple[NodeState, ...] | None = None,
        scores: dict[str, int] | None = None,
    ) -> bool:
        """Places one member, on idle devices or on devices that are being released."""
        need, leaf, work = member.need, self.leaf, self.work
        allowed: Callable[[NodeState], bool] | None = None
        if work.asks_for_memory:  # charged by the node's device size, so checked for each pod

            def allowed(node: NodeState) -> bool:
                charge = need.charge(node.capacity)
                return refusal(leaf, charge, work) is None

        assignment = best_assignment(
            self.pool, need, PlacementHints(among, scores, member.nominated), allowed
        )
        if assignment is None:
            return not self.pipeline_only and self._place_by_replanning(member, among, allowed)
        charge = need.charge(assignment.node.capacity)
        if member.status == "releasing":
            self._restore_or_move(member, assignment, charge)
        else:
            self.state.put(
                member,
                "bound" if assignment.now and not self.pipeline_only else "pipelined",
                assignment.node,
                assignment.devices,
                charge,
            )
        self.placed.append(member)
        return True

    def _place_by_replanning(
        self,
        member: Member,
        among: tuple[NodeState, ...] | None,
        allowed: Callable[[NodeState], bool] | None,
    ) -> bool:
        """Places one member after other shares of a node were planned on other GPUs there."""
        plan = best_replan(self.pool, member.need, among, allowed)
        if plan is None:
            return False
        for other, devices in plan.moves:
            self.state.replan(other, devices)
        charge = member.need.charge(plan.node.capacity)
        self.state.put(member, "bound", plan.node, plan.devices, charge)
        self.placed.append(member)
        return True

    def _restore_or_move(self, member: Member, assignment: NodeAssignment, charge: Amounts) -> None:
        """A victim that gets its own node back stays there, else it is moved."""
        node, devices = member.node, member.devices
        assert node is not None
        if assignment.node is node and node.fits_on_devices(member.need, devices):
            self.state.put(member, "running", node, devices, charge)
        else:
            self.state.put(
                member, "pipelined", assignment.node, assignment.devices, charge, node, devices
            )

    def _place_groups(self, members: Sequence[Member]) -> bool:
        work = self.work
        if work.workload.topology is None and not work.workload.groups:
            return all(self.place(member) for member in members)
        return self._place_group(
            work.workload.topology, work.workload.groups, list(members), None, {}
        )

    def _place_group(
        self,
        constraint: TopologyConstraint | None,
        groups: tuple[SubGroup, ...],
        members: list[Member],
        among: tuple[NodeState, ...] | None,
        scores: dict[str, int],
    ) -> bool:
        """Places one group: tries each candidate domain in turn, sub-groups first."""
        if not members:
            return True
        for candidate in self._domains(constraint, groups, members, among, scores):
            mark, count = self.state.undo_log.mark(), len(self.placed)
            if self._place_in_domain(groups, members, candidate):
                return True
            self.state.undo_log.undo_to(mark)
            del self.placed[count:]
        return False

    def _place_in_domain(
        self, groups: tuple[SubGroup, ...], members: list[Member], candidate: DomainCandidate
    ) -> bool:
        nodes, scores = candidate.nodes, candidate.scores
        if not groups:
            return all(self.place(member, nodes, scores) for member in members)
        for group in sorted(groups, key=lambda g: (not g.groups, self._fullness(g), g.name)):
            inside = _leaf_names(group)
            mine = [m for m in members if m.podset.name in inside]
            if not self._place_group(group.topology, group.groups, mine, nodes, scores):
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
        ]  # including nodes that accept no new pods any more
        found = candidates(topology, constraint, nodes, [m.need for m in members], hosts)
        nominated = {m.nominated for m in members if m.nominated is not None}
        # A promise from the last cycle counts for the choice of the domain too; otherwise a moved
        # gang would move back.
        if nominated:
            found.sort(key=lambda c: -sum(node.name in nominated for node in c.nodes))
        return found

    def _wait_together(self, members: Sequence[Member]) -> None:
        """Pipelines the whole gang if it would otherwise start below its minimum."""
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


def stale_members(state: State, now: int) -> list[Member]:
    """Marks gangs below their minimum, clears the mark of recovered ones, and returns the members
    to evict.

    Those are the members of gangs that have been stale for the grace time. A negative grace time:
    never.
    """
    grace = state.policy.options.staleness_grace
    victims: list[Member] = []
    for id_ in sorted(state.stale):
        work = state.works[id_]
        if work.stale_since is None:
            state.undo_log.assign(work, "stale_since", now)
        if grace >= 0 and work.stale_since is not None and now - work.stale_since >= grace:
            victims += [m for m in work.members.values() if m.status in ("running", "bound")]
    return victims
