"""The bookings that are known: of people, which are stored, and of the policy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.bookings.recurrence import BookedTimes, Window
from jupyter_gpushare.core.model.units import read_gpu

from ..config.booked_times import booked_times, read_day, read_wall_time, read_zone
from ..policy.booking_schemas import BookingPolicy, PolicyBooking
from ..store.store import StoredBooking

__all__ = ["POLICY", "BookingRecord", "BookingRegistry", "times_in"]

HOUR_MS: Final = 3_600_000
POLICY: Final = "policy:"
"""Prefix of the ids of the policy's bookings."""


@dataclass(frozen=True, slots=True)
class BookingRecord:
    """One booking. `gpu` is milli-GPU, `no_show` and `created` are ms."""

    id: str
    name: str
    project: str
    pool: str
    gpu: int
    times: BookedTimes
    user: str
    """Who booked; "": the policy."""
    is_personal: bool
    """Whether only this person may use it."""
    own_quota: bool
    """Whether it is part of the project's quota; else of the pool's bookable part."""
    no_show: int
    created: int

    @property
    def person(self) -> str:
        """The only person who may use it; "": all members."""
        return self.user if self.is_personal else ""

    def admits(self, project: str, user: str) -> bool:
        """Whether this person may use it in this project."""
        return project == self.project and self.person in ("", user)


def times_in(request: m.BookingRequest) -> BookedTimes:
    """The times of a request. Raises InvalidInput."""
    repeat = request.repeat
    return booked_times(
        read_wall_time(request.start, field="start"),
        read_zone(request.time_zone, field="time_zone"),
        round(request.hours * HOUR_MS),
        None if repeat is None else repeat.frequency,
        () if repeat is None else repeat.days,
        None if repeat is None else repeat.times,
        None
        if repeat is None or repeat.until is None
        else read_day(repeat.until, field="repeat.until"),
    )


class BookingRegistry:
    """All bookings, and which of their times were given back. `version` changes with them."""

    def __init__(self) -> None:
        self.people: dict[str, BookingRecord] = {}
        """By id, in the order of their creation."""
        self.policy: tuple[BookingRecord, ...] = ()
        self.given_back: set[tuple[str, int]] = set()
        """Booking and start (ms)."""
        self.version = 0

    def restore(self, rows: Iterable[StoredBooking], given_back: Iterable[tuple[str, int]]) -> None:
        for row in sorted(rows, key=lambda row: (row.created_ms, row.request.id)):
            self.people[row.request.id] = record_of(row)
        self.given_back = set(given_back)
        self.version += 1

    def use_policy(self, policy: BookingPolicy) -> None:
        """The bookings of a policy replace those of the one before."""
        self.policy = tuple(_of_policy(one, policy) for one in policy.booked)
        self.version += 1

    def add(self, record: BookingRecord) -> None:
        self.people[record.id] = record
        self.version += 1

    def remove(self, id_: str) -> None:
        del self.people[id_]
        self.given_back = {one for one in self.given_back if one[0] != id_}
        self.version += 1

    def give_back(self, booking: str, start: int) -> None:
        self.given_back.add((booking, start))
        self.version += 1

    def all(self) -> list[BookingRecord]:
        """The policy's first, which were there before anybody booked."""
        return [*self.policy, *self.people.values()]

    def get(self, id_: str) -> BookingRecord | None:
        return next((one for one in self.all() if one.id == id_), None)

    def windows(self, record: BookingRecord, between: Window) -> list[Window]:
        """Its times in a period, without those that were given back."""
        found = record.times.windows(between)
        return [one for one in found if (record.id, one.start) not in self.given_back]


def record_of(row: StoredBooking) -> BookingRecord:
    """A stored booking."""
    request = row.request
    return BookingRecord(
        request.id,
        request.name or request.id,
        request.project,
        request.pool,
        read_gpu(request.gpu, what="gpu"),
        times_in(request),
        row.user,
        request.who == "me",
        request.source == "quota",
        round(request.no_show_minutes * 60_000),
        row.created_ms,
    )


def _of_policy(booking: PolicyBooking, policy: BookingPolicy) -> BookingRecord:
    is_quota = booking.source == "quota" or (
        booking.source is None and booking.pool not in policy.bookable
    )
    return BookingRecord(
        POLICY + booking.name,
        booking.name,
        booking.project,
        booking.pool,
        booking.gpu,
        booking.times,
        "",
        False,
        is_quota,
        booking.no_show,
        0,
    )
