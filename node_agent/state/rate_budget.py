"""How often something may happen: so many times at once, and then at a steady rate."""

from __future__ import annotations

__all__ = ["RateBudget"]


class RateBudget:
    """A token bucket, full at the start. Times are in seconds."""

    __slots__ = ("_at", "_left", "_rate", "_size")

    def __init__(self, size: int, per_s: float) -> None:
        self._size, self._rate, self._left = size, per_s, float(size)
        self._at: float | None = None

    def take(self, now: float) -> bool:
        """Whether it may happen once more now."""
        if self._at is not None:
            self._left = min(self._size, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def is_full(self, now: float) -> bool:
        """Whether nothing has happened for so long that it can be forgotten."""
        return self._at is None or self._left + (now - self._at) * self._rate >= self._size
