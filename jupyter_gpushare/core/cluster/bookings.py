"""Bookings in a cluster: quota that exists in a window of time.

Rules: docs/explanation/scheduling.md, Bookings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from ..model.amounts import Amounts, is_unlimited
from ..model.booked_window import BookedWindow
from ..model.model import Quota, Spot
from .people import PeopleLedger
from .pools import QueueSpec
from .promised_quota import PromisedQuota

__all__ = ["BookedRoom", "ClusterBookings", "promised_quotas", "with_bookings"]


class BookedRoom(NamedTuple):
    """GPUs (milli-GPU) that are kept free for a booking, and where."""

    window: BookedWindow
    gpu: int
    spot: Spot


class ClusterBookings(NamedTuple):
    """What is known, and the windows that are open, in the order in which they are served."""

    windows: tuple[BookedWindow, ...] = ()
    open: tuple[BookedWindow, ...] = ()

    def at(self, now: int) -> ClusterBookings:
        """The same at this time (ms). What is open stays open until its end, also if less time is
        needed to free its GPUs than was thought; or until the GPUs are freed for a booking of
        others that follows it.
        """
        before = {window.key for window in self.open}
        found = [
            window
            for window in self.windows
            if window.is_open(now) or (window.key in before and now < window.end)
        ]
        found = [window for window in found if not any(map(window.makes_way_for, found))]
        return ClusterBookings(self.windows, tuple(sorted(found, key=_order)))

    def replaced_by(self, windows: tuple[BookedWindow, ...]) -> ClusterBookings:
        """Other windows; those that were open and are still known stay open."""
        before = {window.key for window in self.open}
        kept = (window for window in windows if window.key in before)
        return ClusterBookings(windows, tuple(sorted(kept, key=_order)))


def _order(window: BookedWindow) -> tuple[bool, int, str]:
    """A person's booking first: what is left of that person's share counts for the project's."""
    return not window.user, window.start, window.booking


def with_bookings(
    specs: Mapping[str, QueueSpec], windows: Iterable[BookedWindow]
) -> dict[str, QueueSpec]:
    """The queues with the quota and limit that open windows add, on every level."""
    found = dict(specs)
    for window in windows:
        if not window.own_quota:
            for name in _path(specs, window.project):
                found[name] = _raised(found[name], window)
    return found


def promised_quotas(
    specs: Mapping[str, QueueSpec], bookings: ClusterBookings, pool: str, clock: PeopleLedger
) -> dict[str, PromisedQuota]:
    """What bookings in this pool need later, of the projects that have some and the queues above
    them.
    """
    starts: dict[str, list[BookedWindow]] = {}
    ends: dict[str, list[BookedWindow]] = {}
    for window in bookings.windows:
        is_open = window in bookings.open
        if window.pool == pool and is_open != window.own_quota:
            kind = starts if window.own_quota else ends
            for name in _path(specs, window.project):
                kind.setdefault(name, []).append(window)
    return {
        name: PromisedQuota(starts.get(name, ()), ends.get(name, ()), clock)
        for name in starts | ends
    }


def _path(specs: Mapping[str, QueueSpec], project: str) -> Iterator[str]:
    """A project and the departments above it."""
    name: str | None = project
    while name is not None and name in specs:
        yield name
        name = specs[name].parent


def _raised(spec: QueueSpec, window: BookedWindow) -> QueueSpec:
    rules = spec.in_pool(window.pool)
    more = Quota(_plus(rules.quota, window.gpu), _plus(rules.limit, window.gpu), *rules[2:])
    return replace(spec, rules={**spec.rules, window.pool: more})


def _plus(amounts: Amounts, gpu: int) -> Amounts:
    return amounts if is_unlimited(amounts.gpu) else amounts._replace(gpu=amounts.gpu + gpu)
