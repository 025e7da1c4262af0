"""Wall-clock time. It is only shown to people; decisions use the monotonic clock."""

from __future__ import annotations

import time

__all__ = ["wall_ms"]


def wall_ms() -> int:
    """Wall-clock ms since the epoch."""
    return time.time_ns() // 1_000_000
