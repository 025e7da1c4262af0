"""What the policy lets a member of a project book."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from jupyter_gpushare.core.bookings.recurrence import Window
from jupyter_gpushare.core.model.errors import Conflict, InvalidInput, NotAllowed
from jupyter_gpushare.core.model.units import duration_text

from ..auth.authorization import Authorization
from ..auth.identity import Identity
from ..policy.booking_schemas import BookingRules
from ..state.bookings import HOUR_MS, BookingRecord
from ..state.unit_of_work import UnitOfWork

__all__ = ["FAR_MS", "BookingLimits"]

DAY_MS: Final = 86_400_000
FAR_MS: Final = 400 * DAY_MS
"""How far ahead bookings are compared with each other."""
MOST: Final = 100
"""Bookings that one person may have."""


class BookingLimits:
    """Of one unit of work. Managers and administrators have no limits."""

    def __init__(self, unit_of_work: UnitOfWork, visibility: Authorization) -> None:
        self._unit_of_work, self._visibility = unit_of_work, visibility

    def manages(self, identity: Identity, project: str) -> bool:
        """Whether the caller books for the whole project."""
        return self._visibility.is_admin(identity) or self._visibility.manages(identity, project)

    def check(self, identity: Identity, record: BookingRecord) -> None:
        """Raises NotAllowed, InvalidInput, Conflict."""
        if self.manages(identity, record.project):
            return
        if record.project not in self._visibility.projects(identity):
            raise NotAllowed(f"you are not a member of project {record.project!r}")
        rules = self._unit_of_work.loaded.bookings.rules.get(record.project)
        if rules is None:
            raise NotAllowed(
                f"the policy lets only managers book GPUs of project {record.project!r}"
            )
        known = self._unit_of_work.bookings.people.values()
        own = [one for one in known if one.user == record.user]
        if len(own) >= MOST:
            raise Conflict(f"you have {len(own)} bookings; cancel one first", field="id")
        self._check_ahead(record, rules)
        self._check_hours(record, rules, [one for one in own if one.project == record.project])

    def _check_ahead(self, record: BookingRecord, rules: BookingRules) -> None:
        now = self._unit_of_work.clock()
        last = record.times.windows(Window(now, now + FAR_MS))[-1]
        if rules.max_ahead is not None and last.start > now + rules.max_ahead:
            most = duration_text(rules.max_ahead)
            text = f"project {record.project!r} lets its members book at most {most} ahead"
            raise InvalidInput(text, field="start")

    def _check_hours(
        self, record: BookingRecord, rules: BookingRules, own: Iterable[BookingRecord]
    ) -> None:
        """Hours per calendar week in the booking's time zone, whatever the amount."""
        most = rules.max_hours_per_week
        if most is None:
            return
        now = self._unit_of_work.clock()
        period = Window(now - 14 * DAY_MS, now + FAR_MS)
        hours: dict[tuple[int, int], float] = {}
        for one in (*own, record):
            for window in self._unit_of_work.bookings.windows(one, period):
                week = _week(window.start, record)
                hours[week] = hours.get(week, 0) + (window.end - window.start) / HOUR_MS
        for window in record.times.windows(period):
            year, number = _week(window.start, record)
            if (total := hours[year, number]) > most:
                text = f"project {record.project!r} lets you book {most:g} hours a week; week"
                text += f" {number} of {year} would have {total:g}"
                raise InvalidInput(text, field="hours")


def _week(at: int, record: BookingRecord) -> tuple[int, int]:
    year, week, _ = datetime.fromtimestamp(at / 1000, record.times.zone).isocalendar()
    return year, week
