"""Changes to a pending request that would let it start sooner. Each is checked before it is
suggested.
"""

from __future__ import annotations

from typing import Final

from ..cluster.nodes import NodeState
from ..model.amounts import GPU, is_unlimited
from ..model.reason import ReasonCode, Suggestion, counted
from ..model.requirements import PodRequirements
from .pending_view import PendingView, PoolView

__all__ = ["suggestions_for"]

NODE_MATTERS: Final = frozenset(
    {
        ReasonCode.NODE_NOT_READY,
        ReasonCode.WAITING_BEHIND,
        ReasonCode.WAITING_FOR_FREE_GPU,
        ReasonCode.WAITING_FOR_QUOTA,
    }
)
"""Reasons that may not apply on another node of the same pool."""
FRACTIONS: Final = (750, 500, 250, 200, 100)
"""Common fractions, tried from the largest."""


def suggestions_for(
    pending: PendingView, code: ReasonCode, view: PoolView
) -> tuple[Suggestion, ...]:
    """The changes that would help, the best first."""
    if code in (ReasonCode.NEVER_FITS, ReasonCode.INVALID_REQUEST):
        return (*_other_node(pending, view), *_other_pools(pending, view))
    helps: list[Suggestion] = []
    if code in NODE_MATTERS:
        helps += _other_node(pending, view)
    if code == ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA:
        message = "A preemptible workload may use free GPUs beyond the quota."
        helps.append(Suggestion("preemptible", "true", message))
    if code == ReasonCode.OVER_PERSON_LIMIT and _may_hold(pending, view):
        message = "Release the GPU of one of your other notebooks in this project."
        helps.append(Suggestion("release", "", message))
    helps += _smaller(pending, view)
    if code != ReasonCode.OVER_PERSON_LIMIT:  # it may hold in all pools
        helps += _other_pools(pending, view)
    if code != ReasonCode.NODE_NOT_READY and _can_start_later(pending, view):
        helps.append(_wait(code))
    return tuple(helps)


def _other_node(pending: PendingView, view: PoolView) -> list[Suggestion]:
    """Another node than the stated ones where it would start now. Requests for CPU and memory are
    not judged.
    """
    need = next(iter(pending.work.members.values())).need
    is_judged = not (need.cpu or need.ram or need.mig or need.affinity or need.anti_affinity)
    if len(pending.work.members) != 1 or not need.node_names or not is_judged:
        return []
    open_nodes = {
        name
        for (capacity, _, _, idle, _, shared), names in view.open_nodes.items()
        if _has_devices(need, capacity, idle, shared)
        for name in names
    }
    for node in view.machines.nodes:
        is_other = node.name in open_nodes and node.name not in need.node_names
        if is_other and NodeState(node, "").matches_labels(need):
            here = ", ".join(sorted(need.node_names))
            message = (
                f"Node {node.name} has room now, but this workload is tied to node {here}. Start it"
                f" on {node.name} instead; with JupyterHub, stop your server and start it again."
            )
            return [Suggestion("nodes", node.name, message)]
    return []


def _has_devices(need: PodRequirements, capacity: int, idle: int, shared: int) -> bool:
    """Whether so many idle GPUs of this size, or this share of one, are enough."""
    if need.whole:
        return idle >= need.whole
    size = need.portion(capacity)
    return size <= capacity and (idle >= need.devices or (need.devices == 1 and shared >= size))


def _smaller(pending: PendingView, view: PoolView) -> list[Suggestion]:
    """A smaller GPU request that would start now."""
    if len(pending.work.members) != 1:
        return []
    need = next(iter(pending.work.members.values())).need
    room = _room(pending, view)
    if need.mig or not need.gpu or room <= 0:
        return []
    if room >= GPU:
        size = room // GPU * GPU
    else:
        size = next((fraction for fraction in FRACTIONS if fraction <= room), 0)
    if not 0 < size < pending.ask(view).gpu:
        return []
    message = f"A request for {counted(size / GPU, 'GPU')} would start now."
    return [Suggestion("gpu", f"{size / GPU:g}", message)]


def _room(pending: PendingView, view: PoolView) -> int:
    """Milli-GPU that one pod of this workload could get now."""
    room = min(view.free.largest, view.free.total)
    for own in pending.person_bounds(view):
        room = min(room, own.limit - own.held)
    for name in view.paths.get(pending.work.project, ()):
        queue = view.queues[name]
        if not is_unlimited(queue.limit.gpu):
            room = min(room, queue.limit.gpu - queue.allocated.gpu)
        if not pending.work.preemptible and not is_unlimited(queue.quota.gpu):
            promised = view.promised.get(name)
            later = 0 if promised is None else promised.gpu(pending.work.max_running)
            room = min(room, queue.quota.gpu - later - view.non_preemptible[name].gpu)
    return room


def _other_pools(pending: PendingView, view: PoolView) -> list[Suggestion]:
    asked = pending.ask(view).gpu
    helps = []
    for name, other in sorted(pending.views.items()):
        if asked and name not in pending.pools and _has_room(pending, other, asked):
            free = counted(other.free.total / GPU, "free GPU")
            helps.append(Suggestion("node_pools", name, f'Pool "{name}" has {free}.'))
    return helps


def _has_room(pending: PendingView, view: PoolView, asked: int) -> bool:
    """Whether a pool has room for the request now, and the project may use it there."""
    largest = asked if len(pending.work.members) == 1 else 0
    if view.free.total < asked or view.free.largest < largest:
        return False
    queue = view.queues.get(pending.work.project)
    if queue is not None and queue.allocated.gpu + asked > queue.limit.gpu:
        return False
    if pending.work.preemptible:
        return True
    return queue is not None and asked <= queue.quota.gpu - view.non_preemptible[queue.queue].gpu


def _may_hold(pending: PendingView, view: PoolView) -> bool:
    """Whether the request alone is within the person's limits."""
    asked = pending.ask(view).gpu
    return all(asked <= own.limit for own in pending.person_bounds(view))


def _can_start_later(pending: PendingView, view: PoolView) -> bool:
    """Whether releases can help: the request alone is within all bounds, and has enough pods."""
    if not pending.work.is_ready:
        return False
    ask = pending.ask(view)
    if not _may_hold(pending, view):
        return False
    for name in view.paths.get(pending.work.project, ()):
        queue = view.queues[name]
        if not ask.fits_in(queue.limit):
            return False
        if not (pending.work.preemptible or ask.fits_in(queue.quota)):
            return False
    return True


def _wait(code: ReasonCode) -> Suggestion:
    if code == ReasonCode.WAITING_FOR_RECLAIM:
        return Suggestion("wait", "", "It starts automatically in a moment.")
    return Suggestion("wait", "", "It starts automatically when enough is free.")
