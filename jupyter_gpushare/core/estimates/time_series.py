"""What something was over time, in bounded memory: every few seconds while it is young, coarser
when it is old. Pure.

Samples are values at a moment, not averages: a peak between two of them is not seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, Generic, TypeVar

from ..model.errors import InvalidInput

__all__ = ["DAY", "Grain", "Series", "minutes_in", "thinned"]

T = TypeVar("T")
MINUTE: Final = 60_000
LONGEST_MINUTES: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class Grain:
    """Samples at least `step` apart are kept for `span`; both in ms."""

    step: int
    span: int


DAY: Final = (
    Grain(5_000, 15 * MINUTE),
    Grain(MINUTE, 180 * MINUTE),
    Grain(10 * MINUTE, 24 * 60 * MINUTE),
)
"""At most 504 samples for a day: finest first."""


class Series(Generic[T]):
    """Time is the caller's and must not go back; a sample that is older than the last one is
    dropped.
    """

    def __init__(self, grains: Sequence[Grain] = DAY) -> None:
        self._grains = tuple(grains)
        self._kept: tuple[deque[tuple[int, T]], ...] = tuple(deque() for _ in grains)

    def is_due(self, now: int) -> bool:
        """Whether a sample taken now would be kept."""
        newest = self._kept[0]
        return not newest or now - newest[-1][0] >= self._grains[0].step

    def add(self, now: int, value: T) -> bool:
        """Whether it was kept: not when the last one is younger than the finest step."""
        if not self.is_due(now):
            return False
        for grain, kept in zip(self._grains, self._kept, strict=True):
            if not kept or now - kept[-1][0] >= grain.step:
                kept.append((now, value))
            while now - kept[0][0] > grain.span:
                kept.popleft()
        return True

    def since(self, start: int) -> list[tuple[int, T]]:
        """Samples from that time on, oldest first, each once, the finest that there are of each
        time.
        """
        found: list[tuple[int, T]] = []
        for kept in self._kept:
            oldest = found[0][0] if found else None
            older = list(takewhile(lambda sample: oldest is None or sample[0] < oldest, kept))  # noqa: B023 - used up in this turn
            found = older + found
        return [sample for sample in found if sample[0] >= start]


def thinned(samples: Sequence[tuple[int, T]], most: int) -> list[tuple[int, T]]:
    """At most so many of them, evenly by number, always with the newest."""
    if len(samples) <= most:
        return list(samples)
    step = len(samples) / most
    return [samples[len(samples) - 1 - round(i * step)] for i in reversed(range(most))]


def minutes_in(text: str | None) -> int:
    """How far back: whole minutes up to a day; an hour when nothing is said.

    Raises:
        InvalidInput: it is no such number.
    """
    if text is None or text == "":
        return 60
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= LONGEST_MINUTES):
        raise InvalidInput(
            f"minutes must be a whole number from 1 to {LONGEST_MINUTES}, got {text[:40]!r}",
            field="minutes",
        )
    return int(text[:9])
