"""The latest times at which pending workloads will start, found by simulating cycles and undoing
them.

Only events with a known time are simulated: running times limited by a rule, and notices that
expire. Other workloads are assumed to keep their places, and no new ones to arrive. The result is
therefore an upper bound unless a workload arrives that is served earlier.
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

__all__ = ["ScheduledEvent", "project_starts"]

ScheduledEvent = tuple[int, WorkloadEnded | PodReleased]
"""An event and the time (ms) by which it happens."""
STEPS: Final = 12
"""Bound on the number of simulated times; with more events, several are applied at the time of the
last.
"""


def project_starts(
    cluster: Cluster,
    scheduled: Iterable[ScheduledEvent],
    now: int,
    *,
    notice: int,
    workload: Workload | None = None,
) -> Generator[tuple[int, frozenset[str]], None, None]:
    """Yields times (ms), each with the workloads that have all their pods from then on.

    `notice` is how long evicted pods keep their places; `workload` one that is not submitted. The
    cluster must not be used until the generator is exhausted or closed; it is unchanged then.
    Raises what submitting raises.
    """
    mark = cluster.checkpoint()
    try:
        if workload is not None:
            cluster.apply(WorkloadSubmitted(workload))
        numbers = count()
        ahead = [(at, next(numbers), fact) for at, fact in scheduled]
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
    """Applies the next events, at least `most`, and those at the same time as the last; returns
    that time.
    """
    at = ahead[0][0]
    while ahead and (most > 0 or ahead[0][0] == at):
        at, _, fact = heappop(ahead)
        most -= 1
        if isinstance(fact, PodReleased) or _runs(cluster, fact.id):
            with suppress(Conflict, NotFound):  # it was released before, or got its place back
                cluster.apply(fact)
    return at


def _runs(cluster: Cluster, id_: str) -> bool:
    """Whether it has kept its place; a workload that lost it starts again, with its running
    time.
    """
    work = cluster.workloads.get(id_)
    return work is not None and all(
        member.status in ("running", "bound", "succeeded", "failed")
        for member in work.members.values()
    )
