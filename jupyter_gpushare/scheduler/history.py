"""What the queues held and wanted over time, and who was evicted. Knows no callers; what is older than its bounds is forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.amounts import MILLI, is_unlimited
from jupyter_gpushare.core.decisions import Evict, QueueShare
from jupyter_gpushare.core.series import Series, thinned

from .records import Record

__all__ = ["Eviction", "History"]

MOST_EVICTIONS: Final = 1000
MOST_POINTS: Final = 120
"""Per queue in one answer: more than a plot has room for."""


@dataclass(frozen=True, slots=True)
class Point:
    """One queue in one pool, in milli-GPU."""

    queue: str
    kind: str
    pool: str
    quota: int
    fair_share: int
    allocated: int
    requested: int


@dataclass(frozen=True, slots=True)
class Eviction:
    """What was decided, with whose it was: both workloads may be gone when somebody asks."""

    at: int
    evict: Evict
    name: str
    user: str
    project: str
    by_project: str
    by_user: str


class History:
    """Both logs. Times are ms since the epoch."""

    def __init__(self) -> None:
        self._queues: Series[tuple[Point, ...]] = Series()
        self._last: tuple[Point, ...] = ()
        self._evictions: deque[Eviction] = deque(maxlen=MOST_EVICTIONS)

    # -- taking in --

    def sample(self, now: int, queues: Iterable[QueueShare]) -> None:
        """Called at every tick; keeps what the grains of the series want."""
        if not self._queues.is_due(now):
            return
        points = tuple(_point(queue) for queue in queues)
        if points != self._last:
            self._last = points
        self._queues.add(now, self._last)  # an unchanged cluster costs one reference per sample

    def evicted(self, now: int, evict: Evict, record: Record, by: Record | None) -> None:
        """One eviction that was committed."""
        whose = by.project if by is not None else "", by.user if by is not None else ""
        self._evictions.append(Eviction(now, evict, record.request.name, record.user, record.project, *whose))

    # -- giving out --

    def queues(self, now: int, *, minutes: int, pool: str | None, visible: Collection[str]) -> m.QueueHistory:
        """Departments are everybody's; projects only the visible ones."""
        samples = thinned(self._queues.since(now - minutes * 60_000), MOST_POINTS)
        return m.QueueHistory(
            samples=[
                _queue_row(at, point)
                for at, points in samples
                for point in points
                if pool in (None, point.pool) and (point.kind == "department" or point.queue in visible)
            ]
        )

    def evictions(self, may_see: Callable[[str, str], bool]) -> m.Evictions:
        """Those of projects that may be seen, oldest first. Who they made room for is named only when that may be seen too."""
        return m.Evictions(evictions=list(self._eviction_rows(may_see)))

    def _eviction_rows(self, may_see: Callable[[str, str], bool]) -> Iterator[m.EvictionRow]:
        for one in self._evictions:
            if not may_see(one.project, one.user):
                continue
            evict, sees_by = one.evict, may_see(one.by_project, one.by_user)
            yield m.EvictionRow(
                time=m.stamp(one.at),
                workload=evict.workload,
                name=one.name,
                pod=evict.pod,
                user=one.user,
                project=one.project,
                node=evict.spot.node,
                pool=evict.spot.pool,
                action=evict.action,
                by=(evict.by or "") if sees_by else "",
                by_project=one.by_project,
                message=evict.message,
            )


def _point(share: QueueShare) -> Point:
    return Point(share.queue, share.kind, share.pool, share.quota.gpu, share.fair_share.gpu, share.allocated.gpu, share.requested.gpu)


def _queue_row(at: int, point: Point) -> m.QueueSample:
    return m.QueueSample(
        time=m.stamp(at),
        queue=point.queue,
        kind=point.kind,
        pool=point.pool,
        quota=None if is_unlimited(point.quota) else point.quota / MILLI,
        fair_share=point.fair_share / MILLI,
        allocated=point.allocated / MILLI,
        requested=point.requested / MILLI,
    )
