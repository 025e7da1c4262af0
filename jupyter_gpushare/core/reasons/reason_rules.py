"""Chooses the reason for which one workload waits, by comparing its request with what is there.

The order of the rules and the codes: docs/explanation/scheduling.md, Reasons.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..cluster.topology import problem_of, topology_named
from ..model.amounts import GPU, Amounts, is_unlimited
from ..model.decisions import QueueShare
from ..model.reason import Reason, ReasonCode, Suggestion
from . import messages
from .pending_view import PendingView, PoolView
from .suggestions import suggestions_for

__all__ = ["reason_of"]


def reason_of(pending: PendingView) -> Reason:
    """The first rule that applies gives the reason."""
    if pending.is_held:
        return Reason(ReasonCode.HELD, "Held by its owner; it is queued again when resumed.")
    if not pending.is_project_known:
        message = f'Project "{pending.work.project}" is not in the policy.'
        return Reason(ReasonCode.UNKNOWN_PROJECT, message)
    if not pending.pools:
        return _unknown_pool(pending)
    problem = problem_of(pending.work.workload, pending.policy)
    if problem:
        return Reason(ReasonCode.INVALID_REQUEST, f"Invalid request: {problem}.")
    if pending.is_promised:
        message = messages.promised(pending.victims)
        return _explained(pending, ReasonCode.WAITING_FOR_RECLAIM, message, pending.view)
    if not pending.work.is_ready:
        message = "Cannot start: fewer pods are left than the gang's minimum."
        return _explained(pending, ReasonCode.WAITING_FOR_GANG, message, pending.view)
    return _by_pool(pending)


def _unknown_pool(pending: PendingView) -> Reason:
    names = ", ".join(f'"{name}"' for name in pending.work.workload.node_pools) or "none"
    known = sorted(pending.views)
    use = Suggestion("node_pools", ",".join(known), f"Available node pools: {', '.join(known)}.")
    message = f"Unknown node pool: {names}."
    return Reason(ReasonCode.UNKNOWN_POOL, message, helps=(use,))


def _by_pool(pending: PendingView) -> Reason:
    """The reason in the first of its pools where it is not impossible, else in the first pool."""
    found = [_in_pool(pending, pending.views[name]) for name in pending.pools]
    impossible = {ReasonCode.NEVER_FITS, ReasonCode.NODE_NOT_READY}
    return next((reason for reason in found if reason.code not in impossible), found[0])


def _in_pool(pending: PendingView, view: PoolView) -> Reason:
    ask = pending.ask(view)
    for rule in (
        _never_fits,
        _over_person_limit,
        _turn,
        _over_bound,
        _without_gpus,
        _partial_gang,
        _booked,
        _reserved,
        _behind,
    ):
        reason = rule(pending, view, ask)
        if reason is not None:
            return reason
    return _not_enough_free(pending, view, ask)


def _never_fits(pending: PendingView, view: PoolView, ask: Amounts) -> Reason | None:
    """Whether even an empty pool could not hold it, or only nodes that are not ready could."""
    for need in dict.fromkeys(pending.needs):
        fitting = view.machines.fitting(need)
        if fitting.ready:
            continue
        if fitting.unready:
            message = messages.nodes_not_ready(fitting.unready)
            return _explained(pending, ReasonCode.NODE_NOT_READY, message, view)
        message = messages.too_large_for_nodes(need, len(pending.needs), view)
        return _explained(pending, ReasonCode.NEVER_FITS, message, view)
    if len(pending.needs) == 1:
        return None
    level = messages.required_level(pending)
    if level is not None and not any(need.mig for need in pending.needs):
        largest = _largest_domain(pending, view)
        if ask.gpu > largest:
            message = messages.domain_too_small(ask, level, largest, view)
            return _explained(pending, ReasonCode.NEVER_FITS, message, view)
    if ask.gpu > view.total.gpu:
        message = messages.pool_too_small(ask, view)
        return _explained(pending, ReasonCode.NEVER_FITS, message, view)
    return None


def _largest_domain(pending: PendingView, view: PoolView) -> int:
    """Milli-GPU of the largest domain of the required level if it were empty."""
    constraint = pending.work.workload.topology
    assert constraint is not None
    topology = topology_named(pending.policy, constraint.name)
    assert topology is not None
    assert constraint.required is not None
    levels = topology.levels[: topology.levels.index(constraint.required) + 1]
    sizes: Counter[tuple[str, ...]] = Counter()
    for node in view.machines.nodes:
        if all(level in node.labels for level in levels):
            sizes[tuple(node.labels[level] for level in levels)] += node.gpus * GPU
    return max(sizes.values(), default=0)


def _over_person_limit(pending: PendingView, view: PoolView, ask: Amounts) -> Reason | None:
    """What one person may hold in the project."""
    for own in pending.person_bounds(view):
        if ask.gpu and own.held + ask.gpu > own.limit:
            message = messages.over_person_limit(pending.work.project, own, ask)
            reason = _explained(pending, ReasonCode.OVER_PERSON_LIMIT, message, view)
            mine = {"limit": own.limit / GPU, "allocated": own.held / GPU}
            return replace(reason, numbers=reason.numbers | mine)
    return None


def _turn(pending: PendingView, view: PoolView, ask: Amounts) -> Reason | None:
    """Whether others of its project have the shares, which take turns."""
    if not view.shares_time or not pending.work.waits_for_turn:
        return None
    project = pending.work.project
    shared = view.queues[project].allocated.gpu - view.non_preemptible[project].gpu
    if shared < ask.gpu:
        return None
    if project in view.host_full:
        message = messages.host_memory_full(view)
        return _explained(pending, ReasonCode.HOST_MEMORY_FULL, message, view)
    return _explained(pending, ReasonCode.WAITING_FOR_TURN, messages.turn(), view)


def _over_bound(pending: PendingView, view: PoolView, ask: Amounts) -> Reason | None:
    """The limit, or for non-preemptible work the quota, that its project or a department
    exceeds.
    """
    for name in view.paths[pending.work.project]:
        queue, held = view.queues[name], view.non_preemptible[name]
        for resource in range(3):
            if not ask[resource]:
                continue
            if queue.allocated[resource] + ask[resource] > queue.limit[resource]:
                message = messages.over_limit(queue, resource, ask)
                return _explained(pending, ReasonCode.OVER_LIMIT, message, view, queue)
            if pending.work.preemptible:
                continue
            if resource == 0 and _promised(pending, view, queue, held):
                message = messages.booked_later(pending.work, queue, view)
                return _explained(pending, ReasonCode.BOOKED_FOR, message, view, queue)
            if held[resource] + ask[resource] > queue.quota[resource]:
                message = messages.over_quota(queue, resource, held, ask)
                code = ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA
                return _explained(pending, code, message, view, queue)
    return None


def _promised(pending: PendingView, view: PoolView, queue: QueueShare, held: Amounts) -> bool:
    """Whether non-preemptible work is within the quota, but not without what is booked before it
    ends.
    """
    promised = view.promised.get(queue.queue)
    asked = held.gpu + pending.ask(view).gpu
    if promised is None or asked > queue.quota.gpu:
        return False
    return asked > queue.quota.gpu - promised.gpu(pending.work.max_running)


def _without_gpus(pending: PendingView, view: PoolView, ask: Amounts) -> Reason | None:
    """A workload without GPUs lacks CPU or memory."""
    del ask
    if any(need.gpu for need in pending.needs):
        return None
    message = f'No node in pool "{view.name}" has enough free CPU and memory.'
    return _explained(pending, ReasonCode.WAITING_FOR_FREE_GPU, message, view)


def _partial_gang(pending: PendingView, view: PoolView, ask: Amounts) -> Reason | None:
    del ask
    pods, found = len(pending.members_to_place), pending.found.get(view.name, 0)
    if not 0 < found < pods:
        return None
    message = messages.partial_gang(found, pods, view)
    return _explained(pending, ReasonCode.WAITING_FOR_GANG, message, view)


def _booked(pending: PendingView, view: PoolView, ask: Amounts) -> Reason | None:
    """Whether it would have room if no GPUs were kept free for bookings of others."""
    work = pending.work
    others = {w: n for w, n in view.booked.items() if not w.admits(work.project, work.user)}
    kept = sum(others.values())
    if not view.free.total < ask.gpu <= view.free.total + kept:
        return None
    message = messages.booked(max(others, key=lambda w: (w.end, w.booking)), kept, view)
    reason = _explained(pending, ReasonCode.BOOKED_FOR, message, view)
    return replace(reason, numbers=reason.numbers | {"booked": kept / GPU})


def _reserved(pending: PendingView, view: PoolView, ask: Amounts) -> Reason | None:
    if view.reservation is None or view.reservation[0] == pending.id:
        return None
    if not view.free.total - view.reserved_free < ask.gpu <= view.free.total:
        return None
    message = messages.reserved(view.reservation[0], view)
    return _explained(pending, ReasonCode.WAITING_FOR_RESERVATION, message, view)


def _behind(pending: PendingView, view: PoolView, ask: Amounts) -> Reason | None:
    """Whether it would have fitted at the start of the cycle."""
    if not view.before.total >= ask.gpu > view.free.total:
        return None
    if view.before.largest < min(_largest_part(pending, view), GPU):
        return None
    message = f'The free GPUs in pool "{view.name}" went to workloads ahead in the queue.'
    return _explained(pending, ReasonCode.WAITING_BEHIND, message, view)


def _not_enough_free(pending: PendingView, view: PoolView, ask: Amounts) -> Reason:
    mine = view.queues[pending.work.project]
    own = mine.allocated.gpu - view.non_preemptible[pending.work.project].gpu
    is_over = not mine.allocated.plus(ask).fits_in(mine.fair_share)
    if is_over and view.preemptible_held - own >= ask.gpu:
        message = messages.fair_share_used(mine, ask, view)
        return _explained(pending, ReasonCode.WAITING_FOR_QUOTA, message, view)
    if _largest_part(pending, view) <= view.free.largest and ask.gpu <= view.free.total:
        message = messages.crowded(pending, messages.required_level(pending), view)
    else:
        message = messages.not_enough_free(pending, ask, view)
    return _explained(pending, ReasonCode.WAITING_FOR_FREE_GPU, message, view)


def _largest_part(pending: PendingView, view: PoolView) -> int:
    """Milli-GPU of the largest share that a pod needs on one device; all of a pod's whole GPUs."""
    parts = [need.estimate(view.smallest).gpu // max(1, need.devices) for need in pending.needs]
    return max(parts, default=0)


def _explained(
    pending: PendingView,
    code: ReasonCode,
    message: str,
    view: PoolView,
    queue: QueueShare | None = None,
) -> Reason:
    queue = queue or view.queues.get(pending.work.project)
    free = view.free
    numbers: dict[str, float] = {
        "requested": pending.ask(view).gpu / GPU,
        "free_total": free.total / GPU,
        "free_largest": free.largest / GPU,
    }
    if queue is not None:
        numbers |= {
            "allocated": queue.allocated.gpu / GPU,
            "fair_share": queue.fair_share.gpu / GPU,
        }
        if code == ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA:
            numbers["allocated"] = view.non_preemptible[queue.queue].gpu / GPU
        for name, amount in (("quota", queue.quota.gpu), ("limit", queue.limit.gpu)):
            if not is_unlimited(amount):
                numbers[name] = amount / GPU
    if pending.victims:
        numbers["victims"] = float(pending.victims)
    return Reason(code, message, numbers, suggestions_for(pending, code, view))
