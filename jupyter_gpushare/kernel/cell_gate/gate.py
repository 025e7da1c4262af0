"""The gate of one kernel: hooks of IPython, and when a cell has to ask.

Two hooks make the gate: `pre_run_cell` can block but cannot stop a cell; an AST transformer can
stop a cell but does not receive its text. A kernel that has requested no GPU never asks the agent.
"""

from __future__ import annotations

import ast
import math
import signal
import threading
from collections.abc import Callable
from typing import Any

from ..connection import AgentConnection
from .agent_wait import AGENT_WAIT_S
from .errors import CellNotRun
from .interrupts import is_main_thread, raise_on_interrupt
from .wait import GateProgress, GateVerdict, GateWait
from .wait_text import HAS_LEASE, refusal_after_interrupt
from .work import GatedWork, WorkRegistry

__all__ = ["CellGate", "is_exempt"]


def is_exempt(cell: str) -> bool:
    """Whether a cell begins with `%gpu`, which works without a GPU and shows why others wait."""
    return cell.lstrip().split(maxsplit=1)[:1] in (["%gpu"], ["%%gpu"])


class CellGate:
    """One per kernel. Cells of subshells and widget messages run in threads of their own; each has
    its own record, so that its wait, its refusal and its end concern no other.
    """

    def __init__(
        self,
        connection: AgentConnection,
        progress: Callable[[], GateProgress],
        *,
        wants_gpu: bool = False,
        agent_wait_s: float = AGENT_WAIT_S,
    ) -> None:
        self.work = WorkRegistry(connection)
        self.stopped_waiting = False
        """After an interrupted wait, later cells run without a GPU until it is granted."""
        self._connection, self._progress = connection, progress
        self._wants_gpu, self._agent_wait_s = wants_gpu, agent_wait_s
        self._reclaim_message: str | None = None
        self._waits: set[GateWait] = set()

    # ---- hooks of IPython

    def before_cell(self, info: Any) -> None:
        """`pre_run_cell`."""
        cell = self.work.begin_cell(info, exempt=is_exempt(info.raw_cell or ""))
        if cell.in_main_thread:
            self._reclaim_message = None
        raise_on_interrupt(self._take_reclaim_message)
        if not cell.exempt and self.is_needed():
            verdict = self.request()
            cell.refusal = None if verdict.allowed else verdict.message
        cell.waiting = False
        if not cell.exempt:
            self.work.report_unannounced()  # the GPU may have been granted in the last moment

    def after_cell(self, result: Any = None) -> None:
        """`post_run_cell`: also after a cell that failed or was refused. IPython calls it for empty
        cells too, although these have no `pre_run_cell`.
        """
        self.work.end_cell(getattr(result, "info", None))

    def visit(self, node: ast.AST) -> ast.AST:
        """The AST transformer: raises the refusal of the cell that is about to run."""
        cell = self.work.current_cell()
        if cell is not None and cell.refusal is not None:
            raise CellNotRun(cell.refusal)
        return node

    # ---- requests

    def is_needed(self) -> bool:
        """Whether this kernel has requested a GPU, as far as it knows."""
        if self._connection.address is None:
            return False
        if not self._connection.ever_welcomed:
            return self._wants_gpu
        return self._state() not in ("detached", "lost")

    def is_cell_running(self) -> bool:
        """Whether a cell runs or waits."""
        return any(work.info is not None for work in self.work.snapshot())

    def has_permission(self) -> bool:
        """Whether something runs with the agent's permission: then the GPU memory is restored."""
        return any(work.permissions for work in self.work.snapshot())

    def request(self, *, explicit: bool = False, timeout_s: float | None = None) -> GateVerdict:
        """Wait for permission for the cell of this thread; it ends with the cell.

        `explicit`: the person asked to wait (`%gpu wait`). `timeout_s`: seconds, None: no limit.
        """
        if explicit:
            self.stopped_waiting = False
        return self._wait(self.work.current_cell(), explicit=explicit, timeout_s=timeout_s)

    def begin_message(self) -> GatedWork:
        """Wait for permission for a widget message, which cannot be refused. `work.end` ends it."""
        message = self.work.begin_message()
        self._wait(message)
        message.waiting = False
        return message

    def _wait(
        self, work: GatedWork | None, *, explicit: bool = False, timeout_s: float | None = None
    ) -> GateVerdict:
        progress = self._progress()
        wait = GateWait(
            self._connection,
            progress,
            explicit=explicit,
            timeout_s=timeout_s,
            agent_deadline=lambda started: self._agent_deadline(started, explicit),
        )
        self._waits.add(wait)
        was_waiting = work is not None and work.waiting
        if work is not None:
            work.waiting = True
        try:
            verdict = wait.run()
            if verdict.n is not None:
                self.work.grant(work, verdict.n)
                self.stopped_waiting = self.stopped_waiting and self._state() == "pending"
            return verdict
        except KeyboardInterrupt:
            return self._refuse_after_interrupt(progress)
        finally:
            self._waits.discard(wait)
            if work is not None:
                work.waiting = was_waiting

    def interrupt_waits(self) -> None:
        """An interrupt while the main thread is idle: end the waits of all other threads, which
        receive no signal.
        """
        for wait in list(self._waits):
            wait.interrupt()

    def _agent_deadline(self, started: float, explicit: bool) -> float:
        """Until when to wait for an agent that is not connected (monotonic seconds). Kernels with a
        lease wait a short time, because only the agent can reclaim memory that others borrowed.
        """
        if explicit and not self._connection.is_refused:
            return math.inf
        if self.stopped_waiting or self._connection.is_refused:
            return 0.0
        if self._state() in ("pending", "granted", "suspended"):
            return math.inf
        lost_at = self._connection.lost_at if self._connection.ever_welcomed else started
        return lost_at + self._agent_wait_s

    def _refuse_after_interrupt(self, progress: GateProgress) -> GateVerdict:
        progress.done("")
        if is_main_thread() and self._reclaim_message is not None:
            return GateVerdict(False, self._reclaim_message)
        self.stopped_waiting = True
        has_lease = self._state() in HAS_LEASE
        agent_lost = not self._connection.welcomed.is_set()
        text = refusal_after_interrupt(has_lease=has_lease, agent_lost=agent_lost)
        return GateVerdict(False, text, is_interrupted=True)

    # ---- the end of a cell whose kernel is about to restart

    def end_cell(self, message: str) -> None:
        """Interrupt the cell of the main thread; the interrupt raises `GpuReclaimed(message)`."""
        if any(work.in_main_thread and work.info is not None for work in self.work.snapshot()):
            self._reclaim_message = message
            # A real signal also ends a sleep or a read in the main thread.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _take_reclaim_message(self) -> str | None:
        message, self._reclaim_message = self._reclaim_message, None
        return message

    def _state(self) -> str:
        return str(self._connection.kernel["state"])
