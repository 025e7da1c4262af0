"""Allocation and demand of the queues over time, and evictions. Old entries are deleted; callers'
permissions are not checked here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.estimates.time_series import DAY, Series, thinned
from jupyter_gpushare.core.model.amounts import MILLI, is_unlimited
from jupyter_gpushare.core.model.decisions import Evict, QueueShare
from jupyter_gpushare.core.model.errors import InvalidInput, Unavailable

from ..store.store import Store, StoreTransaction
from .workload_records import WorkloadRecord

__all__ = ["EvictionRecord", "SchedulerHistory", "eviction"]

T = TypeVar("T")
QUEUES: Final = "queues"
EVICTIONS: Final = "eviction"
COARSE: Final = DAY[-1]
"""What is stored: the coarsest granularity."""
MOST_EVICTIONS: Final = 1000
MOST_POINTS: Final = 120
"""Samples per queue in one response: more than a plot can show."""


@dataclass(frozen=True, slots=True)
class QueueHistoryPoint:
    """One queue in one pool, in milli-GPU."""

    queue: str
    kind: str
    pool: str
    quota: int
    fair_share: int
    allocated: int
    requested: int


@dataclass(frozen=True, slots=True)
class EvictionRecord:
    """An eviction, with the owners of both workloads: either may have ended when this is read."""

    at: int
    evict: Evict
    name: str
    user: str
    project: str
    by_project: str
    by_user: str


def eviction(
    now: int, evict: Evict, record: WorkloadRecord, by: WorkloadRecord | None
) -> EvictionRecord:
    """`by`: the workload that it makes room for, if any."""
    whose = (by.project, by.user) if by is not None else ("", "")
    return EvictionRecord(now, evict, record.request.name, record.user, record.project, *whose)


class SchedulerHistory:
    """Both histories. Times are ms since the epoch. Loads from the store: evictions, and a sample
    every ten minutes.
    """

    def __init__(self, store: Store, now: int) -> None:
        self._store = store
        self._queues: Series[tuple[QueueHistoryPoint, ...]] = Series()
        self._last: tuple[QueueHistoryPoint, ...] = ()
        self._stored_at = 0
        self._evictions: deque[EvictionRecord] = deque(maxlen=MOST_EVICTIONS)
        for at, points in _read(
            tuple[QueueHistoryPoint, ...],
            store.history(QUEUES, now - COARSE.span, COARSE.span // COARSE.step + 1),
        ):
            self._queues.add(at, points)
            self._stored_at = at
        self._evictions.extend(
            one for _, one in _read(EvictionRecord, store.history(EVICTIONS, 0, MOST_EVICTIONS))
        )

    # -- recording --

    def sample(self, now: int, queues: Iterable[QueueShare]) -> None:
        """Called at every tick; keeps the samples that the series need."""
        if not self._queues.is_due(now):
            return
        points = tuple(_point(queue) for queue in queues)
        if not points:
            return  # before the first cycle allocations are unknown, not 0
        if points != self._last:
            self._last = points
        self._queues.add(now, self._last)  # an unchanged cluster costs one reference per sample
        if now - self._stored_at >= COARSE.step:
            self._stored_at = now
            with (
                suppress(Unavailable),
                self._store.transaction() as write,
            ):  # a restart may lose one sample
                write.history(QUEUES, now, m.encode(self._last))
                write.forget_history(QUEUES, now - COARSE.span)

    @staticmethod
    def note(write: StoreTransaction, eviction: EvictionRecord) -> None:
        """Part of the transaction that evicts."""
        write.history(EVICTIONS, eviction.at, m.encode(eviction))

    def evicted(self, eviction: EvictionRecord) -> None:
        """Records an eviction after its commit."""
        self._evictions.append(eviction)

    # -- reading --

    def queues(
        self, now: int, *, minutes: int, pool: str | None, visible: Collection[str]
    ) -> m.QueueHistory:
        """All departments, and the visible projects."""
        samples = thinned(self._queues.since(now - minutes * 60_000), MOST_POINTS)
        rows: list[m.QueueSample] = []
        for at, points in samples:
            for point in points:
                is_visible = point.kind == "department" or point.queue in visible
                if is_visible and pool in (None, point.pool):
                    rows.append(_queue_row(at, point))
        return m.QueueHistory(samples=rows)

    def evictions(self, may_see: Callable[[str, str], bool]) -> m.Evictions:
        """Evictions in visible projects, oldest first. The workload that each makes room for is
        named only if it is visible too.
        """
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


def _read(kind: type[T], stored: Iterable[tuple[int, str]]) -> Iterator[tuple[int, T]]:
    """Skips rows of other versions that cannot be parsed: history must not keep a scheduler from
    starting.
    """
    for at, body in stored:
        with suppress(InvalidInput):
            yield at, m.decode(kind, body)


def _point(share: QueueShare) -> QueueHistoryPoint:
    return QueueHistoryPoint(
        share.queue,
        share.kind,
        share.pool,
        share.quota.gpu,
        share.fair_share.gpu,
        share.allocated.gpu,
        share.requested.gpu,
    )


def _queue_row(at: int, point: QueueHistoryPoint) -> m.QueueSample:
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
