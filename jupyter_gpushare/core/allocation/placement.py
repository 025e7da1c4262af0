"""Which node a pod goes to. Looks at room and rules of nodes; knows nothing of queues or quota.

The order of preference is the score table of section 9.1 read as layers: promised node, topology,
room now before room later, a GPU that already is shared (bin-pack), CPU pods on CPU nodes, and then
bin-pack or spread. Ties go to the first node by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop
from typing import NamedTuple

from ..cluster.nodes import NodeState
from ..cluster.packing import Defragmenter
from ..cluster.pools import PoolState
from ..model.model import Affinity
from ..model.requirements import PodRequirements

__all__ = ["NodeAssignment", "PlacementHints", "best_seat"]

Rank = tuple[int, int, int, float]
"""(not now, not beside shares, not on a CPU node, packing): smaller is better."""


class NodeAssignment(NamedTuple):
    """A node, the devices there, and whether they are free now."""

    node: NodeState
    devices: tuple[int, ...]
    now: bool


class PlacementHints(NamedTuple):
    """What a pod's group adds to its own need: a set of nodes to stay in, scores inside it, and the
    node it was promised before.
    """

    among: tuple[NodeState, ...] | None = None
    scores: dict[str, int] | None = None
    nominated: str | None = None


NO_WISHES = PlacementHints()


def best_seat(
    pool: PoolState,
    need: PodRequirements,
    wishes: PlacementHints = NO_WISHES,
    allowed: Callable[[NodeState], bool] | None = None,
) -> NodeAssignment | None:
    """The best place for a pod in this pool, now or when leaving pods are gone. None: nowhere.

    `allowed` is asked about nodes where the price in quota depends on the node.
    """
    if wishes.nominated is not None:
        node = pool.nodes.get(wishes.nominated)
        if (
            node is not None
            and node.name in pool.where
            and (wishes.among is None or node in wishes.among)
        ):
            seat = _seat(pool, node, need, allowed)
            if seat is not None:
                return seat
    if pool.defragmenter is not None and not need.mig:
        return _least_fragmenting(pool, pool.defragmenter, need, wishes, allowed)
    if (
        need.gpu
        and not need.mig
        and wishes.among is None
        and need.affinity is None
        and need.anti_affinity is None
    ):
        return _from_buckets(pool, need, allowed)
    return _from_scan(pool, need, wishes, allowed)


def _seat(
    pool: PoolState,
    node: NodeState,
    need: PodRequirements,
    allowed: Callable[[NodeState], bool] | None,
) -> NodeAssignment | None:
    """The devices on this very node, if it takes the pod."""
    if not (node.admits(need) and node.has_spare(need) and _near_and_apart(pool, node, need)):
        return None
    if allowed is not None and not allowed(node):
        return None
    chosen = node.choose(need, pool.config.gpu_device or pool.config.gpu)
    if chosen is None:
        return None
    return NodeAssignment(node, chosen[0], chosen[1] and node.has_spare_now(need))


def _least_fragmenting(
    pool: PoolState,
    packing: Defragmenter,
    need: PodRequirements,
    wishes: PlacementHints,
    allowed: Callable[[NodeState], bool] | None,
) -> NodeAssignment | None:
    """The first place offered that lets the pod in; a pod without GPUs goes beside them only when
    no machine without is free now.
    """
    if not need.gpu and wishes.among is None:
        without = tuple(node for node in pool.ready_nodes() if not node.node.gpus)
        seat = _from_scan(pool, need, wishes._replace(among=without), allowed) if without else None
        if seat is not None and seat.now:
            return seat
    for names in _preferred(pool, wishes):
        for node, device in packing.offers(need, names):
            if not (node.admits(need) and _near_and_apart(pool, node, need)) or (
                allowed is not None and not allowed(node)
            ):
                continue
            chosen = node.choose(need, "binpack") if device is None else ((device,), True)
            if chosen is not None:
                return NodeAssignment(node, chosen[0], node.is_free_now(need, chosen[0]))
    return None


def _preferred(pool: PoolState, wishes: PlacementHints) -> list[list[str] | None]:
    """The nodes to try, those with the best scores of the group first; None: all."""
    if wishes.among is None and wishes.scores is None:
        return [None]
    nodes = (
        pool.ready_nodes()
        if wishes.among is None
        else (n for n in wishes.among if n.name in pool.where)
    )
    by_score: dict[int, list[str]] = {}
    for node in nodes:
        by_score.setdefault(
            0 if wishes.scores is None else wishes.scores.get(node.name, 0), []
        ).append(node.name)
    return [by_score[score] for score in sorted(by_score, reverse=True)]


def _from_buckets(
    pool: PoolState, need: PodRequirements, allowed: Callable[[NodeState], bool] | None
) -> NodeAssignment | None:
    """The first fitting name in the best bucket that has a seat now, else the best seat later: all
    buckets are looked at for that, as a node whose CPU is still being left hides among those with
    idle GPUs.
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
        found = [_first_in(pool, names, need, allowed)]
        while ranked and ranked[0][:3] == (beside, waits, packing):
            found.append(_first_in(pool, heappop(ranked)[3], need, allowed))
        seats = [seat for seat in found if seat is not None]
        at_once = [seat for seat in seats if seat.now]
        if at_once:
            return min(at_once, key=lambda seat: seat.node.name)
        for seat in seats:
            rank = (beside, packing, seat.node.name)
            if best_later is None or rank < best_later[0]:
                best_later = rank, seat
    return None if best_later is None else best_later[1]


def _first_in(
    pool: PoolState,
    names: list[str],
    need: PodRequirements,
    allowed: Callable[[NodeState], bool] | None,
) -> NodeAssignment | None:
    nodes, later = pool.nodes, None
    for name in names:
        node = nodes[name]
        if node.has_spare(need):
            seat = _seat(pool, node, need, allowed)
            if seat is not None and seat.now:
                return seat
            later = later or seat
    return later


def _from_scan(
    pool: PoolState,
    need: PodRequirements,
    wishes: PlacementHints,
    allowed: Callable[[NodeState], bool] | None,
) -> NodeAssignment | None:
    """Looks at every node: for what the buckets do not tell (CPU pods, MIG, groups with a place to
    stay, pods waiting for room).
    """
    best: tuple[tuple[int, Rank, str], NodeAssignment] | None = None
    nodes: Iterable[NodeState] = (
        pool.ready_nodes()
        if wishes.among is None
        else (n for n in wishes.among if n.name in pool.where)
    )
    for node in nodes:
        if not node.fits(need):
            continue
        seat = _seat(pool, node, need, allowed)
        if seat is None:
            continue
        score = 0 if wishes.scores is None else wishes.scores.get(node.name, 0)
        key = (-score, _rank(pool, node, need, seat.now), node.name)
        if best is None or key < best[0]:
            best = (key, seat)
    return None if best is None else best[1]


def _rank(pool: PoolState, node: NodeState, need: PodRequirements, now: bool) -> Rank:
    """One node's place in the order of preference, before its name decides."""
    config = pool.config
    if need.gpu:
        binpack = config.gpu == "binpack"
        beside = 0 if binpack and node.is_shareable(need) else 1
        return not now, beside, 1, node.room if binpack else -node.room / max(1, node.node.gpus)
    free = node.node.cpu - node.cpu[0] - node.cpu[2]
    if config.cpu == "binpack":
        packing = float(free) if node.node.cpu else float("inf")
    else:
        packing = -free / node.node.cpu if node.node.cpu else 0.0
    return not now, 1, 0 if not node.node.gpus else 1, packing


def _near_and_apart(pool: PoolState, node: NodeState, need: PodRequirements) -> bool:
    """Whether required affinity and anti-affinity to other pods hold on this node."""
    if need.affinity is not None and not _is_near(pool, node, need, need.affinity):
        return False
    return need.anti_affinity is None or not _neighbours(pool, node, need.anti_affinity)


def _is_near(pool: PoolState, node: NodeState, need: PodRequirements, affinity: Affinity) -> bool:
    if _neighbours(pool, node, affinity):
        return True
    # the first of its kind may start anywhere, or a group with affinity to itself could never begin
    matches_itself = set(affinity.match) <= set(need.labels)
    return matches_itself and not any(_carries(n, affinity) for n in pool.nodes.values())


def _neighbours(pool: PoolState, node: NodeState, affinity: Affinity) -> bool:
    """Whether a pod that matches is in the same domain as the node; a node without the label is a
    domain of its own.
    """
    domain = node.node.labels.get(affinity.topology)
    if domain is None:
        return _carries(node, affinity)
    return any(
        _carries(n, affinity)
        for n in pool.nodes.values()
        if n.node.labels.get(affinity.topology) == domain
    )


def _carries(node: NodeState, affinity: Affinity) -> bool:
    wanted = set(affinity.match)
    return any(wanted <= set(need.labels) for need in node.pods.values())
