"""Re-plans shares between the GPUs of one node, so that a request fits without an eviction.

A planned GPU is bookkeeping: the node agent decides where processes run. Changing the plan keeps
every share, its size and its node. Where node-level scheduling is off, the agent follows the plan,
so only shares of preemptible workloads are re-planned there. Rules: docs/explanation/scheduling.md,
Re-planning shares on a node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ..cluster.nodes import HELD, LEAVING, PROMISED, NodeState
from ..cluster.pools import PoolState
from ..cluster.work import Member
from ..model.amounts import GPU
from ..model.requirements import PodRequirements
from .placement import may_run
from .rearrangement import MovableShare, rearrange

__all__ = ["NodePlan", "best_replan"]

MAX_NODES: Final = 16
"""Bound on the nodes that are searched for one pod, those with the most free memory first."""
ROUNDING: Final = 2
"""Milli-GPU by which fractions and MiB may disagree."""


class NodePlan(NamedTuple):
    """Devices on a node for a pod, and the new devices of the shares that make room for it."""

    node: NodeState
    devices: tuple[int, ...]
    moves: tuple[tuple[Member, tuple[int, ...]], ...]


def best_replan(
    pool: PoolState,
    need: PodRequirements,
    among: tuple[NodeState, ...] | None = None,
    allowed: Callable[[NodeState], bool] | None = None,
) -> NodePlan | None:
    """The plan with the fewest moves, then the least memory, then the first node by name."""
    if not need.gpu or need.mig:
        return None
    plans = []
    for node in _candidates(pool, need, among):
        if node.has_spare_now(need) and may_run(pool, node, need, allowed):
            plan = _plan(pool, node, need)
            if plan is not None:
                plans.append(plan)
    return min(plans, key=_price, default=None)


def _candidates(
    pool: PoolState, need: PodRequirements, among: tuple[NodeState, ...] | None
) -> list[NodeState]:
    count = need.whole or need.devices
    least = 0 if need.memory else need.whole * GPU + need.share * need.devices
    names = None if among is None else {node.name for node in among}
    found: list[NodeState] = []
    for free, node in _by_room(pool, need):
        if len(found) == MAX_NODES or free + ROUNDING < least:
            break
        has_room = node.free_now >= need.portion(node.capacity) * count
        if has_room and count <= len(node.usable) and (names is None or node.name in names):
            found.append(node)
    return found


def _by_room(pool: PoolState, need: PodRequirements) -> list[tuple[int, NodeState]]:
    """Nodes on which a changed plan can help, with their free milli-GPU, the most first."""
    if need.whole or need.devices == 1:
        return pool.by_free_fractions()
    # For shares on several GPUs, those of a full GPU may move to an idle one.
    nodes = [node for node in pool.ready_nodes() if node.free_now]
    ranked = [(node.free_now * GPU // node.capacity, node) for node in nodes]
    return sorted(ranked, key=lambda entry: (-entry[0], entry[1].name))


def _price(plan: NodePlan) -> tuple[int, int, str]:
    mib = sum(member.need.portion(plan.node.capacity) for member, _ in plan.moves)
    return len(plan.moves), mib, plan.node.name


def _plan(pool: PoolState, node: NodeState, need: PodRequirements) -> NodePlan | None:
    size, count = need.portion(node.capacity), need.whole or need.devices
    if (size, count) not in node.replans:
        node.replans[size, count] = _search(pool, node, size, count)
    plan = node.replans[size, count]
    assert plan is None or isinstance(plan, NodePlan)
    return plan


def _search(pool: PoolState, node: NodeState, size: int, count: int) -> NodePlan | None:
    held, leaving, promised = (node.gpu[use] for use in (HELD, LEAVING, PROMISED))
    free = {d: node.capacity - held[d] - max(leaving[d], promised[d]) for d in node.usable}
    members = _movable(pool, node)
    shares = [MovableShare(one.need.portion(node.capacity), one.devices) for one in members]
    found = rearrange(free, shares, size, count)
    if found is None:
        return None
    moves = tuple((members[index], devices) for index, devices in sorted(found.moves.items()))
    return NodePlan(node, tuple(sorted(found.devices)), moves)


def _movable(pool: PoolState, node: NodeState) -> list[Member]:
    """Shares that may be re-planned; of equal ones the smaller, then the younger first."""
    spreads = pool.config.workloads_per_gpu is not None
    found = []
    for member in node.pods:
        assert isinstance(member, Member)
        if member.node is not node or member.status not in ("running", "bound"):
            continue
        if not member.need.is_fraction or not (spreads or member.work.preemptible):
            continue
        if all(device in node.usable for device in member.devices):
            found.append(member)
    found.sort(key=lambda member: (member.work.created, *member.key), reverse=True)
    return sorted(found, key=lambda member: member.need.portion(node.capacity))
