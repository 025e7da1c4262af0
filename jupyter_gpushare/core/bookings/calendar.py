"""The bookings of a node pool: whether one more fits at every instant, and when the next would.

What is there between one start or end and the next is kept (`timeline`), so that adding or removing
a booking costs what is booked around it, not what is booked in total.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from .packing import BookedShare, Load, Packing, fit_on
from .recurrence import Window
from .timeline import Timeline

__all__ = ["Booking", "Calendar", "Overbooked"]

DAY: Final = 86_400_000
K = TypeVar("K")


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
        self._packing = Packing(self.nodes)
        self._quotas_fit = fit_on(self.nodes, self.always)
        self._timeline = Timeline(Load(self.always))
        self._by_day: dict[int, set[Booking]] = {}
        self._by_id: dict[str, set[Booking]] = {}

    def during(self, window: Window) -> list[Booking]:
        """The bookings that overlap the window, by start."""
        found = {
            booking
            for day in _days(window)
            for booking in self._by_day.get(day, ())
            if booking.window.overlaps(window)
        }
        return sorted(found, key=lambda booking: (booking.window, booking.id, booking.share))

    def conflict(self, window: Window, share: BookedShare) -> Window | None:
        """The first part of the window, between starts and ends of bookings, in which the share
        does not fit; None: it fits.
        """
        if all(self._has_room(load, share) for load in self._timeline.loads(window)):
            return None
        parts = self._timeline.parts(window)
        return next(part for part, load in parts if not self._has_room(load, share))

    def next_free(
        self, length: int, share: BookedShare, not_before: int, until: int
    ) -> Window | None:
        """The earliest window of this length that fits and starts before `until`. What does not fit
        in a part does not fit in any window that touches it, so the next candidate is its end.
        """
        start = not_before
        for part, load in self._timeline.parts(Window(not_before, until + length)):
            if not self._has_room(load, share):
                start = part.end
            elif part.end >= start + length:
                break
        is_free = start < until and self.conflict(Window(start, start + length), share) is None
        return Window(start, start + length) if is_free else None

    def add(self, bookings: Iterable[Booking]) -> None:
        """All of them, or none and `Overbooked`. One that is there already changes nothing."""
        added: list[Booking] = []
        for booking in bookings:
            if booking in self._by_id.get(booking.id, ()):
                continue
            within = self.conflict(booking.window, booking.share)
            if within is not None:
                self._forget(added)
                raise Overbooked(booking, within)
            self._remember(booking)
            added.append(booking)

    def remove(self, id_: str) -> None:
        """All times of a booking."""
        self._forget(list(self._by_id.get(id_, ())))

    def _has_room(self, load: Load, share: BookedShare) -> bool:
        return self._quotas_fit and self._packing.has_room(load, share)

    def _remember(self, booking: Booking) -> None:
        self._timeline.add(booking.window, booking.share)
        self._by_id.setdefault(booking.id, set()).add(booking)
        for day in _days(booking.window):
            self._by_day.setdefault(day, set()).add(booking)

    def _forget(self, bookings: Iterable[Booking]) -> None:
        for booking in bookings:
            self._timeline.remove(booking.window, booking.share)
            _discard(self._by_id, booking.id, booking)
            for day in _days(booking.window):
                _discard(self._by_day, day, booking)


def _discard(index: dict[K, set[Booking]], key: K, booking: Booking) -> None:
    index[key].discard(booking)
    if not index[key]:
        del index[key]


def _days(window: Window) -> range:
    """The UTC days that a window touches."""
    return range(window.start // DAY, (window.end - 1) // DAY + 1)
