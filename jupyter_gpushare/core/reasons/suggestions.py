"""What a person could change so that a waiting workload starts sooner. Each help is checked against
the numbers before it is given.
"""

from __future__ import annotations

from typing import Final

from ..model.amounts import GPU, is_unlimited
from ..model.reason import ReasonCode, Suggestion, counted
from .pending_view import PendingView, PoolView

__all__ = ["helps_for"]

FRACTIONS: Final = (750, 500, 250, 200, 100)
"""Shares that people ask for, tried from the largest."""


def helps_for(case: PendingView, code: ReasonCode, view: PoolView) -> tuple[Suggestion, ...]:
    """The changes that would help, the best first."""
    if code in (ReasonCode.NEVER_FITS, ReasonCode.INVALID_REQUEST):
        return tuple(_other_pools(case, view))
    helps: list[Suggestion] = []
    if code == ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA:
        helps.append(
            Suggestion(
                "preemptible",
                "true",
                "As preemptible work it may go beyond the quota while GPUs are free.",
            )
        )
    helps += _smaller(case, view)
    helps += _other_pools(case, view)
    if code != ReasonCode.NODE_NOT_READY and not _waits_for_ever(case, view):
        helps.append(_wait(code))
    return tuple(helps)


def _smaller(case: PendingView, view: PoolView) -> list[Suggestion]:
    """A smaller GPU request that the free GPUs and the bound in the way would take now."""
    if len(case.work.members) != 1:
        return []
    need = next(iter(case.work.members.values())).need
    asked = case.ask(view).gpu
    room = min(view.free.largest, view.free.total)
    for name in view.paths.get(case.work.project, ()):
        above = view.queues[name]
        if not is_unlimited(above.limit.gpu):
            room = min(room, above.limit.gpu - above.allocated.gpu)
        if not case.work.preemptible and not is_unlimited(above.quota.gpu):
            room = min(room, above.quota.gpu - view.fixed[name].gpu)
    if need.mig or not need.gpu or room <= 0:
        return []
    sizes = [room // GPU * GPU] if room >= GPU else [f for f in FRACTIONS if f <= room][:1]
    return [
        Suggestion("gpu", f"{s / GPU:g}", f"A request for {counted(s / GPU, 'GPU')} would fit now.")
        for s in sizes
        if 0 < s < asked
    ]


def _other_pools(case: PendingView, view: PoolView) -> list[Suggestion]:
    asked = case.ask(view).gpu
    project = case.work.project
    helps = []
    for name, other in sorted(case.views.items()):
        largest = asked if len(case.work.members) == 1 else 0
        if (
            name in case.pools
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
            other.queues[project].quota.gpu - other.fixed[project].gpu
            if project in other.queues
            else 0
        )
        if not case.work.preemptible and asked > room:
            continue
        helps.append(
            Suggestion(
                "node_pools",
                name,
                f"Pool {name} has {counted(other.free.total / GPU, 'free GPU')}.",
            )
        )
    return helps


def _waits_for_ever(case: PendingView, view: PoolView) -> bool:
    """Whether no release can help: it is larger than a bound by itself, or has too few pods."""
    if not case.work.is_ready:
        return True
    ask = case.ask(view)
    above = [view.queues[name] for name in view.paths.get(case.work.project, ())]
    return any(
        not ask.fits_in(queue.limit) or not (case.work.preemptible or ask.fits_in(queue.quota))
        for queue in above
    )


def _wait(code: ReasonCode) -> Suggestion:
    if code == ReasonCode.WAITING_FOR_RECLAIM:
        return Suggestion("wait", "", "Nothing to do: it starts by itself in a moment.")
    return Suggestion("wait", "", "It starts by itself when enough is given back.")
