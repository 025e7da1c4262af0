"""A time series in bounded memory: fine resolution for recent samples, coarser for older ones.

Samples are momentary values, not averages; a peak between two samples is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
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
    """A series of samples. Time must not go back: samples older than the last one are dropped."""

    def __init__(self, grains: Sequence[Grain] = DAY) -> None:
        self._grains = tuple(grains)
        self._kept: tuple[deque[tuple[int, T]], ...] = tuple(deque() for _ in grains)

    def is_due(self, now: int) -> bool:
        """Whether a sample taken now would be kept."""
        newest = self._kept[0]
        return not newest or now - newest[-1][0] >= self._grains[0].step

    def add(self, now: int, value: T) -> bool:
        """Adds a sample unless the last one is younger than the finest step; returns whether it was
        kept.
        """
        if not self.is_due(now):
            return False
        for grain, kept in zip(self._grains, self._kept, strict=True):
            if not kept or now - kept[-1][0] >= grain.step:
                kept.append((now, value))
            while now - kept[0][0] > grain.span:
                kept.popleft()
        return True

    @property
    def newest(self) -> T | None:
        """The last sample; None: there is none."""
        return self._kept[0][-1][1] if self._kept[0] else None

    def replace_newest(self, value: T) -> None:
        """Replaces the last sample, whose state did not last."""
        at = self._kept[0][-1][0]
        for kept in self._kept:
            if kept and kept[-1][0] == at:
                kept[-1] = (at, value)

    def since(self, start: int) -> list[tuple[int, T]]:
        """Samples from that time on, oldest first, at the finest resolution kept for each time."""
        found: list[tuple[int, T]] = []
        for kept in self._kept:
            oldest = found[0][0] if found else None
            older = []
            for sample in kept:
                if oldest is not None and sample[0] >= oldest:
                    break
                older.append(sample)
            found = older + found
        return [sample for sample in found if sample[0] >= start]


def thinned(samples: Sequence[tuple[int, T]], most: int) -> list[tuple[int, T]]:
    """At most `most` of the samples, evenly spaced by number, always with the newest."""
    if len(samples) <= most:
        return list(samples)
    step = len(samples) / most
    return [samples[len(samples) - 1 - round(i * step)] for i in reversed(range(most))]


def minutes_in(text: str | None) -> int:
    """The period as whole minutes up to a day; 60 if none is given.

    Raises:
        InvalidInput: the text is not such a number.
    """
    if text is None or text == "":
        return 60
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= LONGEST_MINUTES):
        raise InvalidInput(
            f"minutes must be a whole number from 1 to {LONGEST_MINUTES}, got {text[:40]!r}",
            field="minutes",
        )
    return int(text[:9])
