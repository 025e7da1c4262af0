"""Rate limits per caller: calls and frames per second, and bytes. They are generous, to stop
runaway loops only.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from jupyter_gpushare.core.model.errors import GpuShareError

__all__ = [
    "GENEROUS",
    "TokenBucket",
    "TokenBuckets",
    "RateLimits",
    "CallTurns",
    "ConnectionCounts",
    "RateLimited",
]

LINK_S: Final = 10
"""`Retry-After` for a caller with too many connections."""
MOST_CALLERS: Final = 10_000
"""Buckets in memory, by last use. A removed bucket starts full again."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Limits per caller; 0: unlimited."""

    calls_per_s: float = 500.0
    calls_at_once: int = 20_000
    """Burst: a script may submit many workloads at once."""
    body_bytes: int = 1 << 20
    frames_per_s: float = 1_000.0
    """Frames of one agent's connection; a usage report is one frame."""
    frames_at_once: int = 20_000
    """Burst: an agent with thousands of leases sends a frame for each at the start."""
    frame_bytes: int = 8 << 20
    """A hello with thousands of leases is the longest frame."""
    links: int = 2_000
    """Open WebSockets."""
    pods_per_user: int = 20_000
    """Pods of one user that are pending or run without a GPU."""
    pods_per_workload: int = 1_000
    pods_without_gpu: int = 500
    """Pods of one user that ask for no GPU."""
    output_per_user: int = 256 << 20
    """Characters of stored output of one user's commands."""


GENEROUS: Final = RateLimits()


class RateLimited(GpuShareError):
    """Raised when a caller exceeds a rate limit. `after` is the time to wait in whole seconds."""

    code, status_hint = "too-many-requests", 429

    def __init__(self, after: float) -> None:
        self.after = max(1, math.ceil(after))
        super().__init__(f"too many calls; retry in {self.after} s")


class CallTurns:
    """At most one call of each caller runs per iteration of the event loop, so that a caller with
    many connections does not delay the calls of others by more than one call.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """Calls of callers of whom one has run in this iteration."""

    async def take(self, caller: Hashable) -> None:
        """Waits until the next call of this caller may run."""
        loop, waiting = asyncio.get_running_loop(), self._waiting.get(caller)
        if waiting is None:
            self._waiting[caller] = deque()
            loop.call_soon(self._next, caller)
            return
        turn = loop.create_future()
        waiting.append(turn)
        await turn

    def _next(self, caller: Hashable) -> None:
        waiting = self._waiting[caller]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():  # its connection was not closed meanwhile
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._next, caller)
                return
        del self._waiting[caller]


class ConnectionCounts:
    """The number of open WebSockets per caller."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[Hashable] = Counter()

    def take(self, caller: Hashable) -> None:
        """Counts a new connection. Raises RateLimited."""
        if self._most and self._open[caller] >= self._most:
            raise RateLimited(LINK_S)
        self._open[caller] += 1

    def release(self, caller: Hashable) -> None:
        self._open[caller] -= 1
        if self._open[caller] <= 0:
            del self._open[caller]


class TokenBucket:
    """A token bucket of `size`, filled at `rate` per second, full at the start."""

    __slots__ = ("_at", "_left", "_rate", "_size")

    def __init__(self, rate: float, size: int, now: float) -> None:
        self._rate, self._size, self._left, self._at = rate, size, float(size), now

    def take(self, now: float) -> float:
        """Takes a token and returns 0, or returns the seconds until there is one."""
        if self._rate <= 0:
            return 0.0
        self._left = min(self._size, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._rate
        self._left -= 1
        return 0.0

    def charge(self, tokens: int) -> None:
        """Takes more tokens, which may leave a debt: the next calls wait for it."""
        if self._rate > 0:
            self._left -= tokens


class TokenBuckets:
    """One bucket per caller, for at most `most` callers."""

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
        """Counts one call. Raises RateLimited."""
        now = self._clock()
        bucket = self._buckets.get(caller) or self._buckets.setdefault(
            caller, TokenBucket(self._rate, self._size, now)
        )
        self._buckets.move_to_end(caller)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        if (wait := bucket.take(now)) > 0:
            raise RateLimited(wait)

    def charge(self, caller: Hashable, tokens: int) -> None:
        """Counts a call that costs more than others as so many more calls."""
        if (bucket := self._buckets.get(caller)) is not None:
            bucket.charge(tokens)
