"""Bookings: GPUs in a window of time."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct, field

from .columns import column
from .common import Body, Stamp

__all__ = [
    "BookedTime",
    "BookingCalendar",
    "BookingFeed",
    "BookingFit",
    "BookingRequest",
    "BookingRow",
    "Bookings",
    "CalendarEntry",
    "FreeTime",
    "Repeat",
]

BookingState = Literal["upcoming", "active", "over", "given back"]


class Repeat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a booking repeats: until a last day, or so many times."""

    frequency: Literal["daily", "weekly"]
    days: list[int] = field(default_factory=list)
    """Days of a weekly booking, 0 is Monday; empty: the day of its start."""
    times: int | None = None
    until: str | None = None
    """The last day, such as 2026-12-31."""


class BookingRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST bookings`. `start` is a wall time in `time_zone`, such as "2026-12-01 14:00"; the
    booking lasts `hours`, also when the clock changes.
    """

    id: str
    """Chosen by the client; a repeated submission changes nothing."""
    project: str
    gpu: float
    start: str
    hours: float
    time_zone: str = "UTC"
    pool: str = "default"
    name: str = ""
    repeat: Repeat | None = None
    who: Literal["project", "me"] | None = None
    """Who may use it: all members of the project, or the caller. Absent: the project if the caller
    manages it, else the caller.
    """
    source: Literal["quota", "bookable"] | None = None
    """The project's quota, or the bookable part of the pool. Absent: the bookable part if it fits
    there.
    """
    no_show_minutes: float = 10
    """Unused for so long after its start, it is given back; 0: never."""
    dry_run: bool = False
    """Only tells whether it fits."""


class BookedTime(Body, frozen=True, kw_only=True):
    """One time of a booking."""

    start: Stamp
    end: Stamp
    state: BookingState


class BookingRow(Body, frozen=True, kw_only=True):
    """A booking. Names of people are empty where the caller may not see them."""

    id: Annotated[str, column("ID")]
    name: Annotated[str, column("Name")]
    project: Annotated[str, column("Project")]
    pool: Annotated[str, column("Node pool")]
    gpu: Annotated[float, column("GPUs")]
    start: Annotated[str, column("First start", "Wall time in its time zone.")]
    hours: Annotated[float, column("Hours", "How long it lasts each time.")]
    time_zone: Annotated[str, column("Time zone")]
    repeats: Annotated[str, column("Repeats", "Empty: it takes place once.")]
    who: Annotated[
        Literal["project", "person"],
        column("For", "All members of the project, or the person who booked."),
    ]
    user: Annotated[str, column("Booked by", "Empty: the policy, or not shown to you.")]
    source: Annotated[
        Literal["quota", "bookable"],
        column("From", "The project's quota, or the bookable part of the node pool."),
    ]
    next_start: Annotated[Stamp | None, column("Next start", "Empty: it is over.")]
    next_end: Annotated[Stamp | None, column("Next end")]
    state: Annotated[BookingState, column("State", "Of the next or current time.")]
    problem: Annotated[str, column("Problem", "Why it may not be there in time.")]
    may_cancel: Annotated[bool, column("May cancel", cli=False, dashboard=False)]
    times: Annotated[list[BookedTime], column("Times", cli=False, dashboard=False)] = field(
        default_factory=list
    )
    """Its next times, at most ten."""


class Bookings(Body, frozen=True, kw_only=True):
    """Answer of `GET bookings`: those of the caller's projects."""

    bookings: list[BookingRow]


class BookingFit(Body, frozen=True, kw_only=True):
    """Answer of `POST bookings`: the booking, or with `dry_run` whether it fits."""

    fits: bool
    message: str
    next_free: Stamp | None = None
    """When a booking of this length would fit next."""
    booking: BookingRow | None = None


class BookingFeed(Body, frozen=True, kw_only=True):
    """Answer of `POST booking-feed`: the address, on this server, at which calendar programs read
    the caller's bookings. It is shown only here. Of `DELETE booking-feed`: empty.
    """

    path: str = ""
    created: Stamp | None = None


class CalendarEntry(Body, frozen=True, kw_only=True):
    """One time of a booking in a calendar."""

    booking: str
    name: str
    project: str
    gpu: float
    start: Stamp
    end: Stamp
    state: BookingState
    mine: bool
    """Whether the caller may use it."""
    may_cancel: bool


class FreeTime(Body, frozen=True, kw_only=True):
    """What can be booked from `start` to `end`: GPUs of the node pool's bookable part, and of the
    quota of each project in which the caller may book.
    """

    start: Stamp
    end: Stamp
    bookable: float
    quota: dict[str, float]


class BookingCalendar(Body, frozen=True, kw_only=True):
    """Answer of `GET bookings/calendar`: one node pool in a period."""

    pool: str
    entries: list[CalendarEntry]
    free: list[FreeTime]
