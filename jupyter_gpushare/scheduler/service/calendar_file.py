"""Bookings as an iCalendar file (RFC 5545), which calendar programs subscribe to.

Every time of a booking is an event of its own, from one instant in UTC to another; programs show it
in their user's time zone. A rule with a time zone would end the event at a wall time, which is
another instant in a night in which the clock changes, and the rules of zones with short changes,
such as Africa/Casablanca, are written incompletely by the library.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from jupyter_gpushare.core.bookings.recurrence import Window

if TYPE_CHECKING:
    from icalendar import Event

__all__ = ["BookedEvent", "calendar_file"]

PRODUCT: Final = "-//jupyter-gpushare//bookings//EN"
REFRESH: Final = timedelta(minutes=15)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class BookedEvent(NamedTuple):
    """One time of a booking."""

    booking: str
    summary: str
    description: str
    window: Window
    is_given_back: bool


def calendar_file(events: Iterable[BookedEvent], now: int) -> bytes:
    """The file as of `now` (ms)."""
    from icalendar import Calendar  # loaded when somebody has an address

    calendar = Calendar()
    calendar.add("prodid", PRODUCT)
    calendar.add("version", "2.0")
    calendar.add("x-wr-calname", "GPU bookings")
    calendar.add("refresh-interval", REFRESH, parameters={"VALUE": "DURATION"})
    for event in events:
        calendar.add_component(_event(event, now))
    return bytes(calendar.to_ical())


def _event(booked: BookedEvent, now: int) -> Event:
    from icalendar import Event

    start, end = (EPOCH + timedelta(milliseconds=at) for at in booked.window)
    event = Event()
    event.add("uid", _uid(booked))
    event.add("dtstamp", EPOCH + timedelta(milliseconds=now // 1000 * 1000))
    event.add("dtstart", start)
    event.add("dtend", end)
    event.add("summary", booked.summary)
    event.add("description", booked.description)
    event.add("status", "CANCELLED" if booked.is_given_back else "CONFIRMED")
    event.add("transp", "TRANSPARENT")
    return event


def _uid(booked: BookedEvent) -> str:
    """The same whenever the file is read; ids that clients chose may contain anything."""
    digest = hashlib.sha256(f"{booked.booking}\0{booked.window.start}".encode()).hexdigest()
    return f"{digest[:32]}@gpushare"
