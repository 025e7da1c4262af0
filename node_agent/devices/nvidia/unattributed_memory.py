"""How long memory has been in use that the driver attributes to no process."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["PERSISTENT_MS", "UnattributedMemory"]

PERSISTENT_MS: Final = 30_000
"""Unattributed memory belongs to other processes after this time; before, the driver may still be
reclaiming it.
"""
EVERYTHING: Final = 1 << 62


class UnattributedMemory:
    """The minimum per GPU over the last `PERSISTENT_MS`."""

    def __init__(self, gpus: Iterable[int]) -> None:
        self._minima: dict[int, deque[tuple[int, int]]] = {gpu: deque() for gpu in gpus}
        """(time, bytes) with increasing bytes: entries that can still become the minimum."""

    def persistent(self, now: int) -> dict[int, int]:
        """Bytes per GPU that have been unattributed for long. Without earlier readings, all of it:
        what was there before the agent is not memory of a kernel that just ended.
        """
        found = {}
        for gpu, minima in self._minima.items():
            while minima and now - minima[0][0] > PERSISTENT_MS:
                minima.popleft()
            found[gpu] = min((size for _, size in minima), default=EVERYTHING)
        return found

    def record(self, now: int, unattributed: Mapping[int, int]) -> None:
        """Add a reading: bytes per GPU."""
        for gpu, size in unattributed.items():
            minima = self._minima[gpu]
            while minima and minima[-1][1] >= size:
                minima.pop()
            minima.append((now, size))
