"""What can be booked in one node pool: whether a booking fits beside the others, and when.

A booking of the bookable part fits into that part, and on the nodes beside all quotas. A booking of
a project's quota fits into that quota. Both are checked by packing (`core.bookings.packing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from jupyter_gpushare.core.bookings.calendar import Booking, Calendar, Overbooked
from jupyter_gpushare.core.bookings.packing import BookedShare, fit_on
from jupyter_gpushare.core.bookings.recurrence import Window
from jupyter_gpushare.core.model.amounts import GPU, is_unlimited
from jupyter_gpushare.core.model.model import Policy

from .bookings import BookingRecord

__all__ = ["PoolBookings", "quota_of"]

FINEST: Final = 10
"""milli-GPU: quota is counted in hundredths."""


def quota_of(policy: Policy, project: str, pool: str) -> int:
    """Milli-GPU of a project's quota; 0: it has none."""
    known = policy.by_name.get(project)
    return known.pools[pool].quota.gpu if known is not None and pool in known.pools else 0


class PoolBookings:
    """The bookings of one pool. `nodes`: the GPUs of its nodes; `bookable`: milli-GPU."""

    def __init__(self, policy: Policy, pool: str, nodes: Sequence[int], bookable: int) -> None:
        self.policy, self.pool, self.nodes = policy, pool, tuple(nodes)
        self.quotas = tuple(_quotas(policy, pool))
        self.is_overcommitted = any(is_unlimited(share.gpu) for share in self.quotas)
        self.bookable = bookable
        always = [] if self.is_overcommitted else self.quotas
        self._bookable = (_calendar_of(bookable), Calendar(self.nodes, always))
        self._own: dict[str, tuple[Calendar, ...]] = {}

    def _calendars(self, project: str, *, own_quota: bool) -> tuple[Calendar, ...]:
        if not own_quota:
            return self._bookable
        if project not in self._own:
            quota = quota_of(self.policy, project, self.pool)
            total = GPU * sum(self.nodes)
            calendar = _calendar_of(total if is_unlimited(quota) else quota)
            self._own[project] = (calendar, Calendar(self.nodes))
        return self._own[project]

    def add(self, record: BookingRecord, windows: Iterable[Window]) -> Window | None:
        """Adds a booking. The first time at which it does not fit, where it is left out."""
        problem: Window | None = None
        for window in windows:
            booking = [Booking(record.id, window, BookedShare(record.gpu))]
            for calendar in self._calendars(record.project, own_quota=record.own_quota):
                try:
                    calendar.add(booking)
                except Overbooked as error:
                    problem = problem or error.within
        return problem

    def could_ever_fit(self, project: str, gpu: int, *, own_quota: bool) -> bool:
        """Whether it fits if nothing else is booked."""
        if not own_quota and self.is_overcommitted:
            return False
        calendars = self._calendars(project, own_quota=own_quota)
        return all(fit_on(each.nodes, (*each.always, BookedShare(gpu))) for each in calendars)

    def conflict(self, project: str, gpu: int, window: Window, *, own_quota: bool) -> Window | None:
        """The first part of the window in which it does not fit; None: it fits."""
        for calendar in self._calendars(project, own_quota=own_quota):
            taken = calendar.conflict(window, BookedShare(gpu))
            if taken is not None:
                return taken
        return None

    def next_free(
        self, project: str, gpu: int, window: Window, until: int, *, own_quota: bool
    ) -> Window | None:
        """The next window of the same length that fits and begins before `until` (ms)."""
        length = window.end - window.start
        while window.start < until:
            taken = self.conflict(project, gpu, window, own_quota=own_quota)
            if taken is None:
                return window
            window = Window(taken.end, taken.end + length)
        return None

    def free(self, project: str, window: Window, *, own_quota: bool) -> int:
        """The largest milli-GPU that could be booked for all of this window."""
        quota = quota_of(self.policy, project, self.pool) if own_quota else self.bookable
        low, high = 0, min(quota, GPU * sum(self.nodes)) // FINEST
        if not own_quota and self.is_overcommitted:
            return 0
        while low < high:
            middle = (low + high + 1) // 2
            if self.conflict(project, middle * FINEST, window, own_quota=own_quota) is None:
                low = middle
            else:
                high = middle - 1
        return low * FINEST


class _Part(NamedTuple):
    """A whole number of devices, and how much of the last one is not there."""

    devices: int
    missing: int


def _calendar_of(milli_gpu: int) -> Calendar:
    """A calendar of so many devices, the last one in part."""
    part = _Part(-(-milli_gpu // GPU), -milli_gpu % GPU)
    always = [BookedShare(part.missing)] if part.missing else []
    return Calendar([part.devices] if part.devices else [], always)


def _quotas(policy: Policy, pool: str) -> Iterable[BookedShare]:
    """The quotas in a pool: of the projects, and what departments have beyond those."""
    below: dict[str | None, int] = {}
    for project in policy.projects:
        quota = quota_of(policy, project.name, pool)
        below[project.department] = below.get(project.department, 0) + quota
        if quota:
            yield BookedShare(quota, together=False)
    for department in reversed(policy.departments):
        quota = department.pools[pool].quota.gpu if pool in department.pools else 0
        beyond = max(0, quota - below.get(department.name, 0))
        below[department.parent] = below.get(department.parent, 0) + max(
            quota, below.get(department.name, 0)
        )
        if beyond:
            yield BookedShare(beyond, together=False)
