"""The cell gate of a kernel behind the proxy: which requests wait, in which order, and what is
reported to the agent.

Each shell of the kernel (the main one and every subshell) has its own queue: a request waits only
for those before it in the same shell. What waits behind another has not been asked for yet.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from ..kernel.cell_gate.wait_text import (
    HAS_LEASE,
    agent_lost_text,
    end_of_wait_text,
    wait_text,
    without_agent_text,
)
from ..kernel.kernel_body import Json
from . import texts
from .agent_link import ProxyAgentLink
from .held_cell import SHOW_AFTER_S, HeldCell, ProxiedCellOutput
from .messages import Frames, Reply, Request
from .subshells import Subshells
from .visible_gpus import VisibleGpus

__all__ = ["ProxiedCellGate"]

HAS_MEMORY: Final = ("attached", "suspended", "reclaiming")
TICK_S: Final = 1.0
MAX_KEPT_MESSAGES: Final = 20


class ProxiedCellGate:
    """One per kernel; called by the event loop only, never blocks."""

    def __init__(
        self,
        link: ProxyAgentLink,
        output: ProxiedCellOutput,
        forward: Callable[[Frames], None],
        visible: VisibleGpus,
        subshells: Subshells,
        relaunch: Callable[[str], None],
        *,
        wants_gpu: bool,
        agent_wait_s: float,
    ) -> None:
        """`forward`: sends a request to the kernel. `relaunch`: requests another process of the
        kernel that sees these GPUs; `relaunched` reports it. `wants_gpu`: the kernel had requested
        a GPU when it was launched. `agent_wait_s`: how long cells wait for an agent that is away.
        """
        self._link, self._output, self._forward = link, output, forward
        self._visible, self._relaunch = visible, relaunch
        self._subshells = subshells
        self._is_fresh, self._is_relaunching = True, False
        """The process has executed nothing yet; another one replaces it."""
        self._wants_gpu, self._agent_wait_s = wants_gpu, agent_wait_s
        self._queues: dict[str | None, deque[HeldCell]] = {}
        self._running: dict[str, HeldCell] = {}
        """Cells that the kernel has received, by the id of their request."""
        self._ended_early: set[str] = set()
        """Their clients received a reply already."""
        self._stopped_waiting = False
        self._kept: deque[str] = deque(maxlen=MAX_KEPT_MESSAGES)
        """Messages that arrived between two cells."""

    # ---- messages of clients and of the kernel

    def add(self, request: Request, frames: Frames) -> None:
        """An `execute_request` has arrived."""
        if request.subshell not in self._subshells:
            self._refuse_cell(HeldCell(request, frames), texts.no_subshell(str(request.subshell)))
            return
        queue = self._queues.setdefault(request.subshell, deque())
        queue.append(HeldCell(request, frames))
        if len(queue) == 1:
            self._advance(request.subshell)

    def on_reply(self, reply: Reply) -> bool:
        """The kernel has executed a cell; False: its client must not receive the reply."""
        if reply.execution_count is not None:
            self._output.execution_count = reply.execution_count
        cell = self._running.pop(reply.parent_id, None)
        if cell is None:
            return reply.parent_id not in self._ended_early
        self._end_permission(cell)
        if reply.status == "error" and cell.stops_on_error:
            self._abort(cell.request.subshell)
        return True

    def subshell_ended(self, subshell: str) -> None:
        """A client has deleted it: what ran there has ended, with or without a reply, and what
        waits cannot run.
        """
        for cell in self._queues.pop(subshell, ()):
            if cell.n is not None:
                self._link.withdraw(cell.n)
            self._refuse_cell(cell, texts.no_subshell(subshell))
        for msg_id, cell in list(self._running.items()):
            if cell.request.subshell == subshell:
                del self._running[msg_id]
                self._end_permission(cell)

    def interrupt(self) -> bool:
        """End all waits. Returns whether the kernel must not be interrupted: cells waited, and
        none is being executed.
        """
        waiting = [shell for shell, queue in self._queues.items() if queue]
        for shell in waiting:
            self._stop_waiting(shell)
        return bool(waiting) and not self._running

    def shut_down(self) -> None:
        """The kernel is about to end: every waiting request gets its reply."""
        for shell, queue in list(self._queues.items()):
            if queue:
                self._refuse(shell, texts.SHUTDOWN, withdraw=True)

    # ---- messages of the agent

    def on_agent(self, message: Json) -> None:
        """One message of the agent."""
        kind = message.get("type")
        if kind == "kernel_welcome":
            self._resend()
            self._advance_all()
        elif kind == "kernel":
            self._visible.shared(message.get("devices", []))
            self._report_unannounced()
        elif kind == "away":
            self._forget_requests()
        elif kind in ("cell_go", "cell_wait", "cell_refused"):
            self._on_decision(message)
        elif kind == "notice":
            self._on_notice(message)
        elif kind in ("notice_over", "told"):
            self._show_or_keep(str(message.get("message", "")))
        elif kind == "end_cell":
            self._end_running(message["message"])
        elif kind == "drop_caches":
            self._link.caches_dropped()

    def _on_decision(self, message: Json) -> None:
        for shell, queue in self._queues.items():
            if queue and queue[0].asked and queue[0].n == message["n"]:
                self._decide(shell, queue[0], message)
                return

    def _decide(self, shell: str | None, cell: HeldCell, message: Json) -> None:
        kind = message["type"]
        if kind == "cell_wait":
            cell.sentence = wait_text(message["message"], message, dict(self._link.kernel))
            self._show_wait(cell)
            return
        self._link.decided(message["n"])
        if kind == "cell_refused":
            cell.n, cell.asked = None, False
            self._refuse(shell, str(message["message"]))
            return
        self._stopped_waiting = self._stopped_waiting and self._link.state == "pending"
        if not message.get("without_gpu") and self._is_fresh and self._visible.must_restart():
            self._begin_relaunch(cell)
            return
        if not message.get("without_gpu") and self._visible.mention():
            cell.say(self._output, texts.RESTART_TO_ATTACH)
        else:
            cell.end_wait(self._output, self._text_when_allowed(cell, message))
        self._release(shell)
        self._advance(shell)

    def _begin_relaunch(self, cell: HeldCell) -> None:
        """The process does not see the GPU, and has no state that would be lost."""
        if cell.n is not None:
            self._link.end(cell.n)
        cell.n, cell.asked = None, False
        self._is_relaunching = True
        self._relaunch(self._visible.wanted)

    def relaunched(self, visible: str | None) -> None:
        """Another process of the kernel runs, and sees these GPUs."""
        self._visible.launched(visible)
        for subshell in self._subshells.clear():
            self.subshell_ended(subshell)
        self._is_fresh, self._is_relaunching = True, False
        self._advance_all()

    def _text_when_allowed(self, cell: HeldCell, message: Json) -> str:
        if message.get("message"):
            return str(message["message"])
        without_gpu = bool(message.get("without_gpu", False))
        return end_of_wait_text(self._link.state, cell.waited_s(), without_gpu=without_gpu)

    # ---- time

    def tick(self) -> None:
        """Update the texts, and check the deadline of an agent that is away."""
        for shell, queue in list(self._queues.items()):
            if queue and not queue[0].asked:
                self._advance(shell)
            if queue:
                self._show_wait(queue[0])

    def next_tick_s(self) -> float:
        """Seconds until `tick` has work."""
        heads = [queue[0] for queue in self._queues.values() if queue]
        if not heads:
            return math.inf
        return TICK_S if all(cell.is_shown for cell in heads) else SHOW_AFTER_S

    # ---- the queue of a shell

    def _advance_all(self) -> None:
        for shell in list(self._queues):
            self._advance(shell)

    def _advance(self, shell: str | None) -> None:
        """Forward what may run, until a cell has to wait."""
        queue = self._queues[shell]
        while queue and not queue[0].asked and not self._is_relaunching:
            cell = queue[0]
            if not cell.exempt and self._is_needed() and not self._is_agent_overdue(cell):
                if self._link.is_connected:
                    cell.n = self._link.ask()
                    cell.asked = cell.n is not None
                return
            self._release(shell)
        if not queue:
            del self._queues[shell]

    def _is_needed(self) -> bool:
        """Whether this kernel has requested a GPU, as far as the proxy knows."""
        if not self._link.has_address:
            return False
        if not self._link.ever_connected:
            return self._wants_gpu
        return self._link.state not in ("detached", "lost")

    def _is_agent_overdue(self, cell: HeldCell) -> bool:
        """Whether the cell runs although the agent is away."""
        if self._link.is_connected or time.monotonic() < self._agent_deadline(cell):
            return False
        text = without_agent_text(self._link.state, self._link.problem(), cell.waited_s())
        cell.end_wait(self._output, text)
        return True

    def _agent_deadline(self, cell: HeldCell) -> float:
        if self._stopped_waiting:
            return 0.0
        if self._link.state in ("pending", "granted", "suspended"):
            return math.inf
        lost_at = self._link.lost_at if self._link.ever_connected else cell.since
        return lost_at + self._agent_wait_s

    def _show_wait(self, cell: HeldCell) -> None:
        if self._link.is_connected:
            sentence = cell.sentence
        else:
            left = self._agent_deadline(cell) - time.monotonic()
            sentence = agent_lost_text(left, self._link.problem())
        if sentence:
            hint = f"({cell.waited_s():.0f} s; interrupt the kernel to stop waiting)"
            cell.show_wait(self._output, f"{sentence} {hint}")

    def _release(self, shell: str | None) -> None:
        """The first cell of the queue runs."""
        cell = self._queues[shell].popleft()
        self._is_fresh = False
        self._running[cell.request.msg_id] = cell
        while self._kept and not cell.silent:
            self._output.show(cell.request, self._kept.popleft())
        self._forward(cell.frames)
        cell.frames = ()
        if not cell.exempt:
            self._report_unannounced()

    def _refuse(self, shell: str | None, text: str, *, withdraw: bool = False) -> None:
        """The first cell of the queue does not run, nor those that its client sent with it."""
        cell = self._queues[shell].popleft()
        if withdraw and cell.n is not None:
            self._link.withdraw(cell.n)
        self._refuse_cell(cell, text)
        if cell.stops_on_error:
            self._abort(shell)
        else:
            self._advance(shell)

    def _refuse_cell(self, cell: HeldCell, text: str) -> None:
        cell.show_busy(self._output)
        cell.end_wait(self._output, "")
        self._output.refuse(cell.request, text)

    def _stop_waiting(self, shell: str | None) -> None:
        agent_lost = not self._link.is_connected and self._link.state in HAS_LEASE
        self._stopped_waiting = True
        self._refuse(shell, texts.refusal_after_interrupt(agent_lost=agent_lost), withdraw=True)

    def _abort(self, shell: str | None) -> None:
        """A cell failed: those that wait in the same shell do not run."""
        for cell in self._queues.pop(shell, ()):
            if cell.n is not None:
                self._link.end(cell.n)
            cell.show_busy(self._output)
            cell.end_wait(self._output, "")
            self._output.abort(cell.request)

    # ---- what the agent knows of running cells

    def _end_permission(self, cell: HeldCell) -> None:
        if cell.n is not None:
            self._link.end(cell.n)

    def _resend(self) -> None:
        """Report what runs to an agent that has restarted."""
        for cell in self._running.values():
            if cell.n is not None:
                self._link.report_running(cell.n, needs_memory=False)
        self._report_unannounced()

    def _report_unannounced(self) -> None:
        """Report cells that began without asking: the GPU was granted meanwhile, or the agent was
        not connected.
        """
        if self._link.state not in HAS_MEMORY:
            return
        for cell in self._running.values():
            if cell.n is None and not cell.exempt:
                cell.n = self._link.report_running(None, needs_memory=True)

    def _forget_requests(self) -> None:
        for queue in self._queues.values():
            if queue and queue[0].asked:
                cell = queue[0]
                if cell.n is not None:
                    self._link.decided(cell.n)
                cell.n, cell.asked, cell.sentence = None, False, ""

    # ---- messages under a cell

    def _on_notice(self, message: Json) -> None:
        text = f"⚠ {message['message']}\n{texts.NOTICE_ADVICE}"
        cell = self._last_cell()
        if cell is not None:
            self._output.warn(cell.request, text)
        else:
            self._kept.append(text)

    def _show_or_keep(self, text: str) -> None:
        cell = self._last_cell()
        if text and cell is not None:
            self._output.show(cell.request, text)
        elif text:
            self._kept.append(text)

    def _last_cell(self) -> HeldCell | None:
        """The cell that began last, of those that run."""
        shown = [cell for cell in self._running.values() if not cell.silent]
        return shown[-1] if shown else None

    def _end_running(self, text: str) -> None:
        """The kernel is about to be restarted: its cells end with this message. The kernel cannot
        be made to raise it, so that its own replies are dropped.
        """
        for msg_id, cell in list(self._running.items()):
            self._ended_early.add(msg_id)
            del self._running[msg_id]
            self._end_permission(cell)
            self._output.reclaim(cell.request, text)
