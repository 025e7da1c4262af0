"""Chooses the node for one pod.

The order of preference: promised node, topology, room now before room later, a GPU that is already
shared (bin-pack), nodes without GPUs for CPU pods, then those with the fewest free GPUs, and then
bin-pack or spread. Ties go to the first node by name. Rules: docs/explanation/scheduling.md,
Placement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop
from typing import NamedTuple

from ..cluster.nodes import NodeState
from ..cluster.packing import Defragmenter
from ..cluster.pools import PoolState
from ..model.amounts import GPU
from ..model.model import Affinity
from ..model.requirements import PodRequirements

__all__ = ["NodeAssignment", "PlacementHints", "best_assignment", "may_run"]

Rank = tuple[int, int, int, int, float]
"""(not now, not on a shared GPU, not on a CPU node, free milli-GPU beside CPU work, packing):
smaller is better.
"""


class NodeAssignment(NamedTuple):
    """A node, the devices there, and whether they are free now."""

    node: NodeState
    devices: tuple[int, ...]
    now: bool


class PlacementHints(NamedTuple):
    """What a pod's group adds: the nodes to choose from, their scores, and the promised node."""

    among: tuple[NodeState, ...] | None = None
    scores: dict[str, int] | None = None
    nominated: str | None = None


NO_HINTS = PlacementHints()


def best_assignment(
    pool: PoolState,
    need: PodRequirements,
    hints: PlacementHints = NO_HINTS,
    allowed: Callable[[NodeState], bool] | None = None,
) -> NodeAssignment | None:
    """The best place for a pod in this pool, now or after pods have left; None: there is none.

    `allowed` checks nodes where the cost in quota depends on the node.
    """
    if hints.nominated is not None:
        node = pool.nodes.get(hints.nominated)
        if (
            node is not None
            and node.name in pool.bucket_of
            and (hints.among is None or node in hints.among)
        ):
            assignment = _assign(pool, node, need, allowed)
            if assignment is not None:
                return assignment
    if pool.defragmenter is not None and not need.mig:
        return _least_fragmenting(pool, pool.defragmenter, need, hints, allowed)
    if (
        need.gpu
        and not need.mig
        and hints.among is None
        and need.affinity is None
        and need.anti_affinity is None
    ):
        return _from_buckets(pool, need, allowed)
    return _from_scan(pool, need, hints, allowed)


def may_run(
    pool: PoolState,
    node: NodeState,
    need: PodRequirements,
    allowed: Callable[[NodeState], bool] | None,
) -> bool:
    """Whether labels, taints, affinity and limits admit the pod on this node, whatever is free."""
    if not (node.admits(need) and _satisfies_affinity(pool, node, need)):
        return False
    return allowed is None or allowed(node)


def _assign(
    pool: PoolState,
    node: NodeState,
    need: PodRequirements,
    allowed: Callable[[NodeState], bool] | None,
) -> NodeAssignment | None:
    """The devices on this node, if it accepts the pod."""
    if not (node.has_spare(need) and may_run(pool, node, need, allowed)):
        return None
    chosen = node.choose(need, pool.config.gpu_device or pool.config.gpu)
    if chosen is None:
        return None
    return NodeAssignment(node, chosen[0], chosen[1] and node.has_spare_now(need))


def _least_fragmenting(
    pool: PoolState,
    packing: Defragmenter,
    need: PodRequirements,
    hints: PlacementHints,
    allowed: Callable[[NodeState], bool] | None,
) -> NodeAssignment | None:
    """The first candidate that admits the pod; a pod without GPUs uses GPU nodes only if no other
    is free now.
    """
    if not need.gpu and hints.among is None:
        without = tuple(node for node in pool.ready_nodes() if not node.node.gpus)
        assignment = (
            _from_scan(pool, need, hints._replace(among=without), allowed) if without else None
        )
        if assignment is not None and assignment.now:
            return assignment
    for names in _preferred(pool, hints):
        for node, device in packing.offers(need, names):
            if not may_run(pool, node, need, allowed):
                continue
            chosen = node.choose(need, "binpack") if device is None else ((device,), True)
            if chosen is not None:
                return NodeAssignment(node, chosen[0], node.fits_now_on_devices(need, chosen[0]))
    return None


def _preferred(pool: PoolState, hints: PlacementHints) -> list[list[str] | None]:
    """The nodes to try, by descending score; None: all."""
    if hints.among is None and hints.scores is None:
        return [None]
    nodes = (
        pool.ready_nodes()
        if hints.among is None
        else (n for n in hints.among if n.name in pool.bucket_of)
    )
    by_score: dict[int, list[str]] = {}
    for node in nodes:
        by_score.setdefault(
            0 if hints.scores is None else hints.scores.get(node.name, 0), []
        ).append(node.name)
    return [by_score[score] for score in sorted(by_score, reverse=True)]


def _from_buckets(
    pool: PoolState, need: PodRequirements, allowed: Callable[[NodeState], bool] | None
) -> NodeAssignment | None:
    """The first fitting name in the best bucket that has room now, else the best place later.

    All buckets are searched for room now, because a node with idle GPUs may still be waiting for
    CPU.
    """
    whole, binpack = need.whole, pool.config.gpu == "binpack"
    ranked: list[tuple[int, int, float, list[str]]] = []
    for key, names in pool.buckets.items():
        capacity, gpus, room, idle, later, now = key
        if whole:
            if room < whole:
                continue
            beside, waits = 1, int(idle < whole)
        else:
            size = need.portion(capacity)
            shared = later >= size
            if not shared and (room == 0 or size > capacity):
                continue
            beside, waits = 0 if shared and binpack else 1, int(not (now >= size or idle > 0))
        ranked.append((beside, waits, room if binpack else -room / gpus, names))
    heapify(ranked)
    best_later: tuple[tuple[int, float, str], NodeAssignment] | None = None
    while ranked:
        beside, waits, packing, names = heappop(ranked)
        # idle GPUs are counted exactly, so without enough of them nothing can start now
        is_later = bool(whole and waits)
        found = [_first_in(pool, names, need, allowed, is_later)]
        while ranked and ranked[0][:3] == (beside, waits, packing):
            found.append(_first_in(pool, heappop(ranked)[3], need, allowed, is_later))
        assignments = [assignment for assignment in found if assignment is not None]
        at_once = [assignment for assignment in assignments if assignment.now]
        if at_once:
            return min(at_once, key=lambda assignment: assignment.node.name)
        for assignment in assignments:
            rank = (beside, packing, assignment.node.name)
            if best_later is None or rank < best_later[0]:
                best_later = rank, assignment
    return None if best_later is None else best_later[1]


def _first_in(
    pool: PoolState,
    names: list[str],
    need: PodRequirements,
    allowed: Callable[[NodeState], bool] | None,
    is_later: bool,
) -> NodeAssignment | None:
    """The first place that is free now, else the first later one; `is_later`: none is free now."""
    nodes, later = pool.nodes, None
    for name in names:
        node = nodes[name]
        if node.has_spare(need):
            assignment = _assign(pool, node, need, allowed)
            if assignment is not None and (is_later or assignment.now):
                return assignment
            later = later or assignment
    return later


def _from_scan(
    pool: PoolState,
    need: PodRequirements,
    hints: PlacementHints,
    allowed: Callable[[NodeState], bool] | None,
) -> NodeAssignment | None:
    """Searches every node: for CPU pods, MIG, groups with a given set of nodes, and affinity."""
    best: tuple[tuple[int, Rank, str], NodeAssignment] | None = None
    nodes: Iterable[NodeState] = (
        pool.ready_nodes()
        if hints.among is None
        else (n for n in hints.among if n.name in pool.bucket_of)
    )
    for node in nodes:
        if not node.fits(need):
            continue
        assignment = _assign(pool, node, need, allowed)
        if assignment is None:
            continue
        score = 0 if hints.scores is None else hints.scores.get(node.name, 0)
        key = (-score, _rank(pool, node, need, assignment.now), node.name)
        if best is None or key < best[0]:
            best = (key, assignment)
    return None if best is None else best[1]


def _rank(pool: PoolState, node: NodeState, need: PodRequirements, now: bool) -> Rank:
    """One node's rank in the order of preference, before its name decides."""
    config = pool.config
    if need.gpu:
        binpack = config.gpu == "binpack"
        beside = 0 if binpack and node.is_shareable(need) else 1
        return not now, beside, 1, 0, node.room if binpack else -node.room / max(1, node.node.gpus)
    beside_gpus = int(node.node.gpus > 0)
    free = node.node.cpu - node.cpu[0] - node.cpu[2]
    if config.cpu == "binpack":
        # free GPUs keep the CPU beside them, without which nobody could use them
        free_gpu = node.free_now * GPU // node.capacity
        return not now, 1, beside_gpus, free_gpu, float(free) if node.node.cpu else float("inf")
    return not now, 1, beside_gpus, 0, -free / node.node.cpu if node.node.cpu else 0.0


def _satisfies_affinity(pool: PoolState, node: NodeState, need: PodRequirements) -> bool:
    """Whether required affinity and anti-affinity to other pods hold on this node."""
    if need.affinity is not None and not _satisfies_required_affinity(
        pool, node, need, need.affinity
    ):
        return False
    return need.anti_affinity is None or not _neighbours(pool, node, need.anti_affinity)


def _satisfies_required_affinity(
    pool: PoolState, node: NodeState, need: PodRequirements, affinity: Affinity
) -> bool:
    if _neighbours(pool, node, affinity):
        return True
    # The first pod may start anywhere, or a group with affinity to itself could never begin.
    matches_itself = set(affinity.match) <= set(need.labels)
    return matches_itself and not any(_has_match(n, affinity) for n in pool.nodes.values())


def _neighbours(pool: PoolState, node: NodeState, affinity: Affinity) -> bool:
    """Whether a matching pod is in the node's domain; a node without the label is its own
    domain.
    """
    domain = node.node.labels.get(affinity.topology)
    if domain is None:
        return _has_match(node, affinity)
    return any(
        _has_match(n, affinity)
        for n in pool.nodes.values()
        if n.node.labels.get(affinity.topology) == domain
    )


def _has_match(node: NodeState, affinity: Affinity) -> bool:
    wanted = set(affinity.match)
    return any(wanted <= set(need.labels) for need in node.pods.values())
