"""Whose waits of the past are like one's own: in the same node pool, of like size, lately; and how
they are compared.

Waits are compared *per place*: a wait is divided by the place in its project's line at which it
began, and what is expected is that times one's own place. Queues differ from hour to hour far more
than the pace at which they move; on the Philly trace this puts four waits of five within a factor
of two, and the waits as they are two of five (docs/measurements/waits.md).

Pure; times are ms since some epoch, and the moment of the question is an argument.
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
"""ms. What was granted within two cycles did not wait: it says nothing about those who have to."""


@dataclass(frozen=True, slots=True)
class WaitSample:
    """One request's wait for its first grant. `ended` None: it goes on; `granted` False with an
    end: it was given up.
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
    """What was found, in ms from now, and among whom: `size` None: requests of any size; `days`:
    how far back.
    """

    expected: WaitEstimate
    size: int | None
    days: int


def size_class(gpu: int) -> int:
    """Requests of like size, by all their milli-GPU: none, parts of one GPU, and up to 1, 2, 4, 8,
    ... GPUs. Never smaller for more.
    """
    if gpu < GPU:
        return min(gpu, 1)
    top = GPU
    while top < gpu:
        top *= 2
    return top


class WaitHistory:
    """The past as it stood at one moment. Building it costs a sort; curves are made when somebody
    asks for one, and kept.

    Columns, as ten thousand may wait: a row at a time would hold up a grant.
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
        self._lines: dict[tuple[str, str], int] = {}
        """How many of a project wait in a pool now."""
        places = self._counted(
            [row[2] for row in rows], ended, np.array([row[4] is None for row in rows], dtype=bool)
        )
        self._places = dict(zip((row[1] for row in rows), places.tolist(), strict=True))
        waited = ended - self._begun
        self._had_to = waited > AT_ONCE
        self._per_place = waited / places
        self._curves: dict[tuple[str, int | None, int], SurvivalCurve] = {}

    def _counted(self, lines: list[tuple[str, str]], ended: Times, going_on: Flags) -> Times:
        """Each wait's place in the line of its project and pool when it began; 1: nobody of it
        waited.
        """
        places = np.ones(len(lines), dtype=np.int64)
        members: dict[tuple[str, str], list[int]] = {}
        for row, line in enumerate(lines):
            members.setdefault(line, []).append(row)
        for line, rows in members.items():
            ends = np.sort(ended[rows][~going_on[rows]])
            self._lines[line] = len(rows) - len(ends)
            before = np.arange(len(rows)) - np.searchsorted(ends, self._begun[rows], side="right")
            places[rows] = np.maximum(1, before + 1)
        return places

    def place(self, project: str, pool: str, id_: str = "") -> int:
        """The place at which this wait began; of one that is not known: the place at which it would
        begin now.
        """
        return self._places.get(id_) or self._lines.get((project, pool), 0) + 1

    def expected(self, pool: str, size: int, place: int, so_far: int) -> SimilarRequests | None:
        """For one of this size class who began at this place and has waited for so long. None: too
        little is known.

        Those of like size of the last day come first, then of the last week, then of any size: the
        first among whom nine in ten can be told, else the first among whom half can.
        """
        half = None
        for among, days in ((size, 1), (size, 7), (None, 1), (None, 7)):
            found = self._curve(pool, among, days).expected(so_far / place)
            if found is not None and found.median is not None:
                alike = SimilarRequests(_scaled(found, place), among, days)
                if found.p90 is not None:
                    return alike
                half = half or alike
        return half

    def _curve(self, pool: str, size: int | None, days: int) -> SurvivalCurve:
        key = pool, size, days
        if key not in self._curves:
            alike = self._had_to & (self._begun >= self.now - days * DAY) & (self._pools == pool)
            if size is not None:
                alike &= self._sizes == size
            self._curves[key] = SurvivalCurve(self._per_place[alike], self._granted[alike])
        return self._curves[key]


def _scaled(per_place: WaitEstimate, place: int) -> WaitEstimate:
    median, p90 = (
        None if one is None else one * place for one in (per_place.median, per_place.p90)
    )
    return WaitEstimate(median, p90, per_place.based_on)
