"""GPU work of a kernel in which no cell runs: threads, asyncio tasks and child processes that a
cell has left behind. Owner: `reconcile.observe`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["REST_MS", "SETTLE_MS", "BackgroundWork"]

SETTLE_MS: Final = 2_000
"""After a cell: GPU time that is measured in windows, and kernels that a cell has only queued, may
still be those of the cell.
"""
REST_MS: Final = 5_000
"""So long after the last sign of work the kernel is at rest."""


@dataclass(slots=True)
class BackgroundWork:
    """Signs of work are GPU time, and growing memory where GPU time is not measured or comes in
    short bursts. The amount of memory is none: caching allocators keep what they have.
    """

    until: int = 0
    """It counts as working until then (monotonic ms)."""
    _busy_ms: int = 0
    _used_mib: int = 0
    _seen_at: int | None = None
    """When the values above were read; None: there is nothing to compare with."""

    def observe(self, busy_ms: int, used_mib: int, *, idle_since: int, now: int) -> None:
        """A reading while no cell runs, and the memory is neither saved nor moving."""
        has_grown = busy_ms > self._busy_ms or used_mib > self._used_mib
        seen_at, self._seen_at = self._seen_at, now
        self._busy_ms, self._used_mib = busy_ms, used_mib
        if has_grown and seen_at is not None and seen_at >= idle_since + SETTLE_MS:
            self.until = now + REST_MS

    def forget(self) -> None:
        """A cell runs, or the memory is saved or restored: changes say nothing."""
        self._seen_at, self.until = None, 0
