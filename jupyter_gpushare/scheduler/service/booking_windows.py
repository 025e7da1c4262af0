"""Tells the cluster which bookings are near, wakes cycles at their edges, and gives back what
nobody uses.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from jupyter_gpushare.core.bookings.recurrence import Window
from jupyter_gpushare.core.model.booked_window import BookedWindow
from jupyter_gpushare.core.model.events import BookingsChanged

from ..state.audit import audit
from ..state.booking_capacity import PoolBookings, quota_of
from ..state.bookings import BookingRecord
from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord

__all__ = ["BookingWindows", "borrowed_until"]

DAY_MS: Final = 86_400_000
NEAR_MS: Final = 14 * DAY_MS
CHECKED_MS: Final = 60 * DAY_MS
"""How far ahead is checked whether bookings still fit."""
REFRESH_MS: Final = 3_600_000
SLACK_MS: Final = 1000
ROUND_MS: Final = 5000


class BookingWindows:
    """The times of all bookings of one unit of work."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self._unit_of_work = unit_of_work
        self._stamp: tuple[object, ...] = ()
        self._refreshed = 0
        self._last = 0
        self._used: set[tuple[str, int]] = set()
        """Times that have been used since they began: booking and start (ms)."""
        self._pools: dict[str, tuple[tuple[object, ...], PoolBookings, dict[str, Window]]] = {}

    def changed(self) -> None:
        """A booking was made or cancelled, or the policy has changed."""
        self._refresh(self._unit_of_work.clock())
        self._unit_of_work.wake()

    def tick(self, now: int) -> None:
        """Once a second. Raises Unavailable."""
        self._give_back(now)
        stamp = (self._unit_of_work.bookings.version, self._unit_of_work.loaded)
        if stamp != self._stamp or now - self._refreshed >= REFRESH_MS or now < self._refreshed:
            self._forget_past(now)
            self._refresh(now)
        edges = (at for w in self._unit_of_work.booked_windows for at in (w.opens, w.start, w.end))
        if any(self._last < at <= now for at in edges):
            self._unit_of_work.wake()
        self._last = now

    def _refresh(self, now: int) -> None:
        registry = self._unit_of_work.bookings
        self._stamp = registry.version, self._unit_of_work.loaded
        self._refreshed = now
        lead = self._lead()
        period = Window(now - 1, now + NEAR_MS)
        self._unit_of_work.booked_windows = tuple(
            BookedWindow(
                record.id,
                record.project,
                record.pool,
                record.gpu,
                window.start,
                window.end,
                lead,
                record.person,
                record.own_quota,
            )
            for record in registry.all()
            for window in registry.windows(record, period)
        )
        self._unit_of_work.cluster.apply(BookingsChanged(self._unit_of_work.booked_windows))

    def _forget_past(self, now: int) -> None:
        """Bookings whose last time is over. Raises Unavailable."""
        registry = self._unit_of_work.bookings
        past = [id_ for id_, one in registry.people.items() if not one.times.next_windows(now, 1)]
        if not past:
            return
        with self._unit_of_work.transaction() as write:
            for id_ in past:
                write.booking_ended(id_, now)
        for id_ in past:
            registry.remove(id_)

    def _lead(self) -> int:
        """The notice, and the time that the largest copies of one GPU take, in steps of 5 s."""
        copies: dict[tuple[str, int], int] = {}
        for id_, record in self._unit_of_work.records.items():
            copy = self._unit_of_work.cluster.workloads[id_].activity.copy_ms
            for lease in record.leases.values() if copy else ():
                for gpu in lease.planned_gpus:
                    place = lease.node, gpu
                    copies[place] = copies.get(place, 0) + copy
        copy = max(copies.values(), default=0) + SLACK_MS
        return self._unit_of_work.loaded.admin.notice + -(-copy // ROUND_MS) * ROUND_MS

    def _give_back(self, now: int) -> None:
        """Times that nobody has used for long enough after their start."""
        registry = self._unit_of_work.bookings
        by_id = (
            {record.id: record for record in registry.all()}
            if self._unit_of_work.booked_windows
            else {}
        )
        unused: list[tuple[BookingRecord, BookedWindow]] = []
        for window in self._unit_of_work.booked_windows:
            record = by_id.get(window.booking)
            if record is None or not record.no_show or not window.start <= now < window.end:
                continue
            if window.key in self._used:
                continue
            if self._is_used(record):
                self._used.add(window.key)
            elif now >= window.start + record.no_show:
                unused.append((record, window))
        self._used &= {window.key for window in self._unit_of_work.booked_windows}
        for record, window in unused:
            with self._unit_of_work.transaction() as write:
                write.booking_given_back(record.id, window.start)
                what = f"nobody used it for {record.no_show // 60_000} minutes"
                whose = f"booking {record.id} of project {record.project}"
                audit(write, now, "scheduler", "give back booking", whose, what)
            registry.give_back(record.id, window.start)

    def _is_used(self, record: BookingRecord) -> bool:
        return any(
            record.admits(one.project, one.user)
            and (not one.leases or any(body.pool == record.pool for body in one.leases.values()))
            for one in self._unit_of_work.records.values()
            if one.project == record.project and not one.is_held
        )

    # -- what fits --

    def pool(self, name: str) -> PoolBookings:
        """All bookings of a pool."""
        return self._of_pool(name)[0]

    def problem(self, record: BookingRecord) -> str:
        """Why a booking may not be there in time; "": it fits."""
        at = self._of_pool(record.pool)[1].get(record.id)
        if at is None:
            return ""
        return "It does not fit beside other bookings and quotas on the nodes that are known now."

    def _of_pool(self, name: str) -> tuple[PoolBookings, dict[str, Window]]:
        unit_of_work = self._unit_of_work
        policy, now = unit_of_work.loaded.policy, unit_of_work.clock()
        nodes = tuple(
            sorted(n.node.gpus for n in unit_of_work.cluster.nodes.values() if n.pool == name)
        )
        registry = unit_of_work.bookings
        stamp = (registry.version, unit_of_work.loaded, nodes, now // DAY_MS)
        known = self._pools.get(name)
        if known is None or known[0] != stamp:
            bookable = unit_of_work.loaded.bookings.bookable.get(name, 0)
            pool = PoolBookings(policy, name, nodes, bookable)
            period = Window(now - DAY_MS, now + CHECKED_MS)
            problems: dict[str, Window] = {}
            for record in registry.all():
                if record.pool == name:
                    taken = pool.add(record, registry.windows(record, period))
                    if taken is not None:
                        problems[record.id] = taken
            known = self._pools[name] = (stamp, pool, problems)
        return known[1], known[2]


def borrowed_until(unit_of_work: UnitOfWork, record: WorkloadRecord, pool: str) -> str:
    """A sentence for the owner of a workload that starts beyond its project's quota, if the pool is
    booked for others within a day; else "".
    """
    now = unit_of_work.clock()
    soon = [
        window
        for window in unit_of_work.booked_windows
        if window.pool == pool
        and now < window.start <= now + DAY_MS
        and not window.admits(record.project, record.user)
    ]
    if not soon:
        return ""
    held = sum(pod.gpu for pod in record.workload.pods)
    for other in unit_of_work.records.values():
        if other.project == record.project and other is not record:
            here = (lease for lease in other.leases.values() if lease.pool == pool)
            held += sum(other.pod(lease.pod)[1].gpu for lease in here)
    if held <= quota_of(unit_of_work.loaded.policy, record.project, pool):
        return ""
    first = min(soon, key=lambda window: (window.start, window.booking))
    at = datetime.fromtimestamp(first.start / 1000, UTC)
    whose = "another member" if first.project == record.project else f'project "{first.project}"'
    return f" It may be borrowed only until {at:%Y-%m-%d %H:%M} UTC: GPUs are booked for {whose}."
