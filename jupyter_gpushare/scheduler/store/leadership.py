"""Leader election among schedulers on one PostgreSQL database, with fencing.

Three mechanisms, since each alone is incomplete. An advisory lock on a separate connection shows at
once that a process died. A row with the time of the last heartbeat shows that a process hangs while
its connections are open; its connection is then terminated. Every commit checks the epoch in that
row inside its own transaction, so that a scheduler that resumes after another one took over commits
nothing. Times come from the database, so the clocks of machines do not matter.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import SQLAlchemyError

from .database import LEAD_LOCK, StoreUnavailable, open_engine, translated_errors
from .schema import leadership as row

__all__ = ["SILENT_S", "LeadershipLost", "Leadership"]

log = logging.getLogger("gpushare.scheduler")
SILENT_S: Final = 10.0
"""A leader without a heartbeat for this long hangs."""
NAME: Final = "jupyter-gpushare leader"
"""Name of the connection with the lock; only connections of this name are terminated."""

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
_UNLOCK: Final = sql.select(
    sql.func.pg_advisory_unlock_all()
)  # explicit, since the database notices a closed connection a moment later
_END_SILENT: Final = sql.text(
    "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)"
    " WHERE locktype = 'advisory' AND granted"
    " AND classid = :high AND objid = :low AND objsubid = 1"
    " AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND application_name = :name"
    " AND EXISTS (SELECT FROM leadership WHERE id = 1 AND renewed_ms <"
    " CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) - :silent)"
).bindparams(high=LEAD_LOCK >> 32, low=LEAD_LOCK & 0xFFFFFFFF, name=NAME)


class LeadershipLost(StoreUnavailable):
    """Raised when another scheduler leads now; the state in memory is outdated."""

    def __init__(self) -> None:
        super().__init__("another scheduler leads now")


class Leadership:
    """The leadership of this process. Methods block on the database: call all but `check` in a
    thread.
    """

    def __init__(self, url: str, holder: str, *, silent_s: float = SILENT_S) -> None:
        self._engine = open_engine(url, name=NAME).execution_options(isolation_level="AUTOCOMMIT")
        self._connection: sql.Connection | None = None
        self.holder, self.silent_s = holder, silent_s
        self.epoch = 0
        """The epoch of this process's last term; 0: none."""
        self.leader = "no scheduler"
        """The leader when it was last read, as text."""

    def try_to_lead(self, address: str) -> bool:
        """Whether this process leads from now on. Standby schedulers refer clients to `address`.
        Raises StoreUnavailable.
        """
        with self._connected() as connection:
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
            # waits for commits of the previous leader: they are read next, or they fail
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
        self.leader = f"{found.holder} at {found.url}" if found else "no scheduler"

    def renew(self) -> None:
        """Sends a heartbeat. Raises LeadershipLost; StoreUnavailable if the database cannot be
        reached, which does not end the leadership yet.
        """
        try:
            self._renew()
        except LeadershipLost:
            raise
        except StoreUnavailable:
            self._renew()  # on a new connection: the new leader may have terminated the old one

    def _renew(self) -> None:
        with self._connected() as connection:
            if connection.execute(_RENEW, {"mine": self.epoch}).rowcount == 0:
                raise LeadershipLost

    def check(self, connection: sql.Connection) -> None:
        """Called in a transaction before its commit; no other process can take over in between.
        Raises LeadershipLost.
        """
        if connection.execute(_IS_MINE, {"mine": self.epoch}).first() is None:
            raise LeadershipLost

    def resign(self) -> None:
        """Lets another process lead at once. Does nothing if this one does not lead. May be called
        twice.
        """
        with suppress(StoreUnavailable, SQLAlchemyError):
            if self._connection is not None and self.epoch:
                self._connection.execute(_RESIGN, {"mine": self.epoch})
                self._connection.execute(_UNLOCK)
        self._disconnect()
        self.epoch = 0

    def close(self) -> None:
        """Resigns and closes all connections."""
        self.resign()
        self._engine.dispose()

    @contextmanager
    def _connected(self) -> Iterator[sql.Connection]:
        """The connection with the lock; it is closed after any error."""
        with translated_errors():
            try:
                yield self._connect()
            except SQLAlchemyError:
                self._disconnect()
                raise

    def _connect(self) -> sql.Connection:
        """The connection with the lock, or a new one that requests the lock again."""
        if self._connection is None:
            self._connection = self._engine.connect()
            if self.epoch and not self._connection.execute(_TRY).scalar():
                log.warning(
                    "an older connection still has the lock of the leader; the epoch decides"
                )
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(SQLAlchemyError):
                # not returned to the pool, where it would keep the lock
                connection.invalidate()
                connection.close()
