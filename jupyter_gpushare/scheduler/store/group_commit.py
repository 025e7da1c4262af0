"""What is on disk for good. Commits go into SQLite's log one by one; what they changed is told only
after the log was synced, once for many.

A sync for every commit, on the thread that decides, was most of what a busy service waited for: a
slow disk takes milliseconds for each, and held up everybody. Now the disk works beside the
decisions. The promise is the same: commit, sync, then announce. Whatever leaves the service (an
answer, a frame of a stream, an order to an agent) carries the number of the last commit before it,
and waits here until that one is on disk. A power cut loses only what nobody was told.

The log is copied into the database's file in a thread as well: on the thread that decides, it held
up a grant for as long as the disk took to take a few thousand pages.
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
COMMITS_PER_COPY: Final = 256
"""So many commits fill about two thousand pages of the log."""
LONG_LOG: Final = 2_000
"""Pages of the log from which on it is begun anew, which stops a writer for a moment."""


class GroupCommit:
    """Counts commits, and knows how many of them are on disk. `file` None: the database syncs every
    commit by itself.

    Used on one event loop, and before it runs; `on_failure` is told there why a sync failed: nobody
    knows then what of the last commits will be there after a power cut, and the service must begin
    again with what can be read.
    """

    def __init__(
        self, file: Path | None = None, on_failure: Callable[[str], None] = lambda _why: None
    ) -> None:
        self._wal = None if file is None else file.with_name(f"{file.name}-wal")
        self._file, self._on_failure = file, on_failure
        self.written = self.on_disk = 0
        """Number of the last commit, and of the last that is on disk."""
        self.on_synced: Callable[[float], None] = lambda _seconds: None
        """Is told how long each sync took."""
        self._failure: str | None = None
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        """A heap: who waits for which commit."""
        self._asked = count()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due, self._copy_due = threading.Event(), threading.Event()
        self._is_over = False
        self._threads: list[threading.Thread] = []

    def committed(self) -> None:
        """A transaction was committed. The disk begins with it at once: somebody will be told of it
        soon.
        """
        self.written += 1
        if self._wal is None:
            self.on_disk = self.written
        else:
            self._due.set()

    async def reached(self, mark: int) -> None:
        """Returns when this commit is on disk. Raises StoreUnavailable: it may never be."""
        if self.on_disk >= mark:
            return
        if self._failure is not None:
            raise StoreUnavailable(self._failure)
        self.start()
        waiter = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (mark, next(self._asked), waiter))
        await waiter

    def start(self) -> None:
        """Begins to sync beside the running event loop; whoever waits does so too. What was
        committed before is synced now.
        """
        if self._threads or self._wal is None:
            return
        self._loop = asyncio.get_running_loop()
        for work, name in (
            (self._sync_again_and_again, "gpushare-sync"),
            (self._copy_again_and_again, "gpushare-copy"),
        ):
            self._threads.append(threading.Thread(target=work, name=name, daemon=True))
            self._threads[-1].start()

    def _synced(self, mark: int, seconds: float, failure: str | None = None) -> None:
        """On the loop: everything up to this commit is on disk, or nobody knows."""
        self.on_synced(seconds)
        if failure is not None and self._failure is None:
            self._failure = failure
            self._on_failure(failure)
        if self._failure is None:
            self.on_disk = mark
        while self._waiting and (self._failure is not None or self._waiting[0][0] <= mark):
            _, _, waiter = heappop(self._waiting)
            if waiter.done():  # who waited has left
                continue
            if self._failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(StoreUnavailable(self._failure))

    # -- in the threads --

    def _sync_again_and_again(self) -> None:
        """As soon as one sync is over, the next takes all that was committed meanwhile: no turn of
        the loop lies between them.
        """
        assert self._loop is not None
        copied = 0
        while not self._is_over:
            self._due.wait()
            self._due.clear()
            mark, begun, failure = self.written, time.perf_counter(), None
            try:
                self._sync()
            except OSError as error:
                failure = f"the disk failed to keep what was committed: {error.strerror or error}"
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(
                    self._synced, mark, time.perf_counter() - begun, failure
                )
            if mark - copied >= COMMITS_PER_COPY:
                copied = mark
                self._copy_due.set()

    def _sync(self) -> None:
        """Beside SQLite, on a handle of ours: unlike the database's own file, the log has no locks
        that closing it would drop.
        """
        assert self._wal is not None
        try:
            handle = os.open(self._wal, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # SQLite copied and synced it when its last connection was closed
        try:
            os.fdatasync(handle)
        finally:
            os.close(handle)

    def _copy_again_and_again(self) -> None:
        while not self._is_over:
            self._copy_due.wait()
            self._copy_due.clear()
            with suppress(
                sqlite3.Error
            ):  # what cannot be done now is done after the next few hundred commits
                self._copy()

    def _copy(self) -> None:
        """Never waits for the service."""
        connection = sqlite3.connect(f"{self._file}", timeout=0, isolation_level=None)
        try:
            _, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages > LONG_LOG:
                connection.execute("PRAGMA wal_checkpoint(RESTART)")
        finally:
            connection.close()

    def close(self) -> None:
        """Everything that was committed is on disk when this returns, as far as the disk takes it.
        May be called twice.
        """
        self._is_over = True
        self._due.set()
        self._copy_due.set()
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
