"""What the agent does: attach kernels to GPUs, read the whole node, switch faults on."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from .model import KernelReading, Reading, now_ms
from .processes import ProcessCalls

__all__ = ["AgentCalls"]


class AgentCalls(ProcessCalls):
    """Calls of the agent."""

    def attach(self, kernel: str, gpus: Sequence[tuple[str, int]]) -> None:
        """Sets (GPU, cap in bytes) per device ordinal; an empty sequence detaches the kernel."""
        self.attach_all({kernel: gpus})

    def attach_all(self, kernels: Mapping[str, Sequence[tuple[str, int]]]) -> None:
        """The same for several kernels in one transaction, so that caps never overlap."""
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
        """(GPU, cap) per device ordinal, by kernel."""
        found: dict[str, list[tuple[str, int]]] = {}
        for kernel, gpu, cap in self._rows(
            "SELECT kernel, gpu, cap FROM attachments ORDER BY kernel, device"
        ):
            found.setdefault(kernel, []).append((gpu, cap))
        return found

    def read_all(self) -> Reading:
        """The whole node; memory of exited processes is freed first."""
        processes = self._rows("SELECT pid, start FROM processes")
        if any(self._numbers.has_ended(pid, start) for pid, start in processes):
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

    def fault(self, name: str, argument: str = "*", *, on: bool = True) -> None:
        """Switches a fault on or off: `unsupported`, `lock`, `checkpoint`, `restore`, `lingers`
        (argument: a kernel or `*`), `lag` (ms).
        """
        with self._writing() as db:
            db.execute("DELETE FROM faults WHERE name=? AND argument=?", (name, argument))
            if on:
                db.execute("INSERT INTO faults VALUES(?,?)", (name, argument))
