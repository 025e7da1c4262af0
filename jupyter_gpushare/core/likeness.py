"""Whose waits of the past are like one's own: in the same node pool, of like size, lately; and how they are compared.

Waits are compared *per place*: a wait is divided by the place in its project's line at which it began, and what is expected is that
times one's own place. Queues differ from hour to hour far more than the pace at which they move; on the Philly trace this puts four
waits of five within a factor of two, and the waits as they are two of five (docs/measurements/waits.md).

Pure; times are ms since some epoch, and the moment of the question is an argument.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .amounts import GPU
from .expectation import Curve, Expected, Past

__all__ = ["AT_ONCE", "WEEK", "Alike", "Wait", "Waits", "size_class"]

DAY: Final = 24 * 3_600_000
WEEK: Final = 7 * DAY
AT_ONCE: Final = 2_000
"""ms. What was granted within two cycles did not wait: it says nothing about those who have to."""


@dataclass(frozen=True, slots=True)
class Wait:
    """One request's wait for its first grant. `ended` None: it goes on; `granted` False with an end: it was given up."""

    id: str
    project: str
    pool: str
    size: int
    """Its class (`size_class`)."""
    begun: int
    ended: int | None = None
    granted: bool = False


@dataclass(frozen=True, slots=True)
class Alike:
    """What was found, in ms from now, and among whom: `size` None: requests of any size; `days`: how far back."""

    expected: Expected
    size: int | None
    days: int


def size_class(gpu: int) -> int:
    """Requests of like size, by all their milli-GPU: none, parts of one GPU, and up to 1, 2, 4, 8, ... GPUs. Never smaller for more."""
    if gpu < GPU:
        return min(gpu, 1)
    top = GPU
    while top < gpu:
        top *= 2
    return top


class Waits:
    """The past as it stood at one moment. Building it costs a sort; curves are made when somebody asks for one, and kept."""

    def __init__(self, waits: Iterable[Wait], now: int) -> None:
        self.now = now
        self._waits = sorted(waits, key=lambda wait: (wait.begun, wait.id))
        self._places = dict(self._counted())
        self._curves: dict[tuple[str, int | None, int], Curve] = {}

    def _counted(self) -> Iterable[tuple[str, int]]:
        """Each wait's place in the line of its project and pool when it began; 1: nobody of it waited."""
        self._lines: dict[tuple[str, str], int] = {}
        """How many of a project wait in a pool now."""
        by_line: dict[tuple[str, str], list[Wait]] = {}
        for wait in self._waits:
            by_line.setdefault((wait.project, wait.pool), []).append(wait)
        for line, waits in by_line.items():
            ends = sorted(wait.ended for wait in waits if wait.ended is not None)
            self._lines[line] = len(waits) - len(ends)
            for before, wait in enumerate(waits):
                yield wait.id, max(1, before - bisect_right(ends, wait.begun) + 1)

    def place(self, project: str, pool: str, id_: str = "") -> int:
        """The place at which this wait began; of one that is not known: the place at which it would begin now."""
        return self._places.get(id_) or self._lines.get((project, pool), 0) + 1

    def expected(self, pool: str, size: int, place: int, so_far: int) -> Alike | None:
        """For one of this size class who began at this place and has waited for so long. None: too little is known.

        Those of like size of the last day come first, then of the last week, then of any size: the first among whom nine in ten can be
        told, else the first among whom half can.
        """
        found = [
            Alike(_scaled(expected, place), among, days)
            for among in (size, None)
            for days in (1, 7)
            if (expected := self._curve(pool, among, days).expected(so_far / place)) is not None
        ]
        told = [one for one in found if one.expected.median is not None]
        return next((one for one in told if one.expected.p90 is not None), next(iter(told), None))

    def _curve(self, pool: str, size: int | None, days: int) -> Curve:
        key = pool, size, days
        if key not in self._curves:
            first = bisect_left(self._waits, self.now - days * DAY, key=lambda wait: wait.begun)
            alike = (wait for wait in self._waits[first:] if wait.pool == pool and size in (None, wait.size))
            self._curves[key] = Curve(past for wait in alike if (past := self._past(wait)) is not None)
        return self._curves[key]

    def _past(self, wait: Wait) -> Past | None:
        """Per place. None: it did not have to wait."""
        waited = (self.now if wait.ended is None else wait.ended) - wait.begun
        return Past(waited / self._places[wait.id], wait.granted) if waited > AT_ONCE else None


def _scaled(per_place: Expected, place: int) -> Expected:
    median, p90 = (None if one is None else one * place for one in (per_place.median, per_place.p90))
    return Expected(median, p90, per_place.based_on)
