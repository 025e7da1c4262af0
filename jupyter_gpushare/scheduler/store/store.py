"""The scheduler's database: workloads, leases, events, nodes, usage, tokens, and the revision.

SQLite (in WAL mode) by default, or PostgreSQL. One transaction per command or cycle:
`with store.transaction() as write: ...` commits all of it or nothing. The tables are in `schema`,
the writes in `transaction`, the queries in `reads`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import sqlalchemy as sql
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from jupyter_gpushare.core.model.errors import GpuShareError

from .database import StoreUnavailable, file_in, open_engine, prepare, translated_errors
from .group_commit import GroupCommit
from .reads import StoreReader
from .retention import Cutoffs, Pruner, Retention, remove_oldest_output
from .schema import (
    FeedRow,
    LeaseRow,
    MemberLimitRow,
    PersonUsageRow,
    StoredBooking,
    StoredState,
    TokenRow,
    WorkloadOutcome,
    WorkloadRow,
)
from .transaction import StoreTransaction

__all__ = [
    "FeedRow",
    "Cutoffs",
    "StoredBooking",
    "LeaseRow",
    "MemberLimitRow",
    "PersonUsageRow",
    "Retention",
    "Store",
    "StoreTransaction",
    "StoreUnavailable",
    "StoredState",
    "TokenRow",
    "WorkloadOutcome",
    "WorkloadRow",
]

LOST_CONNECTION: Final = ("08", "57P")
"""SQLSTATE classes of PostgreSQL for a lost connection: the commit may or may not have happened."""


FAILURE_S: Final = 10.0


class Store(StoreReader):
    """The database. Every method may raise `StoreUnavailable`."""

    def __init__(self, url: str, *, upgrade: bool = True, group_commit: bool = False) -> None:
        """Opens the database and creates or checks its tables.

        Args:
            url: SQLAlchemy URL.
            upgrade: Bring older tables up to date.
            group_commit: Commits into an SQLite file return before they are on disk; callers wait
                for `disk` before they announce a commit.

        Raises:
            InvalidInput: the URL cannot be used.
            NeedsUpgrade, TooNew: the tables have another version.
        """
        self.engine = open_engine(url, syncs=not group_commit)
        self.disk = GroupCommit(file_in(url) if group_commit else None, self.stop)
        self.fence: Callable[[sql.Connection], None] = lambda _connection: None
        """Called just before every commit; a GpuShareError prevents this and all later commits."""
        self.on_stopped: Callable[[str], None] = lambda _why: None
        """Called once with the reason when nothing can be committed any more: the state in memory
        may differ from the database.
        """
        self._stopped: str | None = None
        self._failure: tuple[float, str] | None = None
        self._pruner = Pruner()
        try:
            prepare(self.engine, upgrade=upgrade)
        except BaseException:
            self.engine.dispose()
            raise

    def close(self) -> None:
        """Syncs and closes all connections."""
        self.disk.close()
        with suppress(SQLAlchemyError):
            self.engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[StoreTransaction]:
        """Commits everything at the end of the block, or nothing and raises `StoreUnavailable`."""
        try:
            with self._transaction() as write:
                yield write
        except StoreUnavailable as error:
            self._failure = time.monotonic(), error.message
            raise

    @property
    def problem(self) -> str | None:
        """Why changes could not be stored lately; None: they can. On a full disk small changes may
        still fit now and then, so a failure counts for `FAILURE_S` at least.
        """
        return None if self._failure is None else self._failure[1]

    def _forget_failure(self) -> None:
        if self._failure is not None and time.monotonic() - self._failure[0] >= FAILURE_S:
            self._failure = None

    @contextmanager
    def _transaction(self) -> Iterator[StoreTransaction]:
        if self._stopped is not None:
            raise StoreUnavailable(self._stopped)
        with translated_errors(), self.engine.connect() as connection:
            begun = connection.begin()
            try:
                write = StoreTransaction(connection)
                yield write
                if write.wrote:
                    self._check_fence(connection)
            except BaseException:
                begun.rollback()
                raise
            self._commit(begun)
            if write.wrote:
                self._forget_failure()
                self.disk.committed()

    def _check_fence(self, connection: sql.Connection) -> None:
        try:
            self.fence(connection)
        except GpuShareError as error:
            self.stop(error.message)
            raise

    def _commit(self, begun: sql.RootTransaction) -> None:
        try:
            begun.commit()
        except DBAPIError as error:
            if self._lost_connection(error):
                self.stop(
                    "the connection to the database was lost during a commit, so its result is not"
                    " known"
                )
            with suppress(SQLAlchemyError):
                begun.rollback()
            raise

    def _lost_connection(self, error: DBAPIError) -> bool:
        if self.engine.dialect.name == "sqlite":
            return False
        state = getattr(error.orig, "sqlstate", None)
        return state is None or state.startswith(LOST_CONNECTION)

    def stop(self, why: str) -> None:
        """Refuses all further commits."""
        if self._stopped is None:
            self._stopped = why
            self.on_stopped(why)

    def workload_ended(self, user: str) -> None:
        """A workload of this user has ended: counted for `prune`."""
        self._pruner.workload_ended(user)

    def remove_oldest_output(self, user: str, size: int) -> int:
        """Removes about `size` characters of output of this user's commands that ended first.
        Returns how many; 0: no ended command has output.
        """
        with self.transaction() as write:
            return remove_oldest_output(write, user, size)

    def prune(self, before: Cutoffs, most: int = 500) -> int:
        """Removes rows older than the cutoffs; see `Pruner.prune`."""
        with self.transaction() as write:
            return self._pruner.prune(write, before, most)
