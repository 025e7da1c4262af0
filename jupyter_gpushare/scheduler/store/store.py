"""What must not be forgotten, in SQL: workloads, leases, events, nodes, usage, tokens, and the
revision. Decides nothing.

SQLite (WAL, every commit on disk before it is announced) by default, or PostgreSQL. One transaction
per command or cycle: `with store.transaction() as write: ...` commits all of it or nothing. The
tables are in `schema`, what can be written in `writing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sql
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import GpuShareError

from . import schema as s
from .database import StoreUnavailable, file_in, open_engine, ours, prepare
from .group_commit import GroupCommit
from .schema import LeaseRow, StoredState, TokenRow, WorkloadOutcome, WorkloadRow
from .transaction import StoreTransaction

__all__ = [
    "Cutoffs",
    "LeaseRow",
    "WorkloadOutcome",
    "StoredState",
    "Retention",
    "Store",
    "StoreUnavailable",
    "TokenRow",
    "WorkloadRow",
    "StoreTransaction",
]

EVENTS_KEPT: Final = 100
"""Events per workload that are given back after a restart; older ones stay in the table until
retention removes them.
"""

CONNECTION_TROUBLE: Final = ("08", "57P")
"""SQLSTATE classes with which PostgreSQL says that the connection is over: a commit that met one
may or may not have happened.
"""


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """What ended before these times (ms) need not be remembered: workloads themselves, their
    events, their leases with what they used.
    """

    workloads: int
    events: int
    usage: int


@dataclass(frozen=True, slots=True)
class Retention:
    """For how long (ms) what has ended is remembered, by its kind."""

    workloads: int
    events: int
    usage: int

    @classmethod
    def of(cls, milliseconds: int) -> Retention:
        """The same for everything."""
        return cls(milliseconds, milliseconds, milliseconds)

    def before(self, now: int, window: int) -> Cutoffs:
        """`window`: how far time-based fair share looks back; so long, leases are kept whatever was
        said.
        """
        return Cutoffs(now - self.workloads, now - self.events, now - max(self.usage, window))


class Store:
    """The database. Every method may raise `StoreUnavailable`."""

    def __init__(self, url: str, *, upgrade: bool = True, one_sync_for_many: bool = False) -> None:
        """`upgrade`: older tables are brought up to date. `one_sync_for_many`: commits into an
        SQLite file return before they are on disk, and whoever tells of them waits for `disk`
        first.

        Raises InvalidInput, NeedsUpgrade, TooNew too.
        """
        self.engine = open_engine(url, syncs=not one_sync_for_many)
        self.disk = GroupCommit(file_in(url) if one_sync_for_many else None, self.give_up)
        self.fence: Callable[[sql.Connection], None] = lambda _connection: None
        """Is asked in every transaction that wrote, just before its commit; a GpuShareError
        prevents this commit and all later.
        """
        self.on_over: Callable[[str], None] = lambda _why: None
        """Is told once when nothing can be committed any more, and why: what is in memory may not
        be what is in the database.
        """
        self._over: str | None = None
        self._looked = 0
        """What happened to workloads that ended before this time (ms) is forgotten: so far back
        nobody need look again.
        """
        try:
            prepare(self.engine, upgrade=upgrade)
        except BaseException:
            self.engine.dispose()
            raise

    def close(self) -> None:
        self.disk.close()
        with suppress(SQLAlchemyError):
            self.engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[StoreTransaction]:
        """All of it is on disk when the block ends, or none of it and `StoreUnavailable` is raised."""
        if self._over is not None:
            raise StoreUnavailable(self._over)
        with ours(), self.engine.connect() as connection:
            begun = connection.begin()
            try:
                write = StoreTransaction(connection)
                yield write
                if write.wrote:
                    self._ask_fence(connection)
            except BaseException:
                begun.rollback()
                raise
            self._commit(begun)
            if write.wrote:
                self.disk.committed()

    def _ask_fence(self, connection: sql.Connection) -> None:
        try:
            self.fence(connection)
        except GpuShareError as error:
            self.give_up(error.message)
            raise

    def _commit(self, begun: sql.RootTransaction) -> None:
        try:
            begun.commit()
        except DBAPIError as error:
            state = getattr(error.orig, "sqlstate", None)
            if self.engine.dialect.name != "sqlite" and (
                state is None or state.startswith(CONNECTION_TROUBLE)
            ):
                self.give_up(
                    "the database went away during a commit: what became of it is not known before everything is read again"
                )
            with suppress(SQLAlchemyError):
                begun.rollback()
            raise

    def give_up(self, why: str) -> None:
        """From now on nothing is committed here."""
        if self._over is None:
            self._over = why
            self.on_over(why)

    # -- remembering --

    def remembered(self) -> StoredState:
        """What is not over yet."""
        with ours(), self.engine.connect() as connection:
            revision = connection.execute(
                sql.select(s.facts.c.value).where(s.facts.c.key == "revision")
            ).scalar()
            unended = sql.select(s.workloads).where(s.workloads.c.ended_ms.is_(None))
            alive = connection.execute(
                unended.order_by(s.workloads.c.created_ms, s.workloads.c.id)
            ).all()
            leases = connection.execute(
                sql.select(s.leases)
                .where(s.leases.c.ended_ms.is_(None))
                .order_by(s.leases.c.started_ms)
            ).all()
            nodes = (
                connection.execute(sql.select(s.nodes.c.report).order_by(s.nodes.c.name))
                .scalars()
                .all()
            )
            return StoredState(
                int(revision or 0),
                [
                    WorkloadRow(
                        m.decode(m.WorkloadRequest, r.request),
                        r.user,
                        r.project,
                        r.priority,
                        r.preemptible,
                        r.created_ms,
                    )
                    for r in alive
                ],
                [LeaseRow(m.decode(m.LeaseBody, r.body), r.started_ms) for r in leases],
                [m.decode(m.NodeReport, text) for text in nodes],
                self._events(connection),
                self._exits(connection),
            )

    @staticmethod
    def _events(connection: sql.Connection) -> dict[str, list[m.Event]]:
        """The last events of every workload that is not over, oldest first; one query for all of
        them.
        """
        newest = (
            sql.func.row_number()
            .over(partition_by=s.events.c.workload, order_by=s.events.c.number.desc())
            .label("place")
        )
        unended = sql.select(s.workloads.c.id).where(s.workloads.c.ended_ms.is_(None))
        ranked = sql.select(s.events, newest).where(s.events.c.workload.in_(unended)).subquery()
        query = sql.select(ranked.c.workload, ranked.c.time, ranked.c.kind, ranked.c.message).where(
            ranked.c.place <= EVENTS_KEPT
        )
        found: dict[str, list[m.Event]] = {}
        for workload, time, kind, message in connection.execute(query.order_by(ranked.c.number)):
            found.setdefault(workload, []).append(m.Event(time=time, kind=kind, message=message))
        return found

    @staticmethod
    def _exits(connection: sql.Connection) -> dict[str, dict[str, int]]:
        unended = sql.select(s.workloads.c.id).where(s.workloads.c.ended_ms.is_(None))
        found: dict[str, dict[str, int]] = {}
        for row in connection.execute(
            sql.select(s.outcomes).where(s.outcomes.c.workload.in_(unended))
        ):
            found.setdefault(row.workload, {})[row.pod] = row.exit_code
        return found

    # -- batch work --

    def over(self, workload: str | None = None, most: int = 50) -> list[WorkloadOutcome]:
        """Workloads with a command that are over, the last first; or the one of this id."""
        query = sql.select(s.workloads).where(
            s.workloads.c.ended_ms.is_not(None), s.workloads.c.kernel_id.is_(None)
        )
        if workload is not None:
            query = query.where(s.workloads.c.id == workload)
        with ours(), self.engine.connect() as connection:
            rows = connection.execute(
                query.order_by(s.workloads.c.ended_ms.desc()).limit(most)
            ).all()
            codes = (
                sql.select(s.outcomes)
                .where(s.outcomes.c.workload.in_([row.id for row in rows]))
                .order_by(s.outcomes.c.number)
            )
            exits: dict[str, dict[str, int]] = {}
            for row in connection.execute(codes):
                exits.setdefault(row.workload, {})[row.pod] = row.exit_code
            found = [
                (
                    WorkloadRow(
                        m.decode(m.WorkloadRequest, r.request),
                        r.user,
                        r.project,
                        r.priority,
                        r.preemptible,
                        r.created_ms,
                    ),
                    r,
                )
                for r in rows
            ]
            return [
                WorkloadOutcome(row, r.ended_ms, r.message, exits.get(r.id, {}))
                for row, r in found
                if row.request.command is not None
            ]

    def logs(
        self, workload: str, pod: str | None, after: int, most: int
    ) -> tuple[list[m.LogText], int]:
        """What its pods (or one of them) printed after a cursor, some `most` characters of it, and
        the cursor to go on from.
        """
        query = (
            sql.select(s.logs)
            .where(s.logs.c.workload == workload, s.logs.c.number > after)
            .order_by(s.logs.c.number)
        )
        if pod is not None:
            query = query.where(s.logs.c.pod == pod)
        found: list[m.LogText] = []
        size = 0
        with ours(), self.engine.connect() as connection:
            for row in connection.execute(query.limit(200)):
                found.append(m.LogText(pod=row.pod, text=row.text))
                after, size = row.number, size + len(row.text)
                if size >= most:
                    break
        return found, after

    def logged_up_to(self, lease: str) -> int:
        """Bytes of this lease's log that are kept."""
        with ours(), self.engine.connect() as connection:
            return int(
                connection.execute(
                    sql.select(sql.func.max(s.logs.c.stop)).where(s.logs.c.lease == lease)
                ).scalar()
                or 0
            )

    def is_ended(self, workload: str, user: str | None = None) -> bool:
        """Whether a workload of this id (and of this user, if given) existed and has ended."""
        if "\0" in workload:  # no id contains it, and PostgreSQL refuses the query
            return False
        with ours(), self.engine.connect() as connection:
            row = connection.execute(_IS_ENDED, {"of": workload}).first()
        return row is not None and user in (None, row.user)

    def lease_spans(self, ended_after: int) -> list[tuple[m.LeaseBody, int, int | None]]:
        """Leases that are in force or ended after that time, with when they started and ended (ms),
        oldest first.
        """
        query = sql.select(s.leases).where(
            s.leases.c.ended_ms.is_(None) | (s.leases.c.ended_ms > ended_after)
        )
        with ours(), self.engine.connect() as connection:
            rows = connection.execute(query.order_by(s.leases.c.started_ms, s.leases.c.id)).all()
            return [(m.decode(m.LeaseBody, row.body), row.started_ms, row.ended_ms) for row in rows]

    def history(self, kind: str, since_ms: int, most: int) -> list[tuple[int, str]]:
        """The newest things of this kind to look back at, oldest first, each with its time."""
        wanted = sql.select(s.history.c.time_ms, s.history.c.body).where(
            s.history.c.kind == kind, s.history.c.time_ms >= since_ms
        )
        with ours(), self.engine.connect() as connection:
            rows = connection.execute(wanted.order_by(s.history.c.number.desc()).limit(most)).all()
            return [(row.time_ms, row.body) for row in reversed(rows)]

    def usage(self) -> list[Mapping[str, Any]]:
        """The ledger, a row per lease."""
        with ours(), self.engine.connect() as connection:
            return [
                dict(row._mapping)
                for row in connection.execute(sql.select(s.usage).order_by(s.usage.c.lease))
            ]

    def usage_taken(self) -> dict[str, tuple[str, int]]:
        """Node -> life and number of its agent's report that was counted last."""
        with ours(), self.engine.connect() as connection:
            return {
                row.node: (row.life, row.number)
                for row in connection.execute(sql.select(s.usage_taken))
            }

    def past_leases(self, ids: Sequence[str]) -> list[tuple[m.LeaseBody, str]]:
        """Those of these leases that were ever given, with whose they were; also of workloads that
        are over.
        """
        query = sql.select(s.leases.c.body, s.workloads.c.user).join(
            s.workloads, s.workloads.c.id == s.leases.c.workload
        )
        found = []
        with ours(), self.engine.connect() as connection:
            for begin in range(0, len(ids), 500):  # a statement has room for so many names
                rows = connection.execute(query.where(s.leases.c.id.in_(ids[begin : begin + 500])))
                found += [(m.decode(m.LeaseBody, row.body), row.user) for row in rows]
        return found

    # -- forgetting --

    def forget(self, before: Cutoffs, most: int = 500) -> int:
        """Removes what ended before these times: the rows of so many workloads and leases at most,
        oldest first.

        Gives how many workloads and leases that were. The ids of workloads could then be used
        again.
        """
        with self.transaction() as write:
            over = self._over_before(write, s.workloads, before.workloads, most)
            for table in (s.events, s.outcomes, s.logs):
                _delete(write, table, "workload", over)
            _delete(write, s.workloads, "id", over)
            told = self._told_before(write, before.events, most)
            _delete(write, s.events, "workload", told)
            _delete(write, s.logs, "workload", told)
            _delete(
                write,
                s.usage_hours,
                "key",
                self._older(
                    write, s.usage_hours.c.key, s.usage_hours.c.hour_ms, before.usage, most
                ),
            )
            _delete(
                write,
                s.audit,
                "number",
                self._older(write, s.audit.c.number, s.audit.c.time_ms, before.events, most),
            )
            _delete(
                write,
                s.history,
                "number",
                self._older(write, s.history.c.number, s.history.c.time_ms, before.events, most),
            )
            used = self._over_before(write, s.leases, before.usage, most)
            _delete(write, s.usage, "lease", used)
            _delete(write, s.leases, "id", used)
            return len(over) + len(used)

    @staticmethod
    def _over_before(
        write: StoreTransaction, table: sql.Table, before: int, most: int
    ) -> list[str]:
        query = (
            sql.select(table.c.id)
            .where(table.c.ended_ms < before)
            .order_by(table.c.ended_ms)
            .limit(most)
        )
        return list(write.connection.execute(query).scalars())

    @staticmethod
    def _older(
        write: StoreTransaction, key: sql.Column[Any], time: sql.Column[Any], before: int, most: int
    ) -> list[Any]:
        """Looked up first: deleting nothing would still be a commit, every second."""
        return list(
            write.connection.execute(
                sql.select(key).where(time < before).order_by(time).limit(most)
            ).scalars()
        )

    def _told_before(self, write: StoreTransaction, before: int, most: int) -> list[str]:
        """Workloads that ended so long ago and whose events are still there. (They may be
        remembered for much longer than their events.)
        """
        ended, has_events = (
            s.workloads.c.ended_ms,
            sql.exists().where(s.events.c.workload == s.workloads.c.id),
        )
        query = (
            sql.select(s.workloads.c.id, ended)
            .where(ended >= self._looked, ended < before, has_events)
            .order_by(ended)
            .limit(most)
        )
        found = write.connection.execute(query).all()
        self._looked = found[-1].ended_ms if len(found) == most else max(self._looked, before)
        return [row.id for row in found]

    # -- tokens --

    def tokens(self) -> list[TokenRow]:
        with ours(), self.engine.connect() as connection:
            return [
                TokenRow(**row._mapping)
                for row in connection.execute(
                    sql.select(s.tokens).order_by(s.tokens.c.created_ms, s.tokens.c.id)
                )
            ]

    def token_by_hash(self, digest: str) -> TokenRow | None:
        with ours(), self.engine.connect() as connection:
            row = connection.execute(_TOKEN, {"of": digest}).first()
            return None if row is None else TokenRow(**row._mapping)


_IS_ENDED: Final = sql.select(s.workloads.c.user).where(
    s.workloads.c.id == sql.bindparam("of"), s.workloads.c.ended_ms.is_not(None)
)
_TOKEN: Final = sql.select(s.tokens).where(s.tokens.c.hash == sql.bindparam("of"))


def _delete(write: StoreTransaction, table: sql.Table, column: str, ids: list[Any]) -> None:
    if ids:
        write.do(table.delete().where(table.c[column].in_(ids)))
