"""When a booking takes place: a wall time in a zone, once or repeated, as windows in UTC.

A booking at 14:00 stays at 14:00 when the clock changes, and it stays as long as it was booked. A
wall time that the clock skips is the instant at which it would have been (02:30 becomes 03:30); one
that the clock shows twice is the first of both. Rules are applied to wall times without a zone,
because arithmetic on times of one zone ignores changes of the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import islice, takewhile
from typing import Final, Literal, NamedTuple

from dateutil.rrule import DAILY, WEEKLY, rrule

__all__ = ["MAX_TIMES", "Repetition", "BookedTimes", "Window", "instant"]

MAX_TIMES: Final = 200
"""Times that a booking may take place, if it ends."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)
WEEK: Final = timedelta(weeks=1)
SLACK: Final = timedelta(days=2)
"""More than the difference of any wall time from UTC."""
FREQUENCIES: Final = {"daily": DAILY, "weekly": WEEKLY}


class Window(NamedTuple):
    """From a start up to, but not including, an end: ms since 1970 in UTC."""

    start: int
    end: int

    def overlaps(self, other: Window) -> bool:
        return self.start < other.end and other.start < self.end


class Repetition(NamedTuple):
    """How a booking repeats. `days` of a weekly one: 0 is Monday; empty: the day of its start.
    `until` is its last day. Neither `times` nor `until`: it does not end.
    """

    frequency: Literal["daily", "weekly"]
    days: tuple[int, ...] = ()
    times: int | None = None
    until: date | None = None

    @property
    def problem(self) -> str | None:
        """Why this is no repetition that can be booked."""
        if self.frequency not in FREQUENCIES:
            return "a booking repeats daily or weekly"
        if self.times is not None and not 1 <= self.times <= MAX_TIMES:
            return f"a booking takes place 1 to {MAX_TIMES} times"
        if self.times is not None and self.until is not None:
            return "state how often a booking takes place or until when, not both"
        if self.days and self.frequency != "weekly":
            return "only a weekly booking has days"
        if any(day not in range(7) for day in self.days):
            return "a day of the week is 0 (Monday) to 6 (Sunday)"
        return None


def instant(wall: datetime, zone: tzinfo) -> int:
    """The ms since 1970 at which the clock of the zone shows this wall time."""
    at = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    return (at - EPOCH) // MILLISECOND


@dataclass(frozen=True, slots=True)
class BookedTimes:
    """A booking's times: the first start as a naive wall time in whole seconds, its zone, the
    duration in ms.
    """

    start: datetime
    zone: tzinfo
    duration: int
    repetition: Repetition | None = None

    @property
    def problem(self) -> str | None:
        """Why these times cannot be booked. A repetition with neither `times` nor `until` can: it
        is a rule, not a number of bookings.
        """
        repetition = self.repetition
        if repetition is None:
            return None
        if repetition.problem is None and repetition.until is not None:
            count = sum(1 for _ in islice(self._starts(), MAX_TIMES + 1))
            if not 1 <= count <= MAX_TIMES:
                return f"a booking takes place 1 to {MAX_TIMES} times until its last day"
        return repetition.problem

    def windows(self, between: Window) -> list[Window]:
        """The times at which the booking takes place that overlap `between`, the earliest first."""
        latest = _wall(between.end) + SLACK
        starts = takewhile(lambda wall: wall < latest, self._starts(between.start))
        found = (self._window(wall) for wall in starts)
        return sorted({window for window in found if window.overlaps(between)})

    def next_windows(self, now: int, count: int) -> list[Window]:
        """So many of the times that end after `now`, the earliest first; fewer if it ends."""
        found = (self._window(wall) for wall in self._starts(now))
        return sorted(islice((window for window in found if now < window.end), count))

    def _window(self, wall: datetime) -> Window:
        start = instant(wall, self.zone)
        return Window(start, start + self.duration)

    def _starts(self, ended: int | None = None) -> Iterator[datetime]:
        """The wall times at which the booking starts; those of windows that end before `ended` may
        be left out.
        """
        repetition = self.repetition
        if repetition is None:
            return iter((self.start,))
        until = repetition.until
        return iter(
            rrule(
                FREQUENCIES[repetition.frequency],
                dtstart=self.start if ended is None else self._late_start(ended),
                byweekday=repetition.days or None,
                count=repetition.times,
                until=None if until is None else datetime.combine(until, time.max),
            )
        )

    def _late_start(self, ended: int) -> datetime:
        """The start of the same rule some weeks later: a rule that began long ago is not followed
        from its beginning, unless its times are counted.
        """
        if self.repetition is None or self.repetition.times is not None:
            return self.start
        passed = _wall(ended - self.duration) - SLACK - self.start
        return self.start + max(0, passed // WEEK - 1) * WEEK


def _wall(at: int) -> datetime:
    """An instant as a naive time of UTC."""
    return (EPOCH + at * MILLISECOND).replace(tzinfo=None)
