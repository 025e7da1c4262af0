"""Which of several schedulers on one PostgreSQL may commit: one, and it is fenced.

Three things together, because each alone has a hole. An advisory lock on a connection of its own
says at once that a process died. A row with the time of the last sign of life says that a process
hangs whose connections are still open; its connection is then ended. And the epoch in that row,
which every commit looks at inside its own transaction, stops a scheduler that wakes up after
somebody else took over: it finds another epoch and commits nothing. Times are the database's, so
that clocks of machines do not matter.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import SQLAlchemyError

from .database import LEAD_LOCK, StoreUnavailable, open_engine, ours
from .schema import leadership as row

__all__ = ["SILENT_S", "LeadershipLost", "Leadership"]

log = logging.getLogger("gpushare.scheduler")
SILENT_S: Final = 10.0
"""A leader that gave no sign of life for so long hangs."""
NAME: Final = "jupyter-gpushare leader"
"""What the connection is called that holds the lock: no other is ever ended by us."""

_now: Final = sql.cast(sql.func.extract("epoch", sql.func.clock_timestamp()) * 1000, sql.BigInteger)
_IS_MINE: Final = (
    sql.select(row.c.id)
    .where(row.c.id == 1, row.c.epoch == sql.bindparam("mine"))
    .with_for_update(read=True)
)
_RENEW: Final = (
    row.update().where(row.c.id == 1, row.c.epoch == sql.bindparam("mine")).values(renewed_ms=_now)
)
_RESIGN: Final = (
    row.update().where(row.c.id == 1, row.c.epoch == sql.bindparam("mine")).values(renewed_ms=0)
)
_TRY: Final = sql.select(sql.func.pg_try_advisory_lock(LEAD_LOCK))
_LET_GO: Final = sql.select(
    sql.func.pg_advisory_unlock_all()
)  # said aloud: the database hears of a closed connection a moment later
_END_SILENT: Final = sql.text(
    "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted "
    "AND classid = :high AND objid = :low AND objsubid = 1 AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = "
    "current_database()) AND application_name = :name AND EXISTS (SELECT FROM leadership WHERE id = 1 AND renewed_ms < "
    "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) - :silent)"
).bindparams(high=LEAD_LOCK >> 32, low=LEAD_LOCK & 0xFFFFFFFF, name=NAME)


class LeadershipLost(StoreUnavailable):
    """Raised when another scheduler leads now: what this one has in memory is the past."""

    def __init__(self) -> None:
        super().__init__("another scheduler leads now")


class Leadership:
    """This process's claim. Its methods wait for the database: all but `check` belong into a
    thread.
    """

    def __init__(self, url: str, holder: str, *, silent_s: float = SILENT_S) -> None:
        self._engine = open_engine(url, name=NAME).execution_options(isolation_level="AUTOCOMMIT")
        self._connection: sql.Connection | None = None
        self.holder, self.silent_s = holder, silent_s
        self.epoch = 0
        """Of this process's last turn."""
        self.leader = "nobody"
        """Who led when this was last looked at, in words."""

    def try_to_lead(self, address: str) -> bool:
        """Whether this process leads from now on; people are sent to this address. Raises
        StoreUnavailable.
        """
        with self._talking() as connection:
            if not connection.execute(_TRY).scalar():
                connection.execute(_END_SILENT, {"silent": round(self.silent_s * 1000)})
                self._look(connection)
                return False
            insert = postgresql.insert(row).values(
                id=1, epoch=1, holder=self.holder, url=address, renewed_ms=_now
            )
            mine = {
                "epoch": row.c.epoch + 1,
                "holder": self.holder,
                "url": address,
                "renewed_ms": _now,
            }
            # waits for commits of the leader before: they are in what we read next, or they fail
            taken = connection.execute(
                insert.on_conflict_do_update(index_elements=["id"], set_=mine).returning(
                    row.c.epoch
                )
            )
            self.epoch = int(taken.scalar_one())
            self._look(connection)
            return True

    def _look(self, connection: sql.Connection) -> None:
        found = connection.execute(sql.select(row.c.holder, row.c.url)).first()
        self.leader = f"{found.holder} at {found.url}" if found else "nobody"

    def renew(self) -> None:
        """A sign of life. Raises Deposed; StoreUnavailable when the database cannot be reached,
        which decides nothing yet.
        """
        try:
            self._renew()
        except LeadershipLost:
            raise
        except StoreUnavailable:
            self._renew()  # on a new connection: the old one may have been ended by who took over

    def _renew(self) -> None:
        with self._talking() as connection:
            if connection.execute(_RENEW, {"mine": self.epoch}).rowcount == 0:
                raise LeadershipLost

    def check(self, connection: sql.Connection) -> None:
        """In a transaction that is about to commit: nobody can take over between this and its
        commit. Raises Deposed.
        """
        if connection.execute(_IS_MINE, {"mine": self.epoch}).first() is None:
            raise LeadershipLost

    def resign(self) -> None:
        """Lets the next one lead at once; does nothing when this one does not lead. May be called
        twice.
        """
        with suppress(StoreUnavailable, SQLAlchemyError):
            if self._connection is not None and self.epoch:
                self._connection.execute(_RESIGN, {"mine": self.epoch})
                self._connection.execute(_LET_GO)
        self._hang_up()
        self.epoch = 0

    def close(self) -> None:
        """Lets go of everything."""
        self.resign()
        self._engine.dispose()

    @contextmanager
    def _talking(self) -> Iterator[sql.Connection]:
        """A connection that is given up, and with it the lock, when anything goes wrong on it."""
        with ours():
            try:
                yield self._connect()
            except SQLAlchemyError:
                self._hang_up()
                raise

    def _connect(self) -> sql.Connection:
        """The connection with the lock, or a new one, which asks for it again: the database may
        have been away for a moment.
        """
        if self._connection is None:
            self._connection = self._engine.connect()
            if self.epoch and not self._connection.execute(_TRY).scalar():
                log.warning(
                    "the lock of the leader is still held by an older connection; the epoch decides"
                )
        return self._connection

    def _hang_up(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(SQLAlchemyError):
                # closed for real: a connection in a pool would keep the lock
                connection.invalidate()
                connection.close()
