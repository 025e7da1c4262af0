"""A simulated GPU node: one SQLite file that stands for the driver and the device memory of the
machine.

Kernels (`jupyter_gpushare.kernel.simgpu`) and the node agent
(`node_agent.devices.simulated.simulated_devices`) open the same file, as both would talk to one
driver. It survives the death of either side, like device memory does: what a process holds is free
again only when the process is gone. Identity is (pid, start time), never a pid alone. Amounts are
bytes, times are monotonic ms (one clock for the machine).

The driver's own calls keep the shape and the error numbers of CUDA's checkpoint API, so that the
code above cannot tell the difference: lock, checkpoint, restore, unlock; 2 out of memory, 304
operating system, 401 illegal state, 600 not ready, 801 not supported. Standard library only: this
file is imported inside people's kernels.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = [
    "DeviceBlocked",
    "DeviceDetached",
    "DriverError",
    "DeviceExhausted",
    "KernelReading",
    "Reading",
    "SimGpu",
    "SimNode",
    "now_ms",
    "start_of",
]

MIB: Final = 1 << 20
OUT_OF_MEMORY, OPERATING_SYSTEM, ILLEGAL_STATE, NOT_READY, NOT_SUPPORTED = 2, 304, 401, 600, 801

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS gpus(uuid TEXT PRIMARY KEY, idx INTEGER NOT NULL, model TEXT NOT NULL, total INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS attachments(kernel TEXT, device INTEGER, gpu TEXT NOT NULL, cap INTEGER NOT NULL, PRIMARY KEY(kernel, device));
CREATE TABLE IF NOT EXISTS processes(pid INTEGER, start INTEGER, kernel TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'running',
  busy_ms INTEGER NOT NULL DEFAULT 0, broken INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(pid, start));
CREATE TABLE IF NOT EXISTS allocations(id INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER, start INTEGER, kernel TEXT, device INTEGER,
  gpu TEXT, bytes INTEGER NOT NULL, value TEXT NOT NULL DEFAULT '0');
CREATE INDEX IF NOT EXISTS by_kernel ON allocations(kernel, gpu);
CREATE INDEX IF NOT EXISTS by_gpu ON allocations(gpu, bytes);
CREATE TABLE IF NOT EXISTS faults(name TEXT, argument TEXT, PRIMARY KEY(name, argument));
CREATE TABLE IF NOT EXISTS freed(gpu TEXT, bytes INTEGER, at INTEGER);
"""


class DriverError(Exception):
    """Raised when the driver refuses a call; `code` is CUDA's number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (driver error {code})")
        self.code = code


class DeviceDetached(Exception):
    """Raised when the kernel has no GPU."""


class DeviceBlocked(Exception):
    """Raised when the process is locked or checkpointed: a real call would block; the caller tries
    again.
    """


class DeviceExhausted(Exception):
    """Raised when an allocation does not fit: `wanted`, `held` by this kernel, its `cap`, `free`
    and `total` of the GPU, in bytes.
    """

    def __init__(self, wanted: int, held: int, cap: int, free: int, total: int) -> None:
        super().__init__(wanted, held, cap, free, total)
        self.wanted, self.held, self.cap, self.free, self.total = wanted, held, cap, free, total


@dataclass(frozen=True, slots=True)
class SimGpu:
    """One simulated device; `total` in bytes."""

    index: int
    uuid: str
    model: str
    total: int


@dataclass(slots=True)
class KernelReading:
    """What the driver knows of one kernel's processes: bytes per (device ordinal, GPU) resident,
    and per device ordinal in host memory.
    """

    held: dict[tuple[int, str], int] = field(default_factory=dict)
    image: dict[int, int] = field(default_factory=dict)
    processes: list[tuple[int, int, str]] = field(default_factory=list)
    busy_ms: int = 0


@dataclass(slots=True)
class Reading:
    """The whole node at one moment. `used` per GPU may lag behind, as NVML does (fault `lag`)."""

    used: dict[str, int] = field(default_factory=dict)
    kernels: dict[str, KernelReading] = field(default_factory=dict)


def now_ms() -> int:
    """Monotonic milliseconds; the same clock in every process of the machine."""
    return time.monotonic_ns() // 1_000_000


def start_of(pid: int) -> int | None:
    """Start time of a living process (field 22 of its stat, in clock ticks since boot); None when
    it is gone or a zombie.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZXx" else int(fields[19])


class SimNode:
    """One connection to the file. Safe to use from several threads; after a fork the child must
    open its own.
    """

    def __init__(self, path: str | Path, *, timeout: float = 5.0) -> None:
        self.path = str(path)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(
            self.path, timeout=timeout, isolation_level=None, check_same_thread=False
        )
        self._db.execute("PRAGMA synchronous=OFF")

    @classmethod
    def create(
        cls,
        path: str | Path,
        gpus: Iterable[SimGpu],
        *,
        timeout: float = 5.0,
        for_all: bool = False,
    ) -> SimNode:
        """The node with these devices; an existing file keeps its processes and their memory.

        `for_all`: every user of the machine may read and write it; a simulated driver keeps nobody
        apart.
        """
        mode = 0o666 if for_all else 0o600
        Path(path).touch(mode=mode)
        for one in (path, f"{path}-wal", f"{path}-shm"):
            if os.path.exists(
                one
            ):  # SQLite gives its own two the mode of the first when it makes them
                os.chmod(one, mode)
        node = cls(path, timeout=timeout)
        node._db.execute("PRAGMA trusted_schema=OFF")  # it may be everybody's to write
        node._db.execute("PRAGMA journal_mode=WAL")
        node._db.executescript(SCHEMA)
        with node._writing() as db:
            db.execute("DELETE FROM gpus")
            db.executemany(
                "INSERT INTO gpus VALUES(?,?,?,?)",
                [(g.uuid, g.index, g.model, g.total) for g in gpus],
            )
        return node

    def close(self) -> None:
        """Close the connection; the node itself lives on in the file."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:  # an interrupt in the middle must not leave the node locked
                self._db.execute("ROLLBACK")
                raise

    def _rows(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(sql, args).fetchall()

    def version(self) -> int:
        """A number that changes when another connection changed the file; cheap enough to ask
        often.
        """
        return int(self._rows("PRAGMA data_version")[0][0])

    def gpus(self) -> list[SimGpu]:
        """The devices by index."""
        return [
            SimGpu(*row)
            for row in self._rows("SELECT idx, uuid, model, total FROM gpus ORDER BY idx")
        ]

    # ---- what a process does ---------------------------------------------------------------------

    def join(self, pid: int, start: int, kernel: str) -> None:
        """Make a process known, like creating a context."""
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
        """The GPU that device ordinal `device` is, when the kernel runs. Raises Detached or
        Blocked.
        """
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
        """The numbers that an allocation of 0 bytes would be judged by. Raises Detached or Blocked."""
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
        """Take `size` bytes; returns the buffer's number. Raises Detached, Blocked, Exhausted."""
        with self._writing() as db:
            room = self._room(db, kernel, device, size)
            if room.held + size <= room.cap and size > room.free:
                self._sweep(db)
                room = self._room(db, kernel, device, size)
            if room.held + size > room.cap or size > room.free:
                raise room
            gpu = self._check(db, kernel, device)[0]
            sql = "INSERT INTO allocations(pid, start, kernel, device, gpu, bytes) VALUES(?,?,?,?,?,?)"
            return int(db.execute(sql, (pid, start, kernel, device, gpu, size)).lastrowid or 0)

    def free(self, buffers: Sequence[int]) -> None:
        """Give buffers back, wherever they are; unknown ones are ignored."""
        with self._writing() as db:
            self._drop(db, f"id IN ({','.join('?' * len(buffers))})", tuple(buffers))

    @staticmethod
    def _drop(db: sqlite3.Connection, where: str, args: tuple[Any, ...]) -> None:
        if db.execute("SELECT 1 FROM faults WHERE name='lag'").fetchone():
            sql = f"INSERT INTO freed SELECT gpu, bytes, ? FROM allocations WHERE gpu IS NOT NULL AND {where}"  # noqa: S608 - our own words
            db.execute(sql, (now_ms(), *args))
        db.execute(f"DELETE FROM allocations WHERE {where}", args)  # noqa: S608 - our own words

    def fill(self, kernel: str, device: int, buffer: int, value: float) -> None:
        """Write one value into every byte. Raises Detached, Blocked."""
        with self._writing() as db:
            self._check(db, kernel, device)
            db.execute("UPDATE allocations SET value=? WHERE id=?", (json.dumps(value), buffer))

    def read(self, kernel: str, device: int, buffer: int) -> int | float | None:
        """The value in every byte; None for a buffer that is gone. Raises Detached, Blocked."""
        with self._lock:
            self._check(self._db, kernel, device)
            row = self._db.execute("SELECT value FROM allocations WHERE id=?", (buffer,)).fetchone()
        return None if row is None else json.loads(row[0])

    def worked(self, pid: int, start: int, ms: int) -> None:
        """Count `ms` of GPU work."""
        with self._writing() as db:
            db.execute(
                "UPDATE processes SET busy_ms=busy_ms+? WHERE pid=? AND start=?", (ms, pid, start)
            )

    # ---- what the agent does ---------------------------------------------------------------------

    def attach(self, kernel: str, gpus: Sequence[tuple[str, int]]) -> None:
        """Set (GPU, cap in bytes) per device ordinal; an empty sequence takes the GPU away from the
        kernel.
        """
        self.attach_all({kernel: gpus})

    def attach_all(self, kernels: Mapping[str, Sequence[tuple[str, int]]]) -> None:
        """The same for several kernels at one moment, so that no two caps overlap in between."""
        with self._writing() as db:
            db.executemany(
                "DELETE FROM attachments WHERE kernel=?", [(kernel,) for kernel in kernels]
            )
            rows = [
                (kernel, device, gpu, cap)
                for kernel, gpus in kernels.items()
                for device, (gpu, cap) in enumerate(gpus)
            ]
            db.executemany("INSERT INTO attachments VALUES(?,?,?,?)", rows)

    def attachments(self) -> dict[str, list[tuple[str, int]]]:
        """What every kernel is attached to."""
        found: dict[str, list[tuple[str, int]]] = {}
        for kernel, gpu, cap in self._rows(
            "SELECT kernel, gpu, cap FROM attachments ORDER BY kernel, device"
        ):
            found.setdefault(kernel, []).append((gpu, cap))
        return found

    def read_all(self) -> Reading:
        """Everything at one moment; the memory of dead processes is free before."""
        if any(
            start_of(pid) != start for pid, start in self._rows("SELECT pid, start FROM processes")
        ):
            with self._writing() as db:
                self._sweep(db)
        with self._lock:
            return self._read_all(self._db)

    def _read_all(self, db: sqlite3.Connection) -> Reading:
        reading = Reading({uuid: 0 for (uuid,) in db.execute("SELECT uuid FROM gpus")})
        for pid, start, kernel, state, busy in db.execute(
            "SELECT pid, start, kernel, state, busy_ms FROM processes ORDER BY pid"
        ):
            known = reading.kernels.setdefault(kernel, KernelReading())
            known.processes.append((pid, start, state))
            known.busy_ms += busy
        for kernel, device, gpu, size in db.execute(
            "SELECT kernel, device, gpu, SUM(bytes) FROM allocations GROUP BY kernel, device, gpu"
        ):
            known = reading.kernels.setdefault(kernel, KernelReading())
            if gpu is None:
                known.image[device] = size
            else:
                known.held[device, gpu] = size
                reading.used[gpu] = reading.used.get(gpu, 0) + size
        for (argument,) in db.execute("SELECT argument FROM faults WHERE name='lag'").fetchall():
            for gpu, size in db.execute(
                "SELECT gpu, SUM(bytes) FROM freed WHERE at>? GROUP BY gpu",
                (now_ms() - int(argument),),
            ):
                reading.used[gpu] = reading.used.get(gpu, 0) + size
        return reading

    def _sweep(self, db: sqlite3.Connection) -> None:
        for pid, start, kernel in db.execute("SELECT pid, start, kernel FROM processes").fetchall():
            if start_of(pid) != start and not self._faulty(db, "lingers", kernel):
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

    def fault(self, name: str, argument: str = "*", *, on: bool = True) -> None:
        """Switch a fault on or off: `unsupported`, `lock`, `checkpoint`, `restore`, `lingers`
        (argument: a kernel or `*`), `lag` (ms).
        """
        with self._writing() as db:
            db.execute("DELETE FROM faults WHERE name=? AND argument=?", (name, argument))
            if on:
                db.execute("INSERT INTO faults VALUES(?,?)", (name, argument))

    def state(self, pid: int, start: int) -> str | None:
        """`running`, `locked`, `checkpointed`; None for a process that holds nothing here."""
        rows = self._rows("SELECT state FROM processes WHERE pid=? AND start=?", pid, start)
        return str(rows[0][0]) if rows else None

    def _step(
        self, db: sqlite3.Connection, pid: int, start: int, before: str, after: str, fault: str
    ) -> str:
        row = db.execute(
            "SELECT kernel, state FROM processes WHERE pid=? AND start=?", (pid, start)
        ).fetchone()
        if row is None or row[1] != before or start_of(pid) != start:
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
        """Block further calls of the process. Raises DriverError 600 when it does not come to rest
        in time.
        """
        with self._writing() as db:
            self._step(db, pid, start, "running", "locked", "lock")

    def checkpoint(self, pid: int, start: int) -> int:
        """Move a locked process's memory to its host image; returns the bytes."""
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
        """Bring the image back, device ordinal by ordinal, onto these GPUs; returns the bytes. The
        process stays locked.

        Without room: error 2, and from then on 304 for ever; only killing the process helps (as
        drivers do).
        """
        with self._writing() as db:
            broken = db.execute(
                "SELECT broken, kernel FROM processes WHERE pid=? AND start=?", (pid, start)
            ).fetchone()
            if broken and broken[0]:
                raise DriverError(OPERATING_SYSTEM, f"process {pid} cannot be restored any more")
            fits = (
                broken is None
                or self._fits(db, pid, start, gpus)
                and not self._faulty(db, "restore", broken[1])
            )
            if fits:
                self._step(db, pid, start, "checkpointed", "locked", "")
                return self._put_back(db, pid, start, gpus)
            db.execute("UPDATE processes SET broken=1 WHERE pid=? AND start=?", (pid, start))
        raise DriverError(OUT_OF_MEMORY, f"no room to restore process {pid}")

    def _fits(self, db: sqlite3.Connection, pid: int, start: int, gpus: Sequence[str]) -> bool:
        sql = "SELECT device, SUM(bytes) FROM allocations WHERE pid=? AND start=? AND gpu IS NULL GROUP BY device"
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
            db.execute(f"UPDATE allocations SET gpu=? WHERE {mine}", (gpu, pid, start, device))  # noqa: S608 - our own words
        return size

    def unlock(self, pid: int, start: int) -> None:
        """Let a locked process go on."""
        with self._writing() as db:
            self._step(db, pid, start, "locked", "running", "")
