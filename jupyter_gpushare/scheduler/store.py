"""What must not be forgotten, in SQL: workloads, leases, events, nodes, usage, tokens, and the revision. Decides nothing.

SQLite (WAL, every commit on disk before it is announced) by default; any SQLAlchemy URL. One transaction per command or cycle:
`with store.transaction() as write: ...` commits all of it or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.errors import InvalidInput, Unavailable

__all__ = ["LeaseRow", "Remembered", "Store", "StoreUnavailable", "TokenRow", "WorkloadRow", "Write"]

EVENTS_KEPT: Final = 100
"""Events per workload that are given back after a restart; older ones stay in the table until retention removes them."""

_meta = sql.MetaData()
_facts = sql.Table("meta", _meta, sql.Column("key", sql.String(64), primary_key=True), sql.Column("value", sql.Text, nullable=False))
_workloads = sql.Table(
    "workloads", _meta,
    sql.Column("id", sql.String(1000), primary_key=True),
    sql.Column("request", sql.Text, nullable=False),
    sql.Column("user", sql.String(1000), nullable=False),
    sql.Column("project", sql.String(1000), nullable=False, index=True),
    sql.Column("priority", sql.Integer, nullable=False),
    sql.Column("preemptible", sql.Boolean, nullable=False),
    sql.Column("kernel_id", sql.String(1000), index=True),
    sql.Column("created_ms", sql.BigInteger, nullable=False),
    sql.Column("ended_ms", sql.BigInteger, index=True),
    sql.Column("message", sql.Text, nullable=False, default=""),
)  # fmt: skip
_leases = sql.Table(
    "leases", _meta,
    sql.Column("id", sql.String(200), primary_key=True),
    sql.Column("workload", sql.String(1000), nullable=False, index=True),
    sql.Column("body", sql.Text, nullable=False),
    sql.Column("started_ms", sql.BigInteger, nullable=False),
    sql.Column("ended_ms", sql.BigInteger, index=True),
)  # fmt: skip
_events = sql.Table(
    "events", _meta,
    sql.Column("number", sql.BigInteger().with_variant(sql.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sql.Column("workload", sql.String(1000), nullable=False, index=True),
    sql.Column("time", sql.String(64), nullable=False),
    sql.Column("kind", sql.String(32), nullable=False),
    sql.Column("message", sql.Text, nullable=False),
)  # fmt: skip
_nodes = sql.Table("nodes", _meta, sql.Column("name", sql.String(1000), primary_key=True), sql.Column("report", sql.Text, nullable=False))
_usage = sql.Table(
    "usage", _meta,
    sql.Column("lease", sql.String(200), primary_key=True),
    sql.Column("project", sql.String(1000), nullable=False, index=True),
    sql.Column("held_ms", sql.BigInteger, nullable=False),
    sql.Column("busy_ms", sql.BigInteger, nullable=False),
    sql.Column("used_mib_ms", sql.BigInteger, nullable=False),
    sql.Column("borrowed_mib_ms", sql.BigInteger, nullable=False),
)  # fmt: skip
_tokens = sql.Table(
    "tokens", _meta,
    sql.Column("id", sql.String(64), primary_key=True),
    sql.Column("scope", sql.String(16), nullable=False),
    sql.Column("name", sql.String(1000), nullable=False),
    sql.Column("hash", sql.String(64), nullable=False, unique=True),
    sql.Column("created_ms", sql.BigInteger, nullable=False),
    sql.Column("expires_ms", sql.BigInteger),
    sql.Column("revoked_ms", sql.BigInteger),
    sql.Column("users", sql.Text, nullable=False, server_default=""),
    sql.Column("groups", sql.Text, nullable=False, server_default=""),
)  # fmt: skip


class StoreUnavailable(Unavailable):
    """Raised when the database cannot take or give what was asked (full disk, gone, locked); nothing was changed."""

    code = "store-unavailable"


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """A workload as it was asked for, and what the policy of that day made of it; times in ms."""

    request: m.WorkloadRequest
    user: str
    project: str
    priority: int
    preemptible: bool
    created_ms: int


@dataclass(frozen=True, slots=True)
class LeaseRow:
    body: m.LeaseBody
    started_ms: int


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token without its secret: only the hash is kept."""

    id: str
    scope: str
    name: str
    hash: str
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None
    users: str = ""
    """JSON list: on whose behalf a server may ask; "": everybody's."""
    groups: str = ""
    """JSON list: groups of a person, beside those that the configuration says."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """Everything that a restarted service begins with."""

    revision: int
    workloads: list[WorkloadRow]
    leases: list[LeaseRow]
    nodes: list[m.NodeReport]
    events: dict[str, list[m.Event]]


class Store:
    """The database. Every method may raise `StoreUnavailable`."""

    def __init__(self, url: str) -> None:
        try:
            self._engine = sql.create_engine(url, pool_pre_ping=True)
        except (SQLAlchemyError, ImportError) as error:  # no such form of address, or its driver is not installed
            raise InvalidInput(f"this database cannot be used: {error}", field="db-url") from error
        if self._engine.dialect.name == "sqlite":
            sql.event.listen(self._engine, "connect", _careful_sqlite)
        with _ours():
            _meta.create_all(self._engine)

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Write]:
        """All of it is on disk when the block ends, or none of it and `StoreUnavailable` is raised."""
        with _ours(), self._engine.begin() as connection:
            yield Write(connection)

    def remembered(self) -> Remembered:
        """What is not over yet."""
        with _ours(), self._engine.connect() as connection:
            revision = connection.execute(sql.select(_facts.c.value).where(_facts.c.key == "revision")).scalar()
            unended = sql.select(_workloads).where(_workloads.c.ended_ms.is_(None))
            alive = connection.execute(unended.order_by(_workloads.c.created_ms)).all()
            leases = connection.execute(sql.select(_leases).where(_leases.c.ended_ms.is_(None)).order_by(_leases.c.started_ms)).all()
            nodes = connection.execute(sql.select(_nodes.c.report).order_by(_nodes.c.name)).scalars().all()
            return Remembered(
                int(revision or 0),
                [
                    WorkloadRow(m.decode(m.WorkloadRequest, r.request), r.user, r.project, r.priority, r.preemptible, r.created_ms)
                    for r in alive
                ],
                [LeaseRow(m.decode(m.LeaseBody, r.body), r.started_ms) for r in leases],
                [m.decode(m.NodeReport, text) for text in nodes],
                {r.id: self._events_of(connection, r.id) for r in alive},
            )

    @staticmethod
    def _events_of(connection: sql.Connection, workload: str) -> list[m.Event]:
        query = sql.select(_events).where(_events.c.workload == workload).order_by(_events.c.number.desc()).limit(EVENTS_KEPT)
        return [m.Event(time=r.time, kind=r.kind, message=r.message) for r in reversed(connection.execute(query).all())]

    def is_ended(self, workload: str) -> bool:
        """Whether a workload of this id was there once and is over."""
        with _ours(), self._engine.connect() as connection:
            query = sql.select(_workloads.c.ended_ms).where(_workloads.c.id == workload, _workloads.c.ended_ms.is_not(None))
            return connection.execute(query).first() is not None

    def lease_spans(self, ended_after: int) -> list[tuple[m.LeaseBody, int, int | None]]:
        """Leases that are in force or ended after that time, with when they started and ended (ms), oldest first."""
        query = sql.select(_leases).where(_leases.c.ended_ms.is_(None) | (_leases.c.ended_ms > ended_after))
        with _ours(), self._engine.connect() as connection:
            rows = connection.execute(query.order_by(_leases.c.started_ms, _leases.c.id)).all()
            return [(m.decode(m.LeaseBody, row.body), row.started_ms, row.ended_ms) for row in rows]

    def usage(self) -> list[Mapping[str, Any]]:
        """The ledger, a row per lease."""
        with _ours(), self._engine.connect() as connection:
            return [dict(row._mapping) for row in connection.execute(sql.select(_usage).order_by(_usage.c.lease))]

    def forget(self, before_ms: int, most: int = 500) -> int:
        """Removes workloads that ended before this time, with their leases, events and usage: so many at most, oldest first.

        Gives how many. Their ids could then be used again.
        """
        with self.transaction() as write:
            over = sql.select(_workloads.c.id).where(_workloads.c.ended_ms < before_ms).order_by(_workloads.c.ended_ms).limit(most)
            ids = write.connection.execute(over).scalars().all()
            if ids:
                leases = sql.select(_leases.c.id).where(_leases.c.workload.in_(ids))
                write.do(_usage.delete().where(_usage.c.lease.in_(leases)))
                write.do(_leases.delete().where(_leases.c.workload.in_(ids)))
                write.do(_events.delete().where(_events.c.workload.in_(ids)))
                write.do(_workloads.delete().where(_workloads.c.id.in_(ids)))
            return len(ids)

    # -- tokens --

    def add_token(self, row: TokenRow) -> None:
        with self.transaction() as write:
            write.do(_tokens.insert().values(**{name: getattr(row, name) for name in TokenRow.__slots__}))

    def tokens(self) -> list[TokenRow]:
        with _ours(), self._engine.connect() as connection:
            return [
                TokenRow(**row._mapping) for row in connection.execute(sql.select(_tokens).order_by(_tokens.c.created_ms, _tokens.c.id))
            ]

    def token_by_hash(self, digest: str) -> TokenRow | None:
        with _ours(), self._engine.connect() as connection:
            row = connection.execute(sql.select(_tokens).where(_tokens.c.hash == digest)).first()
            return None if row is None else TokenRow(**row._mapping)

    def revoke_token(self, id_: str, now_ms: int) -> bool:
        """False: there is no such token."""
        with self.transaction() as write:
            return write.do(_tokens.update().where(_tokens.c.id == id_).values(revoked_ms=now_ms)) > 0


class Write:
    """What can be written inside a transaction."""

    def __init__(self, connection: sql.Connection) -> None:
        self.connection = connection
        self.wrote = False
        """Whether anything was written: a cycle that decided nothing need not be committed."""

    def do(self, statement: sql.UpdateBase) -> int:
        """Executes a write; gives the number of rows that it touched."""
        self.wrote = True
        return self.connection.execute(statement).rowcount

    def revision(self, number: int) -> None:
        self._put(_facts, {"key": "revision"}, {"value": str(number)})

    def submitted(self, row: WorkloadRow) -> None:
        values = {name: getattr(row, name) for name in ("user", "project", "priority", "preemptible", "created_ms")}
        values |= {"id": row.request.id, "request": _text(row.request), "kernel_id": row.request.kernel_id, "ended_ms": None, "message": ""}
        self.do(_workloads.insert().values(**values))

    def ended(self, workload: str, now_ms: int, message: str) -> None:
        """The workload is over, and so are its leases."""
        over = _workloads.update().where(_workloads.c.id == workload, _workloads.c.ended_ms.is_(None))
        self.do(over.values(ended_ms=now_ms, message=message))
        held = _leases.update().where(_leases.c.workload == workload, _leases.c.ended_ms.is_(None))
        self.do(held.values(ended_ms=now_ms))

    def lease(self, body: m.LeaseBody, started_ms: int) -> None:
        """A new lease, or a new version of one, which keeps the time at which it started."""
        if self.do(_leases.update().where(_leases.c.id == body.id).values(body=_text(body), ended_ms=None)) == 0:
            values = {"id": body.id, "workload": body.workload, "body": _text(body), "started_ms": started_ms, "ended_ms": None}
            self.do(_leases.insert().values(**values))

    def lease_ended(self, lease: str, now_ms: int) -> None:
        self.do(_leases.update().where(_leases.c.id == lease).values(ended_ms=now_ms))

    def event(self, workload: str, event: m.Event) -> None:
        self.do(_events.insert().values(workload=workload, time=event.time, kind=event.kind, message=event.message))

    def node(self, report: m.NodeReport) -> None:
        self._put(_nodes, {"name": report.name}, {"report": _text(report)})

    def used(self, rows: Mapping[str, tuple[str, Mapping[str, int]]]) -> None:
        """Adds to the ledgers of these leases: lease -> its project, and what is to be added to which sum."""
        values = [{"lease": lease, "project": project, **sums} for lease, (project, sums) in rows.items()]
        insert = (sqlite if self.connection.dialect.name == "sqlite" else postgresql).insert(_usage)
        names = [column.name for column in _usage.columns if column.name not in ("lease", "project")]
        more = {name: _usage.c[name] + insert.excluded[name] for name in names}
        self.connection.execute(insert.on_conflict_do_update(index_elements=["lease"], set_=more), values)
        self.wrote = True

    def _put(self, table: sql.Table, key: dict[str, Any], values: dict[str, Any]) -> None:
        """Update, else insert: the one form that every database speaks."""
        match = sql.and_(*(table.c[name] == value for name, value in key.items()))
        if self.do(table.update().where(match).values(**values)) == 0:
            self.do(table.insert().values(**key, **values))


@contextmanager
def _ours() -> Iterator[None]:
    """The database's errors as ours."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise StoreUnavailable(f"the database does not answer: {str(cause).splitlines()[0]}") from error


def _careful_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # an acknowledged grant survives a power cut
    cursor.execute("PRAGMA busy_timeout=5000")
    cursor.close()


def _text(body: object) -> str:
    return json.dumps(m.to_json(body), separators=(",", ":"))
