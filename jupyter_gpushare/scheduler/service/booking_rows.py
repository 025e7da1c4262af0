"""Bookings as clients see them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date
from typing import Literal

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.bookings.recurrence import Repetition, Window
from jupyter_gpushare.core.model.amounts import GPU

from ..state.bookings import HOUR_MS, BookingRecord

__all__ = ["entry_of", "row_of"]

State = Literal["upcoming", "active", "over", "given back"]
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _state(window: Window, now: int, *, is_given_back: bool) -> State:
    if is_given_back:
        return "given back"
    if now >= window.end:
        return "over"
    return "active" if now >= window.start else "upcoming"


def row_of(
    record: BookingRecord,
    windows: Sequence[Window],
    given_back: Collection[int],
    now: int,
    *,
    problem: str,
    shows_user: bool,
    may_cancel: bool,
) -> m.BookingRow:
    """A booking with its next times."""
    times = [
        m.BookedTime(
            start=m.stamp(window.start),
            end=m.stamp(window.end),
            state=_state(window, now, is_given_back=window.start in given_back),
        )
        for window in windows
    ]
    coming = next((time for time in times if time.state in ("upcoming", "active")), None)
    return m.BookingRow(
        id=record.id,
        name=record.name,
        project=record.project,
        pool=record.pool,
        gpu=record.gpu / GPU,
        start=record.times.start.strftime("%Y-%m-%d %H:%M"),
        hours=record.times.duration / HOUR_MS,
        time_zone=str(record.times.zone),
        repeats=_repeats(record.times.repetition, record.times.start),
        who="person" if record.is_personal else "project",
        user=record.user if shows_user else "",
        source="quota" if record.own_quota else "bookable",
        next_start=coming.start if coming else None,
        next_end=coming.end if coming else None,
        state=coming.state if coming else times[0].state if times else "over",
        problem=problem,
        may_cancel=may_cancel,
        times=times,
    )


def _repeats(repetition: Repetition | None, start: date) -> str:
    if repetition is None:
        return ""
    text = "daily"
    if repetition.frequency == "weekly":
        days = repetition.days or (start.weekday(),)
        text = f"every {' and '.join(DAYS[day] for day in days)}"
    if repetition.until is not None:
        return f"{text} until {repetition.until.isoformat()}"
    return text if repetition.times is None else f"{text}, {repetition.times} times"


def entry_of(
    record: BookingRecord,
    window: Window,
    now: int,
    *,
    is_seen: bool,
    is_mine: bool,
    may_cancel: bool,
    is_given_back: bool,
) -> m.CalendarEntry:
    """One time in a calendar; without names if the caller does not see the booking."""
    return m.CalendarEntry(
        booking=record.id if is_seen else "",
        name=record.name if is_seen else "",
        project=record.project,
        gpu=record.gpu / GPU,
        start=m.stamp(window.start),
        end=m.stamp(window.end),
        state=_state(window, now, is_given_back=is_given_back),
        mine=is_mine,
        may_cancel=may_cancel,
    )
