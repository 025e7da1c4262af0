"""One wait at the gate: from the request to the agent's decision, through losses of the agent."""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from ..connection import AgentConnection, Replies
from ..kernel_body import Json
from .interrupts import interruptible
from .wait_text import (
    agent_lost_text,
    end_of_wait_text,
    timeout_text,
    wait_text,
    without_agent_text,
)

__all__ = ["GateProgress", "GateVerdict", "GateWait"]

SHOW_AFTER_S: Final = 0.25
"""A shorter wait shows nothing."""
TICK_S: Final = 1.0
RESEND_S: Final = 0.02


class GateProgress(Protocol):
    """Shows the wait under the cell that waits."""

    def show(self, message: str, waited_s: float) -> None: ...
    def done(self, message: str) -> None: ...


class GateVerdict(NamedTuple):
    """Whether the work may run. A named tuple, because a data class costs time at kernel start.

    `n`: number of the request that the agent granted, to be ended with the work; None: the agent
    was not asked.
    """

    allowed: bool
    message: str = ""
    n: int | None = None
    is_interrupted: bool = False


class GateWait:
    """One request for permission. `run` blocks; each wait has its own number, so that several
    threads of one kernel can wait at once.
    """

    def __init__(
        self,
        connection: AgentConnection,
        progress: GateProgress,
        *,
        explicit: bool,
        timeout_s: float | None,
        agent_deadline: Callable[[float], float],
    ) -> None:
        """`explicit`: the person asked to wait. `agent_deadline`: from the start of this wait,
        until when to wait for an agent that is not connected (both monotonic seconds).
        """
        self._connection, self._progress, self._explicit = connection, progress, explicit
        self._started = time.monotonic()
        self._deadline = math.inf if timeout_s is None else self._started + timeout_s
        self._agent_deadline = agent_deadline
        self._sentence = ""
        self._shown = False
        self._interrupted = False
        self._replies: Replies | None = None

    def interrupt(self) -> None:
        """End this wait as an interrupt of its thread would; called in another thread."""
        self._interrupted = True
        if self._replies is not None:
            self._replies.put({"type": "tick"})

    def run(self) -> GateVerdict:
        """The decision. Raises KeyboardInterrupt after withdrawing the request."""
        with interruptible():
            while True:
                if not self._wait_for_agent():
                    return GateVerdict(True)
                verdict = self._request_once()
                if verdict is not None:
                    return verdict

    def _waited_s(self) -> float:
        return time.monotonic() - self._started

    def _wait_for_agent(self) -> bool:
        """Whether the agent is connected; False: its deadline has passed."""
        connection = self._connection
        while not connection.welcomed.is_set():
            self._check_interrupted()
            until, now = self._agent_deadline(self._started), time.monotonic()
            if now >= min(until, self._deadline):
                text = without_agent_text(
                    connection.kernel["state"], connection.problem(), now - self._started
                )
                self._progress.done(text)
                return False
            connection.welcomed.wait(min(SHOW_AFTER_S, until - now))
            if self._waited_s() > SHOW_AFTER_S:
                text = agent_lost_text(until - time.monotonic(), connection.problem())
                self._progress.show(text, self._waited_s())
        return True

    def _request_once(self) -> GateVerdict | None:
        """One request over one connection; None: the connection was lost before the decision."""
        with self._connection.open_request() as (n, self._replies):
            request = {
                "type": "cell_start",
                "n": n,
                "exempt": False,
                "wait": self._explicit,
                "running": False,
            }
            try:
                if not self._connection.send(request):
                    time.sleep(RESEND_S)  # the loss is noticed by another thread
                    return None
                return self._receive_decision(n, self._replies)
            except KeyboardInterrupt:
                self._withdraw(n)
                raise

    def _receive_decision(self, n: int, replies: Replies) -> GateVerdict | None:
        while True:
            message = self._next_message(replies)
            self._check_interrupted()
            kind = message["type"]
            if kind == "away":
                return None
            if kind == "cell_go":
                self._progress.done(self._text_when_allowed(message))
                return GateVerdict(True, n=n)
            if kind == "cell_refused":
                self._progress.done("")
                return GateVerdict(False, message["message"])
            if time.monotonic() >= self._deadline:
                self._withdraw(n)
                self._progress.done("")
                return GateVerdict(False, timeout_text(self._waited_s(), self._sentence))
            self._show(message)

    def _next_message(self, replies: Replies) -> Json:
        """The next reply, or a tick by which the wait updates its text and checks its deadline."""
        timeout = TICK_S if self._shown else SHOW_AFTER_S
        left = max(0.0, self._deadline - time.monotonic())
        try:
            return replies.get(timeout=min(timeout, left))
        except queue.Empty:
            return {"type": "tick"}

    def _show(self, message: Json) -> None:
        self._sentence = message.get("message", self._sentence)
        if self._sentence and self._waited_s() >= SHOW_AFTER_S:
            self._shown = True
            text = wait_text(self._sentence, message, self._connection.kernel)
            self._progress.show(text, self._waited_s())

    def _text_when_allowed(self, message: Json) -> str:
        if message.get("message"):
            return str(message["message"])
        if not self._shown:
            return ""
        return end_of_wait_text(
            self._connection.kernel["state"],
            self._waited_s(),
            without_gpu=message.get("without_gpu", False),
        )

    def _check_interrupted(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt

    def _withdraw(self, n: int) -> None:
        self._connection.send({"type": "cell_cancel", "n": n})
