"""What processes with GPU memory do: join, allocate, free, fill, read, compute. A `pid` is the
number of a process (`process_numbers`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from .connection import Connection
from .model import DeviceBlocked, DeviceDetached, DeviceExhausted, now_ms

__all__ = ["ProcessCalls"]


class ProcessCalls(Connection):
    """Calls of kernels."""

    def join(self, pid: int, start: int, kernel: str) -> None:
        """Registers a process, like creating a context."""
        with self._writing() as db:
            db.execute(
                "INSERT OR IGNORE INTO processes(pid, start, kernel) VALUES(?,?,?)",
                (pid, start, kernel),
            )

    def attached(self, kernel: str) -> list[tuple[str, int]]:
        """(GPU, cap) per device ordinal; empty without a GPU."""
        return [
            (gpu, cap)
            for gpu, cap in self._rows(
                "SELECT gpu, cap FROM attachments WHERE kernel=? ORDER BY device", kernel
            )
        ]

    def check(self, kernel: str, device: int) -> str:
        """The GPU of device ordinal `device`. Raises DeviceDetached, DeviceBlocked."""
        with self._lock:
            return self._check(self._db, kernel, device)[0]

    @staticmethod
    def _check(db: sqlite3.Connection, kernel: str, device: int) -> tuple[str, int]:
        row = db.execute(
            "SELECT gpu, cap FROM attachments WHERE kernel=? AND device=?", (kernel, device)
        ).fetchone()
        if row is None:
            raise DeviceDetached
        if db.execute(
            "SELECT 1 FROM processes WHERE kernel=? AND state<>'running' LIMIT 1", (kernel,)
        ).fetchone():
            raise DeviceBlocked
        return row[0], row[1]

    def room(self, kernel: str, device: int) -> DeviceExhausted:
        """The numbers for an allocation of 0 bytes. Raises DeviceDetached, DeviceBlocked."""
        with self._lock:
            return self._room(self._db, kernel, device, 0)

    def _room(
        self, db: sqlite3.Connection, kernel: str, device: int, wanted: int
    ) -> DeviceExhausted:
        gpu, cap = self._check(db, kernel, device)
        total = db.execute("SELECT total FROM gpus WHERE uuid=?", (gpu,)).fetchone()[0]
        used = db.execute(
            "SELECT COALESCE(SUM(bytes),0) FROM allocations WHERE gpu=?", (gpu,)
        ).fetchone()[0]
        held = db.execute(
            "SELECT COALESCE(SUM(bytes),0) FROM allocations WHERE kernel=? AND gpu=?", (kernel, gpu)
        ).fetchone()[0]
        return DeviceExhausted(wanted, held, cap, total - used, total)

    def allocate(self, pid: int, start: int, kernel: str, device: int, size: int) -> int:
        """Allocates `size` bytes and returns the number of the buffer.

        Raises DeviceDetached, DeviceBlocked, DeviceExhausted.
        """
        with self._writing() as db:
            room = self._room(db, kernel, device, size)
            if room.held + size <= room.cap and size > room.free:
                self._sweep(db)
                room = self._room(db, kernel, device, size)
            if room.held + size > room.cap or size > room.free:
                raise room
            gpu = self._check(db, kernel, device)[0]
            sql = (
                "INSERT INTO allocations(pid, start, kernel, device, gpu, bytes)"
                " VALUES(?,?,?,?,?,?)"
            )
            return int(db.execute(sql, (pid, start, kernel, device, gpu, size)).lastrowid or 0)

    def free(self, buffers: Sequence[int]) -> None:
        """Frees buffers; unknown numbers are ignored."""
        with self._writing() as db:
            self._drop(db, f"id IN ({','.join('?' * len(buffers))})", tuple(buffers))

    @staticmethod
    def _drop(db: sqlite3.Connection, where: str, args: tuple[Any, ...]) -> None:
        if db.execute("SELECT 1 FROM faults WHERE name='lag'").fetchone():
            sql = (
                "INSERT INTO freed SELECT gpu, bytes, ? FROM allocations"  # noqa: S608 - constants
                f" WHERE gpu IS NOT NULL AND {where}"
            )
            db.execute(sql, (now_ms(), *args))
        db.execute(f"DELETE FROM allocations WHERE {where}", args)  # noqa: S608 - constants

    def fill(self, kernel: str, device: int, buffer: int, value: float) -> None:
        """Writes one value into every byte. Raises DeviceDetached, DeviceBlocked."""
        with self._writing() as db:
            self._check(db, kernel, device)
            db.execute("UPDATE allocations SET value=? WHERE id=?", (json.dumps(value), buffer))

    def read(self, kernel: str, device: int, buffer: int) -> int | float | None:
        """The value in every byte; None: no such buffer. Raises DeviceDetached, DeviceBlocked."""
        with self._lock:
            self._check(self._db, kernel, device)
            row = self._db.execute("SELECT value FROM allocations WHERE id=?", (buffer,)).fetchone()
        return None if row is None else json.loads(row[0])

    def worked(self, pid: int, start: int, ms: int) -> None:
        """Counts `ms` of GPU work."""
        with self._writing() as db:
            db.execute(
                "UPDATE processes SET busy_ms=busy_ms+? WHERE pid=? AND start=?", (ms, pid, start)
            )

    def _sweep(self, db: sqlite3.Connection) -> None:
        for pid, start, kernel in db.execute("SELECT pid, start, kernel FROM processes").fetchall():
            if self._numbers.has_ended(pid, start) and not self._faulty(db, "lingers", kernel):
                self._drop(db, "pid=? AND start=?", (pid, start))
                db.execute("DELETE FROM processes WHERE pid=? AND start=?", (pid, start))

    @staticmethod
    def _faulty(db: sqlite3.Connection, name: str, kernel: str) -> bool:
        return (
            db.execute(
                "SELECT 1 FROM faults WHERE name=? AND argument IN ('*',?)", (name, kernel)
            ).fetchone()
            is not None
        )
