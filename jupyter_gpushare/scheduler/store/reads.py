"""Queries of the store. They need no transaction and change nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import sqlalchemy as sql

from jupyter_gpushare import messages as m

from . import schema as s
from .database import translated_errors
from .schema import (
    FeedRow,
    LeaseRow,
    MemberLimitRow,
    PersonUsageRow,
    StoredBooking,
    StoredNode,
    StoredState,
    TokenRow,
    WorkloadOutcome,
    WorkloadRow,
)

__all__ = ["EVENTS_KEPT", "StoreReader"]

Row = TypeVar("Row")
EVENTS_KEPT: Final = 100
"""Events per workload that the service keeps in memory; the table has older ones."""
LOG_ROWS: Final = 200
"""Rows of output per query."""
IDS_PER_QUERY: Final = 500

_LIVE: Final = s.workloads.c.ended_ms.is_(None)
_LIVE_IDS: Final = sql.select(s.workloads.c.id).where(_LIVE)
_ENDED_USER: Final = sql.select(s.workloads.c.user).where(
    s.workloads.c.id == sql.bindparam("of"), s.workloads.c.ended_ms.is_not(None)
)
_TOKEN: Final = sql.select(s.tokens).where(s.tokens.c.hash == sql.bindparam("of"))
_REVISION: Final = sql.select(s.facts.c.value).where(s.facts.c.key == "revision")


class StoreReader:
    """Every method may raise `StoreUnavailable`."""

    engine: sql.Engine

    def load(self) -> StoredState:
        """Everything that has not ended: what a restarted service begins with."""
        with translated_errors(), self.engine.connect() as connection:
            return StoredState(
                revision=int(connection.execute(_REVISION).scalar() or 0),
                workloads=_live_workloads(connection),
                leases=_live_leases(connection),
                nodes=_nodes(connection),
                events=_events(connection),
                exits=_exit_codes(connection, _LIVE_IDS),
                people=_rows(connection, s.person_usage, PersonUsageRow),
                limits=_rows(connection, s.member_limits, MemberLimitRow),
                bookings=_bookings(connection),
                given_back=_given_back(connection),
            )

    # -- batch workloads --

    def ended_batch(self, workload: str | None = None, most: int = 50) -> list[WorkloadOutcome]:
        """Ended workloads with a command, newest first; or the one with this id."""
        query = sql.select(s.workloads).where(
            s.workloads.c.ended_ms.is_not(None), s.workloads.c.kernel_id.is_(None)
        )
        if workload is not None:
            query = query.where(s.workloads.c.id == workload)
        query = query.order_by(s.workloads.c.ended_ms.desc()).limit(most)
        found = []
        with translated_errors(), self.engine.connect() as connection:
            rows = connection.execute(query).all()
            exits = _exit_codes(connection, [row.id for row in rows])
        for row in rows:
            stored = _workload(row)
            if stored.request.command is not None:
                found.append(
                    WorkloadOutcome(stored, row.ended_ms, row.message, exits.get(row.id, {}))
                )
        return found

    def logs(
        self, workload: str, pod: str | None, after: int, most: int
    ) -> tuple[list[m.LogText], int]:
        """Output of its pods (or of one pod) after a cursor, about `most` characters of it, and the
        next cursor.
        """
        query = sql.select(s.logs).where(s.logs.c.workload == workload, s.logs.c.number > after)
        if pod is not None:
            query = query.where(s.logs.c.pod == pod)
        query = query.order_by(s.logs.c.number).limit(LOG_ROWS)
        found: list[m.LogText] = []
        size = 0
        with translated_errors(), self.engine.connect() as connection:
            for row in connection.execute(query):
                found.append(m.LogText(pod=row.pod, text=row.text))
                after, size = row.number, size + len(row.text)
                if size >= most:
                    break
        return found, after

    def logged_up_to(self, lease: str) -> int:
        """Bytes of this lease's output that are stored."""
        query = sql.select(sql.func.max(s.logs.c.stop)).where(s.logs.c.lease == lease)
        with translated_errors(), self.engine.connect() as connection:
            return int(connection.execute(query).scalar() or 0)

    def output_of(self, user: str) -> int:
        """Characters of stored output of this user's commands."""
        query = sql.select(sql.func.sum(sql.func.length(s.logs.c.text)))
        query = query.join(s.workloads, s.workloads.c.id == s.logs.c.workload)
        with translated_errors(), self.engine.connect() as connection:
            found = connection.execute(query.where(s.workloads.c.user == user)).scalar()
        return int(found or 0)

    def is_ended(self, workload: str, user: str | None = None) -> bool:
        """Whether a workload of this id (and of this user, if given) existed and has ended."""
        owner = self.ended_user(workload)
        return owner is not None and user in (None, owner)

    def ended_user(self, workload: str) -> str | None:
        """The user of the workload of this id that has ended, if there is one."""
        if "\0" in workload:  # no id contains it, and PostgreSQL refuses the query
            return None
        with translated_errors(), self.engine.connect() as connection:
            row = connection.execute(_ENDED_USER, {"of": workload}).first()
        return None if row is None else str(row.user)

    # -- history and usage --

    def lease_spans(self, ended_after: int) -> list[tuple[m.LeaseBody, int, int | None]]:
        """Leases in force or ended after that time, with their start and end (ms), oldest first."""
        ended = s.leases.c.ended_ms
        query = sql.select(s.leases).where(ended.is_(None) | (ended > ended_after))
        query = query.order_by(s.leases.c.started_ms, s.leases.c.id)
        with translated_errors(), self.engine.connect() as connection:
            rows = connection.execute(query).all()
            return [(m.decode(m.LeaseBody, row.body), row.started_ms, row.ended_ms) for row in rows]

    def history(self, kind: str, since_ms: int, most: int) -> list[tuple[int, str]]:
        """The newest `most` records of this kind with their times, oldest first."""
        query = sql.select(s.history.c.time_ms, s.history.c.body).where(
            s.history.c.kind == kind, s.history.c.time_ms >= since_ms
        )
        query = query.order_by(s.history.c.number.desc()).limit(most)
        with translated_errors(), self.engine.connect() as connection:
            rows = connection.execute(query).all()
            return [(row.time_ms, row.body) for row in reversed(rows)]

    def turns_since(self, since_ms: int) -> dict[tuple[str, str], int]:
        """Leases that were granted since then, by project and user."""
        count = sql.func.count().label("turns")
        query = sql.select(s.workloads.c.project, s.workloads.c.user, count)
        query = query.join(s.leases, s.leases.c.workload == s.workloads.c.id)
        ended = s.leases.c.ended_ms
        query = query.where(
            ended.is_(None) | (ended >= since_ms), s.leases.c.started_ms >= since_ms
        ).group_by(s.workloads.c.project, s.workloads.c.user)
        with translated_errors(), self.engine.connect() as connection:
            rows = connection.execute(query).all()
            return {(row.project, row.user): int(row.turns) for row in rows}

    def gpu_minutes_since(self, since_ms: int) -> dict[tuple[str, str], float]:
        """Time that shares were held in hours that began since then, by project and user."""
        hours = s.usage_hours.c
        query = sql.select(hours.project, hours.user, sql.func.sum(hours.held).label("held"))
        query = query.where(hours.hour_ms >= since_ms).group_by(hours.project, hours.user)
        with translated_errors(), self.engine.connect() as connection:
            rows = connection.execute(query).all()
            return {(row.project, row.user): int(row.held) / 60_000 for row in rows}

    def usage(self) -> list[Mapping[str, Any]]:
        """The usage of every lease."""
        query = sql.select(s.usage).order_by(s.usage.c.lease)
        with translated_errors(), self.engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def usage_taken(self) -> dict[str, tuple[str, int]]:
        """Node -> life and number of its agent's last counted report."""
        with translated_errors(), self.engine.connect() as connection:
            rows = connection.execute(sql.select(s.usage_taken))
            return {row.node: (row.life, row.number) for row in rows}

    def past_leases(self, ids: Sequence[str]) -> list[tuple[m.LeaseBody, str]]:
        """The leases with these ids and their users, also of ended workloads."""
        if not ids:
            return []  # the usual case, for every report of every agent
        query = sql.select(s.leases.c.body, s.workloads.c.user).join(
            s.workloads, s.workloads.c.id == s.leases.c.workload
        )
        found = []
        with translated_errors(), self.engine.connect() as connection:
            for begin in range(0, len(ids), IDS_PER_QUERY):
                part = ids[begin : begin + IDS_PER_QUERY]
                rows = connection.execute(query.where(s.leases.c.id.in_(part)))
                found += [(m.decode(m.LeaseBody, row.body), row.user) for row in rows]
        return found

    # -- tokens --

    def tokens(self) -> list[TokenRow]:
        """All tokens, oldest first."""
        query = sql.select(s.tokens).order_by(s.tokens.c.created_ms, s.tokens.c.id)
        with translated_errors(), self.engine.connect() as connection:
            return [TokenRow(**row._mapping) for row in connection.execute(query)]

    def token_by_hash(self, digest: str) -> TokenRow | None:
        """The token with this hash."""
        with translated_errors(), self.engine.connect() as connection:
            row = connection.execute(_TOKEN, {"of": digest}).first()
            return None if row is None else TokenRow(**row._mapping)

    # -- addresses of calendars --

    def feed_of(self, user: str) -> FeedRow | None:
        """The calendar address of this user."""
        return self._feed(s.booking_feeds.c.user == user)

    def feed_by_hash(self, digest: str) -> FeedRow | None:
        """The calendar address with this hash."""
        return self._feed(s.booking_feeds.c.hash == digest)

    def _feed(self, which: sql.ColumnElement[bool]) -> FeedRow | None:
        with translated_errors(), self.engine.connect() as connection:
            found = _rows(connection, s.booking_feeds, FeedRow, which)
            return found[0] if found else None


def _workload(row: Any) -> WorkloadRow:
    return WorkloadRow(
        m.decode(m.WorkloadRequest, row.request),
        row.user,
        row.project,
        row.priority,
        row.preemptible,
        row.created_ms,
        row.promoted_ms is not None,
    )


def _rows(
    connection: sql.Connection, table: sql.Table, kind: type[Row], *which: sql.ColumnElement[bool]
) -> list[Row]:
    """The rows of a table whose key is a hash of other columns; all of them by default."""
    query = sql.select(*(column for column in table.c if column.name != "key")).where(*which)
    return [kind(**row._mapping) for row in connection.execute(query)]


def _bookings(connection: sql.Connection) -> list[StoredBooking]:
    query = sql.select(s.bookings).where(s.bookings.c.ended_ms.is_(None))
    rows = connection.execute(query.order_by(s.bookings.c.created_ms))
    decoded = ((m.decode(m.BookingRequest, row.request), row) for row in rows)
    return [StoredBooking(request, row.user, row.created_ms) for request, row in decoded]


def _given_back(connection: sql.Connection) -> list[tuple[str, int]]:
    query = sql.select(s.given_back.c.booking, s.given_back.c.start_ms)
    return [(row.booking, row.start_ms) for row in connection.execute(query)]


def _live_workloads(connection: sql.Connection) -> list[WorkloadRow]:
    query = sql.select(s.workloads).where(_LIVE)
    query = query.order_by(s.workloads.c.created_ms, s.workloads.c.id)
    return [_workload(row) for row in connection.execute(query)]


def _live_leases(connection: sql.Connection) -> list[LeaseRow]:
    query = sql.select(s.leases).where(s.leases.c.ended_ms.is_(None))
    rows = connection.execute(query.order_by(s.leases.c.started_ms))
    return [LeaseRow(m.decode(m.LeaseBody, row.body), row.started_ms) for row in rows]


class _PlatformLabels(msgspec.Struct):
    platform_labels: dict[str, str] | None = None


def _nodes(connection: sql.Connection) -> list[StoredNode]:
    texts = connection.execute(sql.select(s.nodes.c.report).order_by(s.nodes.c.name)).scalars()
    return [
        StoredNode(
            m.decode(m.NodeReport, text),
            msgspec.json.decode(text, type=_PlatformLabels).platform_labels,
        )
        for text in texts
    ]


def _events(connection: sql.Connection) -> dict[str, list[m.Event]]:
    """The last events of every workload that has not ended, oldest first, in one query."""
    newest = (
        sql.func.row_number()
        .over(partition_by=s.events.c.workload, order_by=s.events.c.number.desc())
        .label("place")
    )
    ranked = sql.select(s.events, newest).where(s.events.c.workload.in_(_LIVE_IDS)).subquery()
    query = sql.select(ranked.c.workload, ranked.c.time, ranked.c.kind, ranked.c.message).where(
        ranked.c.place <= EVENTS_KEPT
    )
    found: dict[str, list[m.Event]] = {}
    for workload, time, kind, message in connection.execute(query.order_by(ranked.c.number)):
        found.setdefault(workload, []).append(m.Event(time=time, kind=kind, message=message))
    return found


def _exit_codes(
    connection: sql.Connection, workloads: sql.Select[tuple[str]] | list[str]
) -> dict[str, dict[str, int]]:
    """Workload -> pod -> exit code of its command."""
    query = sql.select(s.outcomes).where(s.outcomes.c.workload.in_(workloads))
    found: dict[str, dict[str, int]] = {}
    for row in connection.execute(query.order_by(s.outcomes.c.number)):
        found.setdefault(row.workload, {})[row.pod] = row.exit_code
    return found
