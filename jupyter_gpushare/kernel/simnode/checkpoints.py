"""The checkpoint API of the driver: lock, checkpoint, restore, unlock."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from .attachments import AgentCalls
from .model import (
    ILLEGAL_STATE,
    NOT_READY,
    NOT_SUPPORTED,
    OPERATING_SYSTEM,
    OUT_OF_MEMORY,
    DriverError,
)

__all__ = ["CheckpointCalls"]


class CheckpointCalls(AgentCalls):
    """Calls that suspend and resume a process."""

    def state(self, pid: int, start: int) -> str | None:
        """`running`, `locked` or `checkpointed`; None: an unknown process."""
        rows = self._rows("SELECT state FROM processes WHERE pid=? AND start=?", pid, start)
        return str(rows[0][0]) if rows else None

    def _step(
        self, db: sqlite3.Connection, pid: int, start: int, before: str, after: str, fault: str
    ) -> str:
        row = db.execute(
            "SELECT kernel, state FROM processes WHERE pid=? AND start=?", (pid, start)
        ).fetchone()
        if row is None or row[1] != before or self._numbers.has_ended(pid, start):
            raise DriverError(
                ILLEGAL_STATE, f"process {pid} is {row[1] if row else 'gone'}, not {before}"
            )
        if self._faulty(db, "unsupported", row[0]):
            raise DriverError(NOT_SUPPORTED, "checkpointing is not supported")
        if fault and self._faulty(db, fault, row[0]):
            raise DriverError(
                NOT_READY if fault == "lock" else OPERATING_SYSTEM,
                f"{fault} of process {pid} failed",
            )
        db.execute("UPDATE processes SET state=? WHERE pid=? AND start=?", (after, pid, start))
        return str(row[0])

    def lock(self, pid: int, start: int) -> None:
        """Blocks further calls of the process. Raises DriverError 600 if it does not become idle in
        time.
        """
        with self._writing() as db:
            self._step(db, pid, start, "running", "locked", "lock")

    def checkpoint(self, pid: int, start: int) -> int:
        """Moves the memory of a locked process to host memory; returns the bytes."""
        with self._writing() as db:
            self._step(db, pid, start, "locked", "checkpointed", "checkpoint")
            mine = "pid=? AND start=? AND gpu IS NOT NULL"
            size = db.execute(
                f"SELECT COALESCE(SUM(bytes),0) FROM allocations WHERE {mine}",  # noqa: S608
                (pid, start),
            ).fetchone()[0]
            db.execute("UPDATE allocations SET gpu=NULL WHERE pid=? AND start=?", (pid, start))
            return int(size)

    def restore(self, pid: int, start: int, gpus: Sequence[str]) -> int:
        """Moves saved memory onto these GPUs, one GPU per device ordinal; returns the bytes. The
        process stays locked.

        Without enough free memory: error 2, and 304 for all later calls, as drivers do.
        """
        with self._writing() as db:
            broken = db.execute(
                "SELECT broken, kernel FROM processes WHERE pid=? AND start=?", (pid, start)
            ).fetchone()
            if broken and broken[0]:
                raise DriverError(
                    OPERATING_SYSTEM, f"process {pid} cannot be restored after an earlier failure"
                )
            fits = (
                broken is None
                or self._fits(db, pid, start, gpus)
                and not self._faulty(db, "restore", broken[1])
            )
            if fits:
                self._step(db, pid, start, "checkpointed", "locked", "")
                return self._put_back(db, pid, start, gpus)
            db.execute("UPDATE processes SET broken=1 WHERE pid=? AND start=?", (pid, start))
        raise DriverError(OUT_OF_MEMORY, f"not enough memory to restore process {pid}")

    def _fits(self, db: sqlite3.Connection, pid: int, start: int, gpus: Sequence[str]) -> bool:
        sql = (
            "SELECT device, SUM(bytes) FROM allocations"
            " WHERE pid=? AND start=? AND gpu IS NULL GROUP BY device"
        )
        wanted: dict[str, int] = {}
        for device, size in db.execute(sql, (pid, start)):
            wanted[gpus[device]] = wanted.get(gpus[device], 0) + size
        for gpu, size in wanted.items():
            used = db.execute(
                "SELECT COALESCE(SUM(bytes),0) FROM allocations WHERE gpu=?", (gpu,)
            ).fetchone()[0]
            if (
                used + size
                > db.execute("SELECT total FROM gpus WHERE uuid=?", (gpu,)).fetchone()[0]
            ):
                return False
        return True

    @staticmethod
    def _put_back(db: sqlite3.Connection, pid: int, start: int, gpus: Sequence[str]) -> int:
        size = 0
        for device, gpu in enumerate(gpus):
            mine = "pid=? AND start=? AND device=? AND gpu IS NULL"
            size += db.execute(
                f"SELECT COALESCE(SUM(bytes),0) FROM allocations WHERE {mine}",  # noqa: S608
                (pid, start, device),
            ).fetchone()[0]
            db.execute(
                f"UPDATE allocations SET gpu=? WHERE {mine}",  # noqa: S608
                (gpu, pid, start, device),
            )
        return size

    def unlock(self, pid: int, start: int) -> None:
        """Lets a locked process continue."""
        with self._writing() as db:
            self._step(db, pid, start, "locked", "running", "")
