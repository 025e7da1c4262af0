"""What runs in this kernel, and with which permissions of the agent: cells, nested cells, widget
messages, in any number of threads.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from ..connection import AgentConnection
from .interrupts import is_main_thread

__all__ = ["GatedWork", "WorkRegistry"]

HAS_MEMORY: Final = ("attached", "suspended", "reclaiming")


class GatedWork:
    """A cell or a widget message that runs, or waits to run."""

    def __init__(self, info: object = None, *, exempt: bool = False) -> None:
        """`info`: IPython's record of the cell; None for a widget message."""
        self.info = info
        self.exempt = exempt
        self.in_main_thread = is_main_thread()
        self.waiting = True
        """Whether the gate has yet to decide."""
        self.refusal: str | None = None
        self.permissions: set[int] = set()
        """Requests that the agent granted. Until they end, the agent takes the kernel for busy."""


class WorkRegistry:
    """The work of one kernel. Messages to the agent are sent under the lock, so that the end of a
    permission never precedes its beginning.
    """

    def __init__(self, connection: AgentConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._running: list[GatedWork] = []
        self._local = threading.local()
        """`cells`: the cells of this thread, a nested one after the one that runs it."""
        self._permissions_without_cell: set[int] = set()

    def begin_cell(self, info: object, *, exempt: bool) -> GatedWork:
        """A cell of this thread."""
        cell = GatedWork(info, exempt=exempt)
        self._cells().append(cell)
        with self._lock:
            self._running.append(cell)
        return cell

    def begin_message(self) -> GatedWork:
        """A widget message."""
        message = GatedWork()
        with self._lock:
            self._running.append(message)
        return message

    def begin_background(self) -> GatedWork:
        """Work that is to count although no cell runs: reported at once, never refused."""
        work = self.begin_message()
        work.waiting = False
        self.report_unannounced()
        return work

    def current_cell(self) -> GatedWork | None:
        """The innermost cell of this thread."""
        cells = self._cells()
        return cells[-1] if cells else None

    def end_cell(self, info: object) -> None:
        """The innermost cell of this thread, if it has this `info` (None: any)."""
        cells = self._cells()
        if not cells or (info is not None and cells[-1].info is not info):
            return
        self.end(cells.pop())
        with self._lock:
            if not self._running:
                self._send_end(self._permissions_without_cell)

    def end(self, work: GatedWork) -> None:
        """The work is done, or was refused."""
        with self._lock:
            if work in self._running:
                self._running.remove(work)
            self._send_end(work.permissions)

    def snapshot(self) -> list[GatedWork]:
        """What runs or waits now."""
        with self._lock:
            return list(self._running)

    @contextlib.contextmanager
    def requesting(self) -> Iterator[None]:
        """The cell of this thread requests a share or waits for one, and computes nothing: the
        agent must not take the kernel for busy.
        """
        cell = self.current_cell()
        if cell is None:
            yield
            return
        cell.waiting = True
        try:
            yield
        finally:
            cell.waiting = False
            self.report_unannounced()

    def grant(self, work: GatedWork | None, n: int) -> None:
        """The agent granted request `n`; None: outside of cells, as in a thread of the user."""
        with self._lock:
            (self._permissions_without_cell if work is None else work.permissions).add(n)

    def resend(self) -> None:
        """Report what runs to an agent that has restarted."""
        with self._lock:
            permissions = set(self._permissions_without_cell)
            permissions.update(*(work.permissions for work in self._running))
            for n in sorted(permissions):
                self._send_running(n, needs_memory=False)

    def report_unannounced(self) -> None:
        """Report cells that began without asking: the GPU was granted meanwhile, or the agent was
        not connected. A cell that began with `%gpu` may have suspended the kernel itself, and must
        not restore it.
        """
        state = self._connection.kernel["state"]
        if state not in HAS_MEMORY:
            return
        with self._lock:
            for cell in self._running:
                if cell.permissions or cell.waiting or cell.refusal is not None:
                    continue
                if cell.exempt and state != "attached":
                    continue
                n = self._connection.next_number()
                if self._send_running(n, needs_memory=not cell.exempt):
                    cell.permissions.add(n)

    def _send_running(self, n: int, *, needs_memory: bool) -> bool:
        start = {"type": "cell_start", "n": n, "exempt": False, "running": True}
        return self._connection.send({**start, "wait": needs_memory})

    def _send_end(self, permissions: set[int]) -> None:
        for n in sorted(permissions):
            self._connection.send({"type": "cell_end", "n": n})
        permissions.clear()

    def _cells(self) -> list[GatedWork]:
        cells: list[GatedWork] | None = getattr(self._local, "cells", None)
        if cells is None:
            cells = self._local.cells = []
        return cells
