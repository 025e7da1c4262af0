"""The bookings of a node pool: whether one more fits at every instant, and when the next would.

Bookings are found by the UTC days that they touch, so that adding one costs what is booked around
it, not what is booked in total.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from .packing import BookedShare, fit_on
from .recurrence import Window

__all__ = ["Booking", "Calendar", "Overbooked"]

DAY: Final = 86_400_000


class Booking(NamedTuple):
    """A share in one window. A repeated booking is several of them with one id."""

    id: str
    window: Window
    share: BookedShare


class Overbooked(Exception):
    """A booking does not fit. `within` is the first time in which it does not."""

    def __init__(self, booking: Booking, within: Window) -> None:
        super().__init__(f"booking {booking.id} does not fit")
        self.booking = booking
        self.within = within


class Calendar:
    """Bookings on nodes with these numbers of GPUs, beside these shares (quotas) at all times."""

    def __init__(self, nodes: Sequence[int], always: Iterable[BookedShare] = ()) -> None:
        self.nodes = tuple(nodes)
        self.always = tuple(always)
        self._by_day: dict[int, list[Booking]] = {}

    def during(self, window: Window) -> list[Booking]:
        """The bookings that overlap the window, by start."""
        found = {
            booking
            for day in _days(window)
            for booking in self._by_day.get(day, ())
            if booking.window.overlaps(window)
        }
        return sorted(found, key=lambda booking: (booking.window, booking.id))

    def conflict(self, window: Window, share: BookedShare) -> Window | None:
        """The first part of the window, between starts and ends of bookings, in which the share
        does not fit; None: it fits.
        """
        for part, booked in self._parts(window):
            if not fit_on(self.nodes, (*self.always, *booked, share)):
                return part
        return None

    def next_free(
        self, length: int, share: BookedShare, not_before: int, until: int
    ) -> Window | None:
        """The earliest window of this length that fits and starts before `until`. What does not fit
        in a part does not fit in any window that touches it, so the next candidate is its end.
        """
        if not fit_on(self.nodes, (*self.always, share)):
            return None
        window = Window(not_before, not_before + length)
        while window.start < until:
            taken = self.conflict(window, share)
            if taken is None:
                return window
            window = Window(taken.end, taken.end + length)
        return None

    def add(self, bookings: Iterable[Booking]) -> None:
        """All of them, or none and `Overbooked`."""
        added: list[Booking] = []
        for booking in bookings:
            within = self.conflict(booking.window, booking.share)
            if within is not None:
                self._forget(added)
                raise Overbooked(booking, within)
            for day in _days(booking.window):
                self._by_day.setdefault(day, []).append(booking)
            added.append(booking)

    def remove(self, id_: str) -> None:
        """All times of a booking."""
        every = {booking for booked in self._by_day.values() for booking in booked}
        self._forget(booking for booking in every if booking.id == id_)

    def _forget(self, bookings: Iterable[Booking]) -> None:
        for booking in bookings:
            for day in _days(booking.window):
                self._by_day[day].remove(booking)
                if not self._by_day[day]:
                    del self._by_day[day]

    def _parts(self, window: Window) -> Iterator[tuple[Window, list[BookedShare]]]:
        """The parts of a window between starts and ends, each with the shares booked in it."""
        bookings = self.during(window)
        edges = {edge for booking in bookings for edge in booking.window}
        inside = {edge for edge in edges if window.start < edge < window.end}
        for start, end in pairwise(sorted(inside | set(window))):
            part = Window(start, end)
            yield part, [b.share for b in bookings if b.window.overlaps(part)]


def _days(window: Window) -> range:
    """The UTC days that a window touches."""
    return range(window.start // DAY, (window.end - 1) // DAY + 1)
