"""Two busy notebooks of one person that each need more than their share would evict each other at
every notice. The one that gets the memory keeps it for a while, and longer each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["FIRST_MS", "LONGEST_MS", "Residence", "Rotations"]

FIRST_MS: Final = 30_000
LONGEST_MS: Final = 600_000
FORGET: Final = 4
"""After so many times the last residence without an eviction, it begins anew."""


@dataclass(slots=True)
class Residence:
    """How long one kernel keeps its memory against its user's other kernels."""

    granted_ms: int = 0
    """From the moment when it has its memory."""
    until: int = 0

    def begin(self, now: int) -> None:
        """It has its memory."""
        if self.granted_ms:
            self.granted_ms, self.until = 0, now + self.granted_ms


@dataclass(slots=True)
class _Rotation:
    length_ms: int
    at: int


class Rotations:
    """Evictions between kernels of one person, by user."""

    def __init__(self) -> None:
        self._last: dict[str, _Rotation] = {}

    def evicted(self, user: str, now: int) -> int:
        """A running kernel of this user was suspended for another one: how long (ms) that one keeps
        its memory. It doubles from eviction to eviction.
        """
        last = self._last.get(user)
        length = FIRST_MS
        if last is not None and now - last.at < FORGET * last.length_ms:
            length = min(2 * last.length_ms, LONGEST_MS)
        self._last[user] = _Rotation(length, now)
        return length
