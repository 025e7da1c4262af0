"""Reads the times of a booking as people write them: wall time, time zone, length, repetition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from functools import cache
from typing import Final, Literal
from zoneinfo import ZoneInfo, available_timezones

from jupyter_gpushare.core.bookings.recurrence import BookedTimes, Repetition
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.units import duration_text

__all__ = ["LONGEST_MS", "SHORTEST_MS", "booked_times", "read_day", "read_wall_time", "read_zone"]

SHORTEST_MS: Final = 60_000
LONGEST_MS: Final = 31 * 86_400_000
WALL_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?")
DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


def read_wall_time(text: str, *, field: str) -> datetime:
    """A wall time without a zone, such as 2026-12-01 14:00. Raises InvalidInput."""
    try:
        if WALL_TIME.fullmatch(text):
            return datetime.fromisoformat(text)
    except ValueError:
        pass  # such as month 13
    message = f"must be a wall time such as 2026-12-01 14:00, got {text[:40]!r}"
    raise InvalidInput(message, field=field)


def read_day(text: str, *, field: str) -> date:
    """A day such as 2026-12-31. Raises InvalidInput."""
    try:
        if DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise InvalidInput(f"must be a day such as 2026-12-31, got {text[:40]!r}", field=field)


def read_zone(name: str, *, field: str) -> ZoneInfo:
    """A time zone by its name, such as Europe/Berlin. Raises InvalidInput."""
    if name not in _zones():
        message = f"must be a time zone such as Europe/Berlin, got {name[:60]!r}"
        raise InvalidInput(message, field=field)
    return ZoneInfo(name)


@cache
def _zones() -> frozenset[str]:
    """All names; finding them reads the whole database."""
    return frozenset(available_timezones())


def booked_times(
    start: datetime,
    zone: ZoneInfo,
    duration: int,
    frequency: Literal["daily", "weekly"] | None = None,
    days: Sequence[int] = (),
    times: int | None = None,
    until: date | None = None,
) -> BookedTimes:
    """The times of a booking that lasts `duration` ms. Raises InvalidInput."""
    if not SHORTEST_MS <= duration <= LONGEST_MS:
        shortest, longest = duration_text(SHORTEST_MS), duration_text(LONGEST_MS)
        raise InvalidInput(f"a booking lasts {shortest} to {longest}", field="for")
    repetition = None
    if frequency is not None:
        repetition = Repetition(frequency, tuple(sorted(set(days))), times, until)
    elif days or times is not None or until is not None:
        raise InvalidInput("state repeat: daily or weekly", field="repeat")
    found = BookedTimes(start, zone, duration, repetition)
    if found.problem is not None:
        raise InvalidInput(found.problem, field="repeat")
    return found
