"""Topology domains that a group may use, best first.

A domain is the path of label values from the outermost level of a topology down. Rules:
docs/explanation/scheduling.md, Topology and sub-groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..model.model import Policy, SubGroup, Topology, TopologyConstraint, Workload
from ..model.requirements import PodRequirements
from .nodes import NodeState

__all__ = ["DomainCandidate", "candidates", "problem_of", "topology_named"]

MISSING: Final = 1000.0
"""Ratio for a resource that a domain lacks."""


@dataclass(frozen=True, slots=True)
class DomainCandidate:
    """A set of nodes to try together, with preference scores (10000 and up; 0: no preference)."""

    nodes: tuple[NodeState, ...]
    scores: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _TopologyDomain:
    path: tuple[str, ...]
    nodes: list[NodeState]
    ratio: float = 0.0
    qualifies: bool = False


def topology_named(policy: Policy, name: str) -> Topology | None:
    return next((t for t in policy.topologies if t.name == name), None)


def problem_of(workload: Workload, policy: Policy) -> str | None:
    """What is wrong with a workload's topology constraints; None: nothing."""
    if workload.topology is None and not workload.groups:
        return None
    for constraint in _constraints(workload):
        topology = topology_named(policy, constraint.name)
        if topology is None:
            return f'unknown topology "{constraint.name}"'
        for level in (constraint.required, constraint.preferred):
            if level is not None and level not in topology.levels:
                levels = ", ".join(topology.levels)
                return f'topology "{topology.name}" has no level "{level}" (levels: {levels})'
    return None


def _constraints(workload: Workload) -> Iterable[TopologyConstraint]:
    if workload.topology is not None:
        yield workload.topology
    waiting: list[SubGroup] = list(workload.groups)
    while waiting:
        group = waiting.pop()
        waiting.extend(group.groups)
        if group.topology is not None:
            yield group.topology


def candidates(
    topology: Topology,
    constraint: TopologyConstraint,
    nodes: Sequence[NodeState],
    needs: Sequence[PodRequirements],
    hosts: Sequence[NodeState],
) -> list[DomainCandidate]:
    """Node sets for a group with these pods left to place, best first. `hosts`: nodes of its active
    pods.
    """
    inside = [n for n in nodes if all(level in n.node.labels for level in topology.levels)]
    if not inside or not needs:
        return [DomainCandidate(tuple(inside))] if inside else []
    levels = topology.levels
    start = _common_depth(inside, levels, constraint)
    required = 0 if constraint.required is None else levels.index(constraint.required) + 1
    finest = (
        levels.index(constraint.preferred) + 1 if constraint.preferred is not None else required
    )
    found: list[DomainCandidate] = []
    homes = {tuple(n.node.labels.get(level, "") for level in levels[:required]) for n in hosts}
    scores = _preferred_scores(inside, levels, constraint, needs, start)
    for depth in range(max(finest, required), required - 1, -1):
        domains = [domain for domain in _ranked(inside, levels, depth, needs) if domain.qualifies]
        if homes:  # a group that already runs stays in its domain
            domains = [domain for domain in domains if domain.path[:required] in homes]
        found += [DomainCandidate(tuple(domain.nodes), scores) for domain in domains]
    return found


def _common_depth(
    nodes: Sequence[NodeState], levels: tuple[str, ...], constraint: TopologyConstraint
) -> int:
    """Depth of the deepest single domain with all these nodes, at most the preferred level."""
    bound = len(levels) if constraint.preferred is None else levels.index(constraint.preferred) + 1
    depth = 0
    while depth < bound and len({n.node.labels[levels[depth]] for n in nodes}) == 1:
        depth += 1
    return depth


def _ranked(
    nodes: Sequence[NodeState],
    levels: tuple[str, ...],
    depth: int,
    needs: Sequence[PodRequirements],
) -> list[_TopologyDomain]:
    """The domains of one level, the fullest that still fits first, parents before children, then by
    path.
    """
    ranked = []
    for at in range(depth + 1):
        domains: dict[tuple[str, ...], _TopologyDomain] = {}
        for node in nodes:
            path = tuple(node.node.labels[level] for level in levels[:at])
            domains.setdefault(path, _TopologyDomain(path, [])).nodes.append(node)
        for domain in domains.values():
            domain.ratio = _ratio(domain.nodes, needs)
            domain.qualifies = _holds(domain.nodes, needs, domain.ratio)
        ranked.append(domains)
    ratios = [{path: -domain.ratio for path, domain in domains.items()} for domains in ranked]

    def place(domain: _TopologyDomain) -> tuple[tuple[float, str], ...]:
        return tuple(
            (ratios[i + 1][domain.path[: i + 1]], domain.path[i]) for i in range(len(domain.path))
        )

    return sorted(ranked[depth].values(), key=place)


def _ratio(nodes: Sequence[NodeState], needs: Sequence[PodRequirements]) -> float:
    """The largest requested / free over the resources; free means idle or being released, whole
    GPUs only.
    """
    worst = 0.0
    for asked, free in (
        (sum(n.whole or n.devices for n in needs), sum(n.room for n in nodes)),
        (sum(n.cpu for n in needs), sum(n.node.cpu - n.cpu[0] - n.cpu[2] for n in nodes)),
        (sum(n.ram for n in needs), sum(n.node.memory - n.memory[0] - n.memory[2] for n in nodes)),
    ):
        if asked:
            worst = max(worst, asked / free if free > 0 else MISSING)
    return worst


def _holds(nodes: Sequence[NodeState], needs: Sequence[PodRequirements], ratio: float) -> bool:
    """Whether a domain may be tried: equal pods are counted node by node, mixed ones by sums."""
    if any(need.is_fraction or need.mig for need in needs):
        return True  # Shares of a GPU do not show in sums of whole GPUs; placing decides.
    kinds = Counter(bool(need.gpu) for need in needs)
    if len(kinds) > 1:
        return ratio <= 1
    largest = max(needs, key=lambda n: (n.whole, n.cpu, n.ram))
    gpu, cpu, ram = (
        max(n.whole for n in needs),
        max(n.cpu for n in needs),
        max(n.ram for n in needs),
    )
    return sum(_copies(node, largest, gpu, cpu, ram) for node in nodes) >= len(needs)


def _copies(node: NodeState, need: PodRequirements, gpu: int, cpu: int, ram: int) -> int:
    """How many copies of the largest pod fit on the node."""
    if not node.admits(need):
        return 0
    copies = node.node.max_pods - node.slots[0] - node.slots[2]
    if gpu:
        # shares may be planned on other GPUs, so that their free parts make up whole ones
        copies = min(copies, (node.room + node.shared_free // node.capacity) // gpu)
    if cpu:
        copies = min(copies, (node.node.cpu - node.cpu[0] - node.cpu[2]) // cpu)
    if ram:
        copies = min(copies, (node.node.memory - node.memory[0] - node.memory[2]) // ram)
    return max(0, copies)


def _preferred_scores(
    nodes: Sequence[NodeState],
    levels: tuple[str, ...],
    constraint: TopologyConstraint,
    needs: Sequence[PodRequirements],
    start: int,
) -> dict[str, int]:
    """Node scores by the rank of the sub-domain at the preferred level; the freest scores
    highest.
    """
    if constraint.preferred is None:
        return {}
    depth = levels.index(constraint.preferred) + 1
    if depth <= start:
        return {}
    domains = _ranked(nodes, levels, depth, needs)
    count = len(domains)
    return {
        node.name: 10_000 * (10 * (i + 1) // count)
        for i, domain in enumerate(domains)
        for node in domain.nodes
    }
