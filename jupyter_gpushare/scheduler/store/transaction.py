"""Writes inside one transaction. Statements are built once, at import, because building them is
slow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite

from jupyter_gpushare import messages as m

from . import schema as s

__all__ = ["StoreTransaction"]


def _upsert(
    table: sql.Table, key: str, updated: Sequence[str] = (), added: Sequence[str] = ()
) -> dict[str, sql.Insert]:
    """Per dialect: insert a row, or if the key exists, replace some columns and add to others."""
    made: dict[str, sql.Insert] = {}
    for name, insert in (
        ("sqlite", sqlite.insert(table)),
        ("postgresql", postgresql.insert(table)),
    ):
        values = {column: insert.excluded[column] for column in updated} | {
            c: table.c[c] + insert.excluded[c] for c in added
        }
        made[name] = insert.on_conflict_do_update(index_elements=[key], set_=values)
    return made


_REVISION: Final = _upsert(s.facts, "key", ["value"])
_NODE: Final = _upsert(s.nodes, "name", ["report"])
_USED: Final = _upsert(
    s.usage, "lease", added=["held_ms", "busy_ms", "used_mib_ms", "borrowed_mib_ms"]
)
_HOURS: Final = _upsert(s.usage_hours, "key", added=["held", "used", "borrowed", "lent"])
_TAKEN: Final = _upsert(s.usage_taken, "node", ["life", "number"])
_PERSON: Final = _upsert(s.person_usage, "key", ["used", "at_ms", "served_ms"])
_LIMIT: Final = _upsert(s.member_limits, "key", ["gpu", "notebooks", "pending"])
_FEED: Final = _upsert(s.booking_feeds, "key", ["groups", "hash", "created_ms"])
_SUBMITTED: Final = s.workloads.insert()
_EVENT: Final = s.events.insert()
_OUTCOME: Final = s.outcomes.insert()
_HISTORY: Final = s.history.insert()
_LOG: Final = s.logs.insert()
_RENAMED: Final = s.workloads.update().where(s.workloads.c.id == sql.bindparam("of"))
_PROMOTED: Final = s.workloads.update().where(s.workloads.c.id == sql.bindparam("of"))
_ENDED: Final = s.workloads.update().where(
    s.workloads.c.id == sql.bindparam("of"), s.workloads.c.ended_ms.is_(None)
)
_LEASES_ENDED: Final = s.leases.update().where(
    s.leases.c.workload == sql.bindparam("of"), s.leases.c.ended_ms.is_(None)
)
_GRANTED: Final = s.leases.insert()
_LEASE: Final = s.leases.update().where(s.leases.c.id == sql.bindparam("of"))
_LEASE_ENDED: Final = s.leases.update().where(s.leases.c.id == sql.bindparam("of"))


class StoreTransaction:
    """The writes of one `Store.transaction`."""

    def __init__(self, connection: sql.Connection) -> None:
        self.connection = connection
        self._dialect = connection.dialect.name
        self.wrote = False
        """Whether anything was written; otherwise no commit is needed."""

    def do(
        self,
        statement: sql.UpdateBase,
        values: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> int:
        """Executes a write and returns the number of affected rows."""
        self.wrote = True
        return self.connection.execute(statement, values).rowcount

    def revision(self, number: int) -> None:
        self.do(_REVISION[self._dialect], {"key": "revision", "value": str(number)})

    def submitted(self, row: s.WorkloadRow) -> None:
        values: dict[str, Any] = {
            name: getattr(row, name)
            for name in ("user", "project", "priority", "preemptible", "created_ms")
        }
        known = {
            "id": row.request.id,
            "request": _text(row.request),
            "kernel_id": row.request.kernel_id,
            "ended_ms": None,
            "message": "",
        }
        self.do(_SUBMITTED, values | known)

    def renamed(self, request: m.WorkloadRequest) -> None:
        """The workload has a new name in its request."""
        self.do(_RENAMED, {"of": request.id, "request": _text(request)})

    def promoted(self, workload: str, since_ms: int | None) -> None:
        """Since when the workload has the next turn in its project; None: it has not."""
        self.do(_PROMOTED, {"of": workload, "promoted_ms": since_ms})

    def people(self, rows: Sequence[s.PersonUsageRow]) -> None:
        """Replaces what these people have used."""
        if rows:
            keyed = [_keyed(row, "project", "pool", "user") for row in rows]
            self.do(_PERSON[self._dialect], keyed)

    def forget_person(self, project: str, pool: str, user: str) -> None:
        key = _key(project, pool, user)
        self.do(s.person_usage.delete().where(s.person_usage.c.key == key))

    def member_limit(self, row: s.MemberLimitRow) -> None:
        """Replaces the limits of a person."""
        self.do(_LIMIT[self._dialect], _keyed(row, "project", "user"))

    def booked(self, row: s.StoredBooking) -> None:
        """A new booking."""
        text = _text(row.request)
        known = {"id": row.request.id, "request": text, "ended_ms": None}
        self.do(s.bookings.insert(), known | {"user": row.user, "created_ms": row.created_ms})

    def booking_ended(self, booking: str, now_ms: int) -> None:
        """The booking was cancelled, or its last time is over."""
        table = s.bookings
        self.do(table.update().where(table.c.id == booking), {"ended_ms": now_ms})

    def booking_given_back(self, booking: str, start_ms: int) -> None:
        """One time of a booking was not used."""
        key = _key(booking, str(start_ms))
        self.do(s.given_back.insert(), {"key": key, "booking": booking, "start_ms": start_ms})

    def booking_feed(self, row: s.FeedRow) -> None:
        """The new calendar address of a user, in place of the one before."""
        self.do(_FEED[self._dialect], _keyed(row, "user"))

    def booking_feed_revoked(self, user: str) -> None:
        self.do(s.booking_feeds.delete().where(s.booking_feeds.c.key == _key(user)))

    def ended(self, workload: str, now_ms: int, message: str) -> None:
        """The workload and its leases have ended."""
        self.do(_ENDED, {"of": workload, "ended_ms": now_ms, "message": message})
        self.do(_LEASES_ENDED, {"of": workload, "ended_ms": now_ms})

    def granted(self, leases: Sequence[m.LeaseBody], started_ms: int) -> None:
        """New leases."""
        if leases:
            self.do(_GRANTED, [_lease_row(body, started_ms) for body in leases])

    def lease(self, body: m.LeaseBody) -> None:
        """A new version of a lease; its start does not change."""
        self.do(_LEASE, {"of": body.id, "body": _text(body)})

    def lease_ended(self, lease: str, now_ms: int) -> None:
        self.do(_LEASE_ENDED, {"of": lease, "ended_ms": now_ms})

    def events(self, events: Sequence[tuple[str, m.Event]]) -> None:
        """Events of workloads."""
        if events:
            self.do(_EVENT, [_event_row(workload, event) for workload, event in events])

    def history(self, kind: str, now_ms: int, body: bytes) -> None:
        """A record of the history; its kind decides how long it is kept."""
        self.do(_HISTORY, {"kind": kind, "time_ms": now_ms, "body": body.decode()})

    def forget_history(self, kind: str, before_ms: int) -> None:
        self.do(s.history.delete().where(s.history.c.kind == kind, s.history.c.time_ms < before_ms))

    def outcome(self, workload: str, pod: str, exit_code: int, now_ms: int) -> None:
        self.do(
            _OUTCOME, {"workload": workload, "pod": pod, "exit_code": exit_code, "ended_ms": now_ms}
        )

    def logged(self, workload: str, lease: str, pod: str, stop: int, text: str) -> None:
        """A piece of a command's output, up to this byte."""
        self.do(
            _LOG, {"workload": workload, "lease": lease, "pod": pod, "stop": stop, "text": text}
        )

    def node(self, report: m.NodeReport, platform_labels: Mapping[str, str] | None = None) -> None:
        """Adds or replaces a node. `platform_labels`: see `StoredNode`."""
        body = m.to_json(report)
        if platform_labels is not None:
            body["platform_labels"] = dict(platform_labels)
        self.do(_NODE[self._dialect], {"name": report.name, "report": _text(body)})

    def node_removed(self, name: str) -> None:
        self.do(s.nodes.delete().where(s.nodes.c.name == name))

    def used(self, rows: Mapping[str, tuple[str, Mapping[str, int]]]) -> None:
        """Adds to the usage of leases: lease -> (project, column -> amount)."""
        if rows:
            self.do(
                _USED[self._dialect],
                [
                    {"lease": lease, "project": project, **sums}
                    for lease, (project, sums) in rows.items()
                ],
            )

    def usage_taken(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The usage reports of these nodes have been counted up to this one."""
        if rows:
            self.do(_TAKEN[self._dialect], rows)

    def token(self, row: s.TokenRow) -> None:
        self.do(s.tokens.insert(), {name: getattr(row, name) for name in s.TokenRow.__slots__})

    def token_revoked(self, id_: str, now_ms: int) -> None:
        self.do(s.tokens.update().where(s.tokens.c.id == id_).values(revoked_ms=now_ms))

    def used_in_hours(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Adds GPU-ms to the rows of `usage_hours` with these keys."""
        if rows:
            self.do(_HOURS[self._dialect], rows)


def _keyed(row: s.PersonUsageRow | s.MemberLimitRow | s.FeedRow, *identity: str) -> dict[str, Any]:
    """The row with the hash of what identifies it."""
    values = {name: getattr(row, name) for name in row.__slots__}
    return {"key": _key(*(values[name] for name in identity)), **values}


def _key(*identity: str) -> str:
    return hashlib.sha256(repr(identity).encode()).hexdigest()


def _event_row(workload: str, event: m.Event) -> dict[str, str]:
    return {"workload": workload, "time": event.time, "kind": event.kind, "message": event.message}


def _lease_row(body: m.LeaseBody, started_ms: int) -> dict[str, Any]:
    return {
        "id": body.id,
        "workload": body.workload,
        "body": _text(body),
        "started_ms": started_ms,
        "ended_ms": None,
    }


def _text(body: object) -> str:
    return m.encode(body).decode()
