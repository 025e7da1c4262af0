"""Selects similar earlier requests (same node pool, similar size, recent) and scales their waits.

Waits are compared per queue position: a wait is divided by the position in its project's queue at
which it began, and multiplied by the position of the current request. Queue lengths vary far more
than the rate at which queues advance. On the Philly trace, 80 % of estimates are within a factor of
two of the actual wait, against 40 % without scaling (docs/measurements/waits.md).

Times are ms since some epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from ..model.amounts import GPU
from .survival import SurvivalCurve, WaitEstimate

__all__ = ["AT_ONCE", "WEEK", "SimilarRequests", "WaitSample", "WaitHistory", "size_class"]

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_BEGUN_AND_ID: Final = itemgetter(0, 1)
DAY: Final = 24 * 3_600_000
WEEK: Final = 7 * DAY
AT_ONCE: Final = 2_000
"""ms. Grants within two cycles are not waits and are not counted."""


@dataclass(frozen=True, slots=True)
class WaitSample:
    """One request's wait for its first grant. `ended` None: it still waits; `granted` False with an
    end: cancelled.
    """

    id: str
    project: str
    pool: str
    size: int
    """Its class (`size_class`)."""
    begun: int
    ended: int | None = None
    granted: bool = False


@dataclass(frozen=True, slots=True)
class SimilarRequests:
    """The estimate in ms from now, and its basis: `size` None: requests of any size; `days` of
    history.
    """

    expected: WaitEstimate
    size: int | None
    days: int


def size_class(gpu: int) -> int:
    """The size class of a request: no GPU, a part of one, and up to 1, 2, 4, 8, ... GPUs.
    Monotonic.
    """
    if gpu < GPU:
        return min(gpu, 1)
    top = GPU
    while top < gpu:
        top *= 2
    return top


class WaitHistory:
    """The waits known at one time. Building it costs a sort; curves are cached.

    Stored as columns, because reading ten thousand rows one by one would delay grants.
    """

    def __init__(self, waits: Iterable[WaitSample], now: int) -> None:
        self.now = now
        rows = sorted(
            ((w.begun, w.id, (w.project, w.pool), w.size, w.ended, w.granted) for w in waits),
            key=_BEGUN_AND_ID,
        )
        self._begun = np.array([row[0] for row in rows], dtype=np.int64)
        self._pools = np.array([row[2][1] for row in rows], dtype=object)
        self._sizes = np.array([row[3] for row in rows], dtype=np.int64)
        ended = np.array([now if row[4] is None else row[4] for row in rows], dtype=np.int64)
        self._granted = np.array([row[5] for row in rows], dtype=bool)
        self._waiting_now: dict[tuple[str, str], int] = {}
        """Number of pending requests per project and pool."""
        positions = self._counted(
            [row[2] for row in rows], ended, np.array([row[4] is None for row in rows], dtype=bool)
        )
        self._positions = dict(zip((row[1] for row in rows), positions.tolist(), strict=True))
        waited = ended - self._begun
        self._had_to_wait = waited > AT_ONCE
        self._per_position = waited / positions
        self._curves: dict[tuple[str, int | None, int], SurvivalCurve] = {}

    def _counted(self, queues: list[tuple[str, str]], ended: Times, going_on: Flags) -> Times:
        """Each wait's position in the queue of its project and pool when it began, from 1."""
        positions = np.ones(len(queues), dtype=np.int64)
        members: dict[tuple[str, str], list[int]] = {}
        for row, queue_key in enumerate(queues):
            members.setdefault(queue_key, []).append(row)
        for queue_key, rows in members.items():
            ends = np.sort(ended[rows][~going_on[rows]])
            self._waiting_now[queue_key] = len(rows) - len(ends)
            before = np.arange(len(rows)) - np.searchsorted(ends, self._begun[rows], side="right")
            positions[rows] = np.maximum(1, before + 1)
        return positions

    def position(self, project: str, pool: str, id_: str = "") -> int:
        """The position at which this wait began, or at which an unknown one would begin now."""
        return self._positions.get(id_) or self._waiting_now.get((project, pool), 0) + 1

    def expected(self, pool: str, size: int, position: int, so_far: int) -> SimilarRequests | None:
        """The estimate for a request of this size class that began at `position` and has waited
        `so_far`; None: not enough data.

        Tries requests of similar size of the last day, then of the last week, then of any size;
        prefers the first basis that gives a 90th percentile, else the first that gives a median.
        """
        half = None
        for among, days in ((size, 1), (size, 7), (None, 1), (None, 7)):
            found = self._curve(pool, among, days).expected(so_far / position)
            if found is not None and found.median is not None:
                similar = SimilarRequests(_scaled(found, position), among, days)
                if found.p90 is not None:
                    return similar
                half = half or similar
        return half

    def _curve(self, pool: str, size: int | None, days: int) -> SurvivalCurve:
        key = pool, size, days
        if key not in self._curves:
            similar = (
                self._had_to_wait & (self._begun >= self.now - days * DAY) & (self._pools == pool)
            )
            if size is not None:
                similar &= self._sizes == size
            self._curves[key] = SurvivalCurve(self._per_position[similar], self._granted[similar])
        return self._curves[key]


def _scaled(per_position: WaitEstimate, position: int) -> WaitEstimate:
    median, p90 = (
        None if one is None else one * position for one in (per_position.median, per_position.p90)
    )
    return WaitEstimate(median, p90, per_position.based_on)
