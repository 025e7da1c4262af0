"""Opens the file of the simulated node."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from .model import SimGpu
from .process_numbers import ProcessNumbers, pid_namespace

__all__ = ["Connection"]

C = TypeVar("C", bound="Connection")
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS gpus(uuid TEXT PRIMARY KEY, idx INTEGER NOT NULL,
  model TEXT NOT NULL, total INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS attachments(kernel TEXT, device INTEGER, gpu TEXT NOT NULL,
  cap INTEGER NOT NULL, PRIMARY KEY(kernel, device));
CREATE TABLE IF NOT EXISTS processes(pid INTEGER, start INTEGER, kernel TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'running', busy_ms INTEGER NOT NULL DEFAULT 0,
  broken INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(pid, start));
CREATE TABLE IF NOT EXISTS allocations(id INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER,
  start INTEGER, kernel TEXT, device INTEGER, gpu TEXT,
  bytes INTEGER NOT NULL, value TEXT NOT NULL DEFAULT '0');
CREATE INDEX IF NOT EXISTS by_kernel ON allocations(kernel, gpu);
CREATE INDEX IF NOT EXISTS by_gpu ON allocations(gpu, bytes);
CREATE TABLE IF NOT EXISTS faults(name TEXT, argument TEXT, PRIMARY KEY(name, argument));
CREATE TABLE IF NOT EXISTS freed(gpu TEXT, bytes INTEGER, at INTEGER);
CREATE TABLE IF NOT EXISTS agent(pid_namespace INTEGER NOT NULL);
"""


class Connection:
    """One connection to the file."""

    def __init__(self, path: str | Path, *, timeout: float = 5.0) -> None:
        self.path = str(path)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(
            self.path, timeout=timeout, isolation_level=None, check_same_thread=False
        )
        self._db.execute("PRAGMA synchronous=OFF")
        self._numbers = ProcessNumbers(self._agent_namespace())

    @classmethod
    def create(
        cls: type[C],
        path: str | Path,
        gpus: Iterable[SimGpu],
        *,
        timeout: float = 5.0,
        for_all: bool = False,
    ) -> C:
        """Opens the node with these devices; an existing file keeps its processes and memory.

        With `for_all`, every user of the machine may read and write the file: a simulated driver
        does not isolate users.
        """
        mode = 0o666 if for_all else 0o600
        Path(path).touch(mode=mode)
        for file in (path, f"{path}-wal", f"{path}-shm"):
            if os.path.exists(file):  # SQLite creates the last two with the mode of the first
                os.chmod(file, mode)
        node = cls(path, timeout=timeout)
        node._db.execute("PRAGMA trusted_schema=OFF")  # every user may write the file
        node._db.execute("PRAGMA journal_mode=WAL")
        node._db.executescript(SCHEMA)
        with node._writing() as db:
            db.execute("DELETE FROM agent")
            db.execute("INSERT INTO agent VALUES(?)", (pid_namespace(),))
            db.execute("DELETE FROM gpus")
            db.executemany(
                "INSERT INTO gpus VALUES(?,?,?,?)",
                [(g.uuid, g.index, g.model, g.total) for g in gpus],
            )
        node._numbers = ProcessNumbers(pid_namespace())
        return node

    def _agent_namespace(self) -> int:
        """0: in a new file, or in one of an agent of version 0.1.0."""
        try:
            row = self._db.execute("SELECT pid_namespace FROM agent").fetchone()
        except sqlite3.OperationalError:
            return 0
        return int(row[0]) if row else 0

    def number_of(self, pid: int) -> int:
        """The number in this file of a process that has this pid here."""
        return self._numbers.number_of(pid)

    def pid_of(self, number: int, start: int) -> int | None:
        """The pid here of a process in this file; None: it has ended, or cannot be seen."""
        return self._numbers.pid_of(number, start)

    def close(self) -> None:
        """Closes the connection. The node stays in the file."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:  # also after an interrupt, or the node stays locked
                self._db.execute("ROLLBACK")
                raise

    def _rows(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(sql, args).fetchall()

    def version(self) -> int:
        """A number that changes when another connection changes the file; cheap to read."""
        return int(self._rows("PRAGMA data_version")[0][0])

    def gpus(self) -> list[SimGpu]:
        """The devices by index."""
        return [
            SimGpu(*row)
            for row in self._rows("SELECT idx, uuid, model, total FROM gpus ORDER BY idx")
        ]
