"""Which call of the driver's library is under way, and since when: a driver that hangs can only be
named from beside it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

__all__ = ["CALLS", "CallTracker", "PendingCall", "hangs"]

T = TypeVar("T")
SLOW_S: Final = 5.0
"""A call that takes so long is named; a driver without persistence mode takes seconds to wake its
GPUs.
"""


class PendingCall(NamedTuple):
    """A call that has not returned: its name, for how long (s), and since when (wall clock, s)."""

    name: str
    seconds: float
    since: float


class CallTracker:
    """Of one library of this process. From any thread."""

    def __init__(self) -> None:
        self._now: dict[int, tuple[str, float]] = {}

    def make(self, name: str, call: Callable[..., T], *args: Any) -> T:
        """The call, noted while it is under way."""
        me = threading.get_ident()
        self._now[me] = name, time.monotonic()
        try:
            return call(*args)
        finally:
            del self._now[me]

    def longest(self) -> PendingCall | None:
        """The one that has been under way for the longest time."""
        now = list(self._now.values())
        if not now:
            return None
        name, begun = min(now, key=lambda one: one[1])
        seconds = time.monotonic() - begun
        return PendingCall(name, seconds, time.time() - seconds)


CALLS: Final = CallTracker()
"""NVML is loaded once in a process."""


def hangs(calls: CallTracker = CALLS, *, slow_s: float = SLOW_S) -> str:
    """In one sentence what hangs, and since when; "": nothing does. The same words as long as it
    lasts.
    """
    call = calls.longest()
    if call is None or call.seconds < slow_s:
        return ""
    since = time.strftime("%H:%M:%S", time.localtime(call.since))
    return f"the NVIDIA driver does not answer: its call {call.name} has not returned since {since}"
