"""Waits until a request is granted: a first share at the cell gate, a changed share until the new
workload replaces the old one.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Final

from .cell_gate.interrupts import interruptible, is_main_thread
from .cell_gate.wait import SHOW_AFTER_S, TICK_S
from .cell_gate.wait_text import timeout_text
from .display.output import CellProgress
from .display.text import change_text, share_text
from .kernel_body import Json
from .rpc import GpuError, call, kernel_in, no_agent_text, send_request
from .session import KernelSession, current

__all__ = ["INTERRUPTED", "request_share", "wait_for_grant"]

INTERRUPTED: Final = "interrupted"
"""The code of the error after an interrupted wait."""
REFRESH_S: Final = 5.0
"""How long to wait for the agent's update before the Jupyter server is asked for the state."""


def request_share(body: Json, *, wait: bool) -> Json:
    """Send a request, and wait until it is granted. Returns the server's reply."""
    session = current()
    with session.gate.work.requesting():
        reply = send_request(body)
        if wait:
            _wait(session, kernel_in(session, reply), None)
    return reply


def wait_for_grant(kernel: Json, timeout_s: float | None) -> None:
    """Block until the request in `kernel` (the server's status) is granted.

    Raises:
        GpuError: the timeout has passed, the wait was stopped, or a change was withdrawn.
    """
    session = current()
    if session.connection.address is None:
        raise GpuError(no_agent_text(session.connection), "conflict")
    with session.gate.work.requesting():
        _wait(session, kernel, timeout_s)


def _wait(session: KernelSession, kernel: Json, timeout_s: float | None) -> None:
    started = time.monotonic()
    if kernel.get("pending_change") is not None:
        _ChangeWait(session, kernel, timeout_s).run()
    if timeout_s is not None:
        timeout_s = max(0.0, timeout_s - (time.monotonic() - started))
    verdict = session.gate.request(explicit=True, timeout_s=timeout_s)
    if not verdict.allowed:
        raise GpuError(verdict.message, INTERRUPTED if verdict.is_interrupted else "timeout")


class _ChangeWait:
    """Meanwhile the notebook keeps its current share, so the gate would allow its cells."""

    def __init__(self, session: KernelSession, kernel: Json, timeout_s: float | None) -> None:
        self._session = session
        self._target = kernel["pending_change"]["workload"]
        self._kernel = kernel
        self._started = self._updated = time.monotonic()
        self._granted_at = math.inf
        self._deadline = math.inf if timeout_s is None else self._started + timeout_s
        self._changed = threading.Event()
        self._progress = CellProgress(session.output, can_interrupt=is_main_thread())

    def run(self) -> None:
        """Block until the change is granted."""
        callbacks = self._session.change_callbacks
        callbacks.append(self._changed.set)
        try:
            with interruptible():
                self._wait()
            self._progress.done(f"Granted: {share_text(self._kernel['request'])}.")
        except KeyboardInterrupt:
            self._progress.done("")
            raise GpuError(
                "the wait was stopped. The request stays pending, and this notebook keeps its"
                " current share until then; `%gpu cancel` cancels it.",
                INTERRUPTED,
            ) from None
        finally:
            callbacks.remove(self._changed.set)

    def _wait(self) -> None:
        while not self._is_granted():
            waited, now = time.monotonic() - self._started, time.monotonic()
            change = self._kernel.get("pending_change") or {}
            if self._target not in (change.get("workload"), self._kernel["workload"]):
                self._progress.done("")
                raise GpuError("the request was withdrawn; the share is unchanged", "conflict")
            if now >= self._deadline:
                self._progress.done("")
                reason = (change.get("reason") or {}).get("message", "")
                raise GpuError(timeout_text(waited, reason), "timeout")
            if change and waited >= SHOW_AFTER_S:
                self._progress.show(change_text(self._kernel), waited)
            self._changed.wait(min(TICK_S, self._deadline - now))
            self._changed.clear()
            self._refresh()

    def _is_granted(self) -> bool:
        """Whether the kernel is on its node with the new workload. While it is `granted`, the agent
        may still have the old lease and allow cells with it, but not for long.
        """
        if self._kernel["workload"] != self._target:
            return False
        self._granted_at = min(self._granted_at, time.monotonic())
        is_starting = self._kernel["state"] in ("pending", "granted")
        return not is_starting or time.monotonic() >= self._granted_at + REFRESH_S

    def _refresh(self) -> None:
        """The agent's update, once it knows of the change; until then, the server's state."""
        seen, now = self._session.connection.kernel, time.monotonic()
        change = seen.get("pending_change")
        if seen["workload"] == self._target or (change and change["workload"] == self._target):
            self._kernel, self._updated = seen, now
        elif now - self._updated >= REFRESH_S:
            self._kernel, self._updated = kernel_in(self._session, call("why")), now
