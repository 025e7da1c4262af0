"""How much one caller may ask of the service: calls and frames per second, and bytes. Generous:
they stop a loop that ran away, not a person.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from jupyter_gpushare.core.model.errors import GpuShareError

__all__ = [
    "GENEROUS",
    "TokenBucket",
    "TokenBuckets",
    "RateLimits",
    "ConnectionCounts",
    "RateLimited",
]

LINK_S: Final = 10
"""When a caller with too many links may try again."""
MOST_CALLERS: Final = 10_000
"""Callers whose bucket is remembered: those who were here last. A forgotten caller begins with a
full bucket.
"""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """0 calls or frames per second: as many as they like."""

    calls_per_s: float = 500.0
    calls_at_once: int = 20_000
    """A script that submits a night's work is no flood."""
    body_bytes: int = 1 << 20
    frames_per_s: float = 1_000.0
    """What one agent's link may say; a usage report is one frame."""
    frames_at_once: int = 20_000
    """An agent with thousands of leases says hello, and then a frame for each."""
    frame_bytes: int = 8 << 20
    """A hello with thousands of leases is the longest thing that an agent says."""
    links: int = 2_000
    """WebSockets that one caller may have open; 0: as many as they like."""


GENEROUS: Final = RateLimits()


class RateLimited(GpuShareError):
    """Raised when a caller has used up what they may ask for the moment. `after`: whole seconds
    until there is room again.
    """

    code, status_hint = "too-many-requests", 429

    def __init__(self, after: float) -> None:
        self.after = max(1, math.ceil(after))
        super().__init__(f"too many calls; ask again in {self.after} s")


class ConnectionCounts:
    """How many WebSockets each caller has open."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[Hashable] = Counter()

    def take(self, caller: Hashable) -> None:
        """Counts one that is being opened. Raises TooMany."""
        if self._most and self._open[caller] >= self._most:
            raise RateLimited(LINK_S)
        self._open[caller] += 1

    def give_back(self, caller: Hashable) -> None:
        self._open[caller] -= 1
        if self._open[caller] <= 0:
            del self._open[caller]


class TokenBucket:
    """Holds `size` tokens, filled at `rate` per second; full at first."""

    __slots__ = ("_at", "_left", "_rate", "_size")

    def __init__(self, rate: float, size: int, now: float) -> None:
        self._rate, self._size, self._left, self._at = rate, size, float(size), now

    def take(self, now: float) -> float:
        """Takes a token and gives 0; when there is none, gives the seconds until there is one."""
        if self._rate <= 0:
            return 0.0
        self._left = min(self._size, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._rate
        self._left -= 1
        return 0.0


class TokenBuckets:
    """One bucket per caller, for so many callers at most."""

    def __init__(
        self,
        rate: float,
        size: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        most: int = MOST_CALLERS,
    ) -> None:
        self._rate, self._size, self._clock, self._most = rate, size, clock, most
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()

    def take(self, caller: Hashable) -> None:
        """Counts one call. Raises TooMany."""
        now = self._clock()
        bucket = self._buckets.get(caller) or self._buckets.setdefault(
            caller, TokenBucket(self._rate, self._size, now)
        )
        self._buckets.move_to_end(caller)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        if (wait := bucket.take(now)) > 0:
            raise RateLimited(wait)
