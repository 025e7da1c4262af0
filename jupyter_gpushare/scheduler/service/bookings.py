"""Bookings: what people book, cancel and see. Every change is committed before it is announced.

What is booked takes effect in cycles (`core.queueing.booked_rooms`); `booking_windows` tells the
cluster which times are near.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace as changed_value
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.bookings.recurrence import Window
from jupyter_gpushare.core.model.amounts import GPU
from jupyter_gpushare.core.model.errors import Conflict, InvalidInput, NotAllowed, NotFound
from jupyter_gpushare.core.model.model import DEFAULT_POOL
from jupyter_gpushare.core.model.reason import counted
from jupyter_gpushare.core.model.units import duration_text, read_gpu

from ..auth.authorization import Authorization
from ..auth.identity import Identity
from ..config.booked_times import read_wall_time, read_zone
from ..state.audit import audit
from ..state.booking_capacity import PoolBookings, quota_of
from ..state.bookings import POLICY, BookingRecord, record_of
from ..state.unit_of_work import UnitOfWork
from ..store.store import StoredBooking
from .booking_limits import FAR_MS, BookingLimits
from .booking_rows import entry_of, row_of
from .booking_windows import BookingWindows

__all__ = ["BookingService"]

DAY_MS: Final = 86_400_000
SEARCH_MS: Final = 60 * DAY_MS
"""How far ahead the next free time is searched."""
LONGEST_CALENDAR: Final = 62 * DAY_MS
LONGEST_NAME: Final = 200
SHOWN_TIMES: Final = 10


class BookingService:
    """Of one unit of work. Every method raises `GpuShareError` for the caller and then has changed
    nothing.
    """

    def __init__(self, unit_of_work: UnitOfWork, visibility: Authorization) -> None:
        self._unit_of_work, self._visibility = unit_of_work, visibility
        self.windows = BookingWindows(unit_of_work)
        self._limits = BookingLimits(unit_of_work, visibility)

    # -- booking --

    def book(self, identity: Identity, request: m.BookingRequest) -> m.BookingFit:
        """Books GPUs, or tells whether they could be booked. Idempotent by the client's id.

        Raises InvalidInput, NotAllowed; Conflict: it does not fit, and when it would.
        """
        known = self._unit_of_work.bookings.people.get(request.id)
        if known is not None:
            return self._repeated(identity, known, request)
        record = self._read(identity, request)
        self._limits.check(identity, record)
        record, taken = self._fitted(record, request.source)
        if taken is not None:
            return self._refused(record, taken, request)
        if request.dry_run:
            return m.BookingFit(fits=True, message="It fits.")
        self._commit(identity, record, request)
        return m.BookingFit(fits=True, message="Booked.", booking=self._row(identity, record))

    def _repeated(
        self, identity: Identity, known: BookingRecord, request: m.BookingRequest
    ) -> m.BookingFit:
        user, _ = identity.acting_for(None)
        is_same = known.user == user and (known.project, known.pool) == (
            request.project,
            request.pool,
        )
        if not is_same or record_of(self._stored(known, request)).times != known.times:
            raise Conflict("this id cannot be used: choose another one", field="id")
        return m.BookingFit(fits=True, message="Booked.", booking=self._row(identity, known))

    def _read(self, identity: Identity, request: m.BookingRequest) -> BookingRecord:
        """The booking, without knowing whether it fits."""
        loaded, now = self._unit_of_work.loaded, self._unit_of_work.clock()
        _check_texts(request)
        if request.project not in loaded.policy.by_name:
            raise InvalidInput(f"unknown project {request.project!r}", field="project")
        pools = {DEFAULT_POOL, *(pool.name for pool in loaded.policy.node_pools)}
        if request.pool not in pools:
            raise InvalidInput(f"unknown node pool {request.pool!r}", field="pool")
        if read_gpu(request.gpu, what="gpu") <= 0:
            raise InvalidInput("gpu must be more than 0", field="gpu")
        if not 0 <= request.no_show_minutes <= 7 * 24 * 60:
            raise InvalidInput("no_show_minutes must be 0 to 10080", field="no_show_minutes")
        repeat = request.repeat
        if repeat is not None and repeat.times is None and repeat.until is None:
            raise InvalidInput("state until when it repeats, or how often", field="repeat.until")
        start = read_wall_time(request.start, field="start")
        read_zone(request.time_zone, field="time_zone")
        manages = self._limits.manages(identity, request.project)
        who = request.who or ("project" if manages else "me")
        if who == "project" and not manages:
            raise NotAllowed("only a manager of the project or an admin may book for all members")
        user, _ = identity.acting_for(None)
        row = StoredBooking(_resolved(request, who, request.source or "bookable"), user, now)
        record = record_of(row)
        if not record.times.windows(Window(now, now + FAR_MS)):
            raise InvalidInput(
                f"{start:%Y-%m-%d %H:%M} is over, or more than 400 days ahead", field="start"
            )
        return record

    def _fitted(
        self, record: BookingRecord, source: Literal["quota", "bookable"] | None
    ) -> tuple[BookingRecord, Window | None]:
        """The booking with the source from which it comes, and when it does not fit."""
        pool = self.pool(record.pool)
        tried: list[tuple[BookingRecord, Window | None]] = []
        for name in ("bookable", "quota") if source is None else (source,):
            one = _with_source(record, own_quota=name == "quota")
            if pool.could_ever_fit(one.project, one.gpu, own_quota=one.own_quota):
                tried.append((one, self._conflict(pool, one)))
        if not tried:
            raise InvalidInput(self._too_much(record, pool), field="gpu")
        return next((one for one in tried if one[1] is None), tried[0])

    def _conflict(self, pool: PoolBookings, record: BookingRecord) -> Window | None:
        now = self._unit_of_work.clock()
        for window in record.times.windows(Window(now, now + FAR_MS)):
            found = pool.conflict(record.project, record.gpu, window, own_quota=record.own_quota)
            if found is not None:
                return found
        return None

    def _too_much(self, record: BookingRecord, pool: PoolBookings) -> str:
        quota = quota_of(self._unit_of_work.loaded.policy, record.project, record.pool)
        sums = sum(share.gpu for share in pool.quotas) / GPU
        nodes = counted(sum(pool.nodes), "GPU")
        return (
            f"{counted(record.gpu / GPU, 'GPU')} can never be booked: project {record.project!r}"
            f" has a quota of {quota / GPU:g} in pool {record.pool!r}, {pool.bookable / GPU:g} can"
            f" be booked beside quotas of {sums:g}, and its nodes have {nodes}"
        )

    def _refused(
        self, record: BookingRecord, taken: Window, request: m.BookingRequest
    ) -> m.BookingFit:
        """Raises Conflict, or returns the same for a dry run."""
        now = self._unit_of_work.clock()
        first = record.times.windows(Window(now, now + FAR_MS))[0]
        free = self.pool(record.pool).next_free(
            record.project, record.gpu, first, first.start + SEARCH_MS, own_quota=record.own_quota
        )
        zone = record.times.zone
        text = f"it does not fit from {_wall(taken.start, zone)} to {_wall(taken.end, zone)}"
        if free is not None and free != first:
            text += f"; the next free time is {_wall(free.start, zone)} ({request.time_zone})"
        if request.dry_run:
            at = None if free is None else m.stamp(free.start)
            return m.BookingFit(fits=False, message=f"{text[0].upper()}{text[1:]}.", next_free=at)
        raise Conflict(text, field="start")

    def _stored(self, record: BookingRecord, request: m.BookingRequest) -> StoredBooking:
        who: Literal["project", "me"] = "me" if record.is_personal else "project"
        source: Literal["quota", "bookable"] = "quota" if record.own_quota else "bookable"
        return StoredBooking(_resolved(request, who, source), record.user, record.created)

    def _commit(self, identity: Identity, record: BookingRecord, request: m.BookingRequest) -> None:
        unit_of_work = self._unit_of_work
        with unit_of_work.transaction() as write:
            write.booked(self._stored(record, request))
            what = f"{counted(record.gpu / GPU, 'GPU')} in {record.pool} from {request.start}"
            what += f" {request.time_zone} for {duration_text(record.times.duration)}"
            whose = f"booking {record.id} of project {record.project}"
            audit(write, unit_of_work.clock(), identity.user, "book", whose, what)
        unit_of_work.bookings.add(record)
        self.windows.changed()

    # -- cancelling --

    def cancel(self, identity: Identity, id_: str) -> m.Ended:
        """Cancels a booking. Raises NotFound, NotAllowed."""
        unit_of_work = self._unit_of_work
        record = unit_of_work.bookings.get(id_)
        if record is None or not self._sees(identity, record):
            raise NotFound(f"there is no booking {id_[:80]}", field="id")
        if not self._may_cancel(identity, record):
            is_policy = record.id.startswith(POLICY)
            whose = "the policy; change it there" if is_policy else "somebody else"
            raise NotAllowed(f"booking {record.id} was made by {whose}")
        with unit_of_work.transaction() as write:
            write.booking_ended(record.id, unit_of_work.clock())
            whose = f"booking {record.id} of project {record.project}"
            audit(write, unit_of_work.clock(), identity.user, "cancel booking", whose)
        unit_of_work.bookings.remove(record.id)
        self.windows.changed()
        return m.Ended(id=record.id)

    def _may_cancel(self, identity: Identity, record: BookingRecord) -> bool:
        if record.id.startswith(POLICY):
            return False
        return self._visibility.reaches(identity, "cancel_booking", record.project, record.user)

    def _sees(self, identity: Identity, record: BookingRecord) -> bool:
        return self._visibility.manages(identity, record.project) or self._visibility.reaches(
            identity, "bookings", record.project, record.user
        )

    # -- reading --

    def seen(self, identity: Identity) -> list[BookingRecord]:
        """The bookings that the caller may see."""
        return [one for one in self._unit_of_work.bookings.all() if self._sees(identity, one)]

    def bookings(self, identity: Identity) -> m.Bookings:
        """Bookings of the projects that the caller may see, the next first."""
        rows = [self._row(identity, record) for record in self.seen(identity)]
        rows.sort(key=lambda row: (row.next_start is None, row.next_start or "", row.id))
        return m.Bookings(bookings=rows)

    def calendar(
        self, identity: Identity, pool: str | None, since: str | None, until: str | None
    ) -> m.BookingCalendar:
        """What is booked in one pool in a period, and what is free. Other projects are shown by
        name, without the names of their bookings. Raises InvalidInput.
        """
        name, now = pool or DEFAULT_POOL, self._unit_of_work.clock()
        start = now if not since else _moment(since, "from")
        period = Window(start, start + 7 * DAY_MS if not until else _moment(until, "to"))
        if not 0 < period.end - period.start <= LONGEST_CALENDAR:
            raise InvalidInput("to must be after from, and within 62 days of it", field="to")
        records = [one for one in self._unit_of_work.bookings.all() if one.pool == name]
        entries = [
            entry_of(
                record,
                window,
                now,
                is_seen=self._sees(identity, record),
                is_mine=self._is_mine(identity, record),
                may_cancel=self._may_cancel(identity, record),
                is_given_back=(record.id, window.start) in self._unit_of_work.bookings.given_back,
            )
            for record in records
            for window in record.times.windows(period)
        ]
        entries.sort(key=lambda entry: (entry.start, entry.booking))
        return m.BookingCalendar(
            pool=name, entries=entries, free=self._free(identity, self.pool(name), period, entries)
        )

    def _free(
        self,
        identity: Identity,
        pool: PoolBookings,
        period: Window,
        entries: Iterable[m.CalendarEntry],
    ) -> list[m.FreeTime]:
        """Between the starts and ends of bookings nothing changes."""
        edges = {period.start, period.end}
        for entry in entries:
            edges |= {m.stamp_ms(entry.start), m.stamp_ms(entry.end)}
        inside = sorted(at for at in edges if period.start <= at <= period.end)
        mine = sorted(self._may_book(identity))
        return [
            m.FreeTime(
                start=m.stamp(window.start),
                end=m.stamp(window.end),
                bookable=pool.free("", window, own_quota=False) / GPU,
                quota={p: pool.free(p, window, own_quota=True) / GPU for p in mine},
            )
            for window in map(Window, inside, inside[1:])
        ]

    def _may_book(self, identity: Identity) -> set[str]:
        """The projects in which the caller may book."""
        rules, projects = (
            self._unit_of_work.loaded.bookings.rules,
            self._visibility.projects(identity),
        )
        own = {name for name in projects if name in rules}
        return own | set(self._visibility.managed(identity))

    def _is_mine(self, identity: Identity, record: BookingRecord) -> bool:
        if record.is_personal:
            return any(user == record.user for user, _ in identity.people())
        return record.project in self._visibility.projects(identity)

    def _row(self, identity: Identity, record: BookingRecord) -> m.BookingRow:
        registry, now = self._unit_of_work.bookings, self._unit_of_work.clock()
        names = self._limits.manages(identity, record.project) or self._may_cancel(identity, record)
        return row_of(
            record,
            record.times.next_windows(now, SHOWN_TIMES),
            {start for id_, start in registry.given_back if id_ == record.id},
            now,
            problem=self.windows.problem(record),
            shows_user=names,
            may_cancel=self._may_cancel(identity, record),
        )

    def pool(self, name: str) -> PoolBookings:
        """All bookings of a pool."""
        return self.windows.pool(name)


def _check_texts(request: m.BookingRequest) -> None:
    for field, most in (("id", 200), ("name", LONGEST_NAME), ("project", 253), ("pool", 253)):
        text = getattr(request, field)
        if len(text) > most or not text.isprintable() or (field != "name" and not text.strip()):
            raise InvalidInput(f"{field} must have 1 to {most} printable characters", field=field)
    if request.id.startswith(POLICY):
        raise InvalidInput(f"id must not begin with {POLICY!r}", field="id")


def _resolved(
    request: m.BookingRequest, who: Literal["project", "me"], source: Literal["quota", "bookable"]
) -> m.BookingRequest:
    return replace(request, who=who, source=source, dry_run=False)


def _with_source(record: BookingRecord, *, own_quota: bool) -> BookingRecord:
    return changed_value(record, own_quota=own_quota)


def _wall(at: int, zone: object) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M")  # type: ignore[arg-type]


def _moment(text: str, field: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(
            f"{field} must be an ISO 8601 time, got {text[:40]!r}", field=field
        ) from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
