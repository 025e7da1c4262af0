"""Group commit for SQLite: one sync of the write-ahead log (WAL) for many commits.

A sync for every commit on the event loop would take milliseconds each on a slow disk. Here a thread
syncs the WAL, and everything that leaves the service (an answer, a frame of a stream, an order to
an agent) waits until the last commit before it is on disk: commit, sync, announce. A power failure
loses only commits that were not announced.

Another thread checkpoints the WAL into the database file, which takes long for a few thousand
pages.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Final

from .database import StoreUnavailable

__all__ = ["GroupCommit"]

log = logging.getLogger("gpushare.scheduler")
COMMITS_PER_CHECKPOINT: Final = 256
"""These fill about 2000 pages of the WAL."""
RESTART_PAGES: Final = 2_000
"""Pages after which the WAL is restarted, which blocks writers for a moment."""


class GroupCommit:
    """Counts commits, and how many of them are on disk. `file` None: the database syncs every
    commit itself.

    For one event loop, and before it runs. `on_failure` is called there when a sync fails: the last
    commits may be lost in a power failure, so the service must restart from what can be read.
    """

    def __init__(
        self, file: Path | None = None, on_failure: Callable[[str], None] = lambda _why: None
    ) -> None:
        self._wal = None if file is None else file.with_name(f"{file.name}-wal")
        self._file, self._on_failure = file, on_failure
        self.written = self.on_disk = 0
        """Number of the last commit, and of the last commit that is on disk."""
        self.on_synced: Callable[[float], None] = lambda _seconds: None
        """Called with the duration of each sync in seconds."""
        self._failure: str | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        """A heap of (commit, sequence number, waiter)."""
        self._asked = count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due, self._checkpoint_due = threading.Event(), threading.Event()
        self._is_over = False
        self._threads: list[threading.Thread] = []

    def committed(self) -> None:
        """Counts a commit and starts a sync."""
        self.written += 1
        if self._wal is None:
            self.on_disk = self.written
        else:
            self._due.set()

    async def reached(self, mark: int) -> None:
        """Waits until this commit is on disk. Raises StoreUnavailable if a sync failed."""
        if self.on_disk >= mark:
            return
        if self._failure is not None:
            raise StoreUnavailable(self._failure)
        self.start()
        waiter = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (mark, next(self._asked), waiter))
        await waiter

    def start(self) -> None:
        """Starts the threads, on the running event loop. Earlier commits are synced now."""
        if self._threads or self._wal is None:
            return
        self._loop = asyncio.get_running_loop()
        for work, name in (
            (self._sync_loop, "gpushare-sync"),
            (self._checkpoint_loop, "gpushare-copy"),
        ):
            self._threads.append(threading.Thread(target=work, name=name, daemon=True))
            self._threads[-1].start()

    def _synced(self, mark: int, seconds: float, failure: str | None = None) -> None:
        """On the event loop: everything up to this commit is on disk, or the sync failed."""
        self.on_synced(seconds)
        if failure is not None and self._failure is None:
            self._failure = failure
            self._on_failure(failure)
        if self._failure is None:
            self.on_disk = mark
        while self._waiting and (self._failure is not None or self._waiting[0][0] <= mark):
            _, _, waiter = heappop(self._waiting)
            if waiter.done():  # the waiter was cancelled
                continue
            if self._failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(StoreUnavailable(self._failure))

    # -- threads --

    def _sync_loop(self) -> None:
        """When a sync ends, the next one starts for all commits made meanwhile."""
        assert self._loop is not None
        checkpointed = 0
        while not self._is_over:
            self._due.wait()
            self._due.clear()
            mark, begun, failure = self.written, time.perf_counter(), None
            try:
                self._sync()
            except OSError as error:
                failure = f"the disk failed to sync commits: {error.strerror or error}"
            with suppress(RuntimeError):  # the event loop is closed, so nothing waits
                self._loop.call_soon_threadsafe(
                    self._synced, mark, time.perf_counter() - begun, failure
                )
            if mark - checkpointed >= COMMITS_PER_CHECKPOINT:
                checkpointed = mark
                self._checkpoint_due.set()

    def _sync(self) -> None:
        """Through a separate file descriptor: unlike on the database file, SQLite has no locks on
        the WAL that closing the descriptor would drop.
        """
        assert self._wal is not None
        try:
            handle = os.open(self._wal, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # SQLite checkpointed and synced it with its last connection
        try:
            os.fdatasync(handle)
        finally:
            os.close(handle)

    def _checkpoint_loop(self) -> None:
        while not self._is_over:
            self._checkpoint_due.wait()
            self._checkpoint_due.clear()
            with suppress(sqlite3.Error):  # the next checkpoint tries again
                self._checkpoint()

    def _checkpoint(self) -> None:
        """With timeout 0, so that it never waits for the service."""
        connection = sqlite3.connect(f"{self._file}", timeout=0, isolation_level=None)
        try:
            _, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages > RESTART_PAGES:
                connection.execute("PRAGMA wal_checkpoint(RESTART)")
        finally:
            connection.close()

    def close(self) -> None:
        """Syncs the remaining commits and ends the threads. May be called twice."""
        self._is_over = True
        self._due.set()
        self._checkpoint_due.set()
        for thread in self._threads:
            thread.join()
        if self._wal is not None and self.on_disk < self.written and self._failure is None:
            begun = time.perf_counter()
            try:
                self._sync()
            except OSError as error:
                log.error("the last commits may not be on disk: %s", error.strerror or error)
            else:
                self._synced(self.written, time.perf_counter() - begun)
