"""Quota that is promised to bookings of a later time."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.amounts import UNLIMITED
from ..model.booked_window import BookedWindow
from .people import PeopleLedger

__all__ = ["PromisedQuota"]


class PromisedQuota:
    """Quota of a queue in one pool that non-preemptible work may not use, because a booking needs
    it before that work ends: `starts` are bookings of its own quota that open later, `ends` those
    that add to it only until they end.
    """

    __slots__ = ("_clock", "_ends", "_starts")

    def __init__(
        self, starts: Iterable[BookedWindow], ends: Iterable[BookedWindow], clock: PeopleLedger
    ) -> None:
        self._starts, self._ends, self._clock = tuple(starts), tuple(ends), clock

    def gpu(self, lasts: int | None) -> int:
        """The most milli-GPU that are missing at any time while work lasts that starts now; `lasts`
        in ms, None: for ever.
        """
        now = self._clock.now
        until = UNLIMITED if lasts is None else now + lasts
        times = {max(now, window.opens) for window in self._starts}
        times |= {window.end for window in self._ends}
        return max((self._missing(at) for at in times if at < until), default=0)

    def _missing(self, at: int) -> int:
        return sum(w.gpu for w in self._starts if w.is_open(at)) + sum(
            w.gpu for w in self._ends if w.end <= at
        )
