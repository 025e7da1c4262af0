"""By when those who wait will start at the latest: the same cycles, played on with what is bound to
happen, and undone.

What is bound to happen are facts with a time: a running time that a rule ends, a notice that runs
out. Everybody else is taken to keep what they have for ever, and nobody new to come; so it is a
bound, not a guess, as long as nobody comes who goes before. Pure.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from ..cluster.cluster import Cluster
from ..model.errors import Conflict, NotFound
from ..model.events import PodReleased, WorkloadEnded, WorkloadSubmitted
from ..model.model import Workload
from .cycle import cycle

__all__ = ["Coming", "foresee"]

Coming = tuple[int, WorkloadEnded | PodReleased]
"""What happens at a time (ms) at the latest."""
STEPS: Final = 12
"""Moments after now at which is looked, at most: where more than that is to come, several things
are taken together, at the time of the last.
"""


def foresee(
    cluster: Cluster,
    coming: Iterable[Coming],
    now: int,
    *,
    notice: int,
    asked: Workload | None = None,
) -> Generator[tuple[int, frozenset[str]], None, None]:
    """Time by time (ms) the workloads that have all their pods from then on. `notice`: how long the
    evicted keep their places; `asked`: a workload that is not submitted, and is on trial.

    Nobody may touch the cluster until the generator is exhausted or closed; then everything is as
    it was. Raises what submitting raises.
    """
    mark = cluster.checkpoint()
    try:
        if asked is not None:
            cluster.apply(WorkloadSubmitted(asked))
        numbers = count()
        ahead = [(at, next(numbers), fact) for at, fact in coming]
        heapify(ahead)
        at = now
        for left in range(STEPS, -1, -1):
            decisions = cycle(cluster, at)
            yield (
                at,
                frozenset(
                    bind.workload
                    for bind in decisions.binds
                    if bind.workload not in decisions.reasons
                ),
            )
            for evict in decisions.evictions:
                heappush(
                    ahead, (at + notice, next(numbers), PodReleased(evict.workload, evict.pod))
                )
            if not ahead or not left:
                return
            at = max(at, _apply_some(cluster, ahead, -(-len(ahead) // left)))
    finally:
        cluster.rollback(mark)


def _apply_some(
    cluster: Cluster, ahead: list[tuple[int, int, WorkloadEnded | PodReleased]], most: int
) -> int:
    """The next so many, and what happens at the same time as the last of them; gives that time."""
    at = ahead[0][0]
    while ahead and (most > 0 or ahead[0][0] == at):
        at, _, fact = heappop(ahead)
        most -= 1
        if isinstance(fact, PodReleased) or _runs(cluster, fact.id):
            with suppress(Conflict, NotFound):  # it let go before, or got its place back
                cluster.apply(fact)
    return at


def _runs(cluster: Cluster, id_: str) -> bool:
    """Whether it has held what it has all the time: one that lost its place meanwhile begins anew,
    and its time with it.
    """
    work = cluster.workloads.get(id_)
    return work is not None and all(
        member.status in ("running", "bound", "succeeded", "failed")
        for member in work.members.values()
    )
