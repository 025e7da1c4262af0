"""Tracks calls into the driver's library, so that another thread can report one that hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

__all__ = ["CALLS", "CallTracker", "PendingCall", "hang_problem"]

T = TypeVar("T")
SLOW_S: Final = 5.0
"""Calls are reported after this time. A driver without persistence mode takes seconds to wake its
GPUs.
"""


class PendingCall(NamedTuple):
    """A call that has not returned: its name, its duration (s) and its start (wall clock, s)."""

    name: str
    seconds: float
    since: float


class CallTracker:
    """The pending calls of one library. Thread-safe."""

    def __init__(self) -> None:
        self._pending: dict[int, tuple[str, float]] = {}

    def track(self, name: str, call: Callable[..., T], *args: Any) -> T:
        """Make the call; it is listed as pending until it returns."""
        thread = threading.get_ident()
        self._pending[thread] = name, time.monotonic()
        try:
            return call(*args)
        finally:
            del self._pending[thread]

    def longest(self) -> PendingCall | None:
        """The call that has been pending for the longest time."""
        pending = list(self._pending.values())
        if not pending:
            return None
        name, begun = min(pending, key=lambda call: call[1])
        seconds = time.monotonic() - begun
        return PendingCall(name, seconds, time.time() - seconds)


CALLS: Final = CallTracker()
"""The driver's library is loaded once per process."""


def hang_problem(calls: CallTracker = CALLS, *, slow_s: float = SLOW_S) -> str:
    """One sentence about the call that hangs; "": none. The text does not change while it hangs."""
    call = calls.longest()
    if call is None or call.seconds < slow_s:
        return ""
    since = time.strftime("%H:%M:%S", time.localtime(call.since))
    return f"the GPU driver does not answer: its call {call.name} has not returned since {since}"
