"""Changes to a pending request that would let it start sooner. Each is checked before it is
suggested.
"""

from __future__ import annotations

from typing import Final

from ..model.amounts import GPU, is_unlimited
from ..model.reason import ReasonCode, Suggestion, counted
from .pending_view import PendingView, PoolView

__all__ = ["suggestions_for"]

FRACTIONS: Final = (750, 500, 250, 200, 100)
"""Common fractions, tried from the largest."""


def suggestions_for(
    pending: PendingView, code: ReasonCode, view: PoolView
) -> tuple[Suggestion, ...]:
    """The changes that would help, the best first."""
    if code in (ReasonCode.NEVER_FITS, ReasonCode.INVALID_REQUEST):
        return tuple(_other_pools(pending, view))
    helps: list[Suggestion] = []
    if code == ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA:
        helps.append(
            Suggestion(
                "preemptible",
                "true",
                "As preemptible work it may go beyond the quota while GPUs are free.",
            )
        )
    helps += _smaller(pending, view)
    helps += _other_pools(pending, view)
    if code != ReasonCode.NODE_NOT_READY and not _waits_for_ever(pending, view):
        helps.append(_wait(code))
    return tuple(helps)


def _smaller(pending: PendingView, view: PoolView) -> list[Suggestion]:
    """A smaller GPU request that would fit now."""
    if len(pending.work.members) != 1:
        return []
    need = next(iter(pending.work.members.values())).need
    asked = pending.ask(view).gpu
    room = min(view.free.largest, view.free.total)
    for name in view.paths.get(pending.work.project, ()):
        above = view.queues[name]
        if not is_unlimited(above.limit.gpu):
            room = min(room, above.limit.gpu - above.allocated.gpu)
        if not pending.work.preemptible and not is_unlimited(above.quota.gpu):
            room = min(room, above.quota.gpu - view.non_preemptible[name].gpu)
    if need.mig or not need.gpu or room <= 0:
        return []
    sizes = [room // GPU * GPU] if room >= GPU else [f for f in FRACTIONS if f <= room][:1]
    return [
        Suggestion("gpu", f"{s / GPU:g}", f"A request for {counted(s / GPU, 'GPU')} would fit now.")
        for s in sizes
        if 0 < s < asked
    ]


def _other_pools(pending: PendingView, view: PoolView) -> list[Suggestion]:
    asked = pending.ask(view).gpu
    project = pending.work.project
    helps = []
    for name, other in sorted(pending.views.items()):
        largest = asked if len(pending.work.members) == 1 else 0
        if (
            name in pending.pools
            or not asked
            or other.free.total < asked
            or other.free.largest < largest
        ):
            continue
        if (
            project in other.queues
            and other.queues[project].allocated.gpu + asked > other.queues[project].limit.gpu
        ):
            continue
        room = (
            other.queues[project].quota.gpu - other.non_preemptible[project].gpu
            if project in other.queues
            else 0
        )
        if not pending.work.preemptible and asked > room:
            continue
        helps.append(
            Suggestion(
                "node_pools",
                name,
                f"Pool {name} has {counted(other.free.total / GPU, 'free GPU')}.",
            )
        )
    return helps


def _waits_for_ever(pending: PendingView, view: PoolView) -> bool:
    """Whether no release can help: the request alone exceeds a bound, or it has too few pods."""
    if not pending.work.is_ready:
        return True
    ask = pending.ask(view)
    above = [view.queues[name] for name in view.paths.get(pending.work.project, ())]
    return any(
        not ask.fits_in(queue.limit) or not (pending.work.preemptible or ask.fits_in(queue.quota))
        for queue in above
    )


def _wait(code: ReasonCode) -> Suggestion:
    if code == ReasonCode.WAITING_FOR_RECLAIM:
        return Suggestion("wait", "", "Nothing to do: it starts by itself in a moment.")
    return Suggestion("wait", "", "It starts by itself when enough is given back.")
