"""Bounds what one action may spend on searches in a pool over time.

A search simulates evictions, up to thousands of them, and fails again in a full pool. Where shares
end many times a second, each of them is a reason to search again. Time is that of the cycles, so
the same input gives the same plan. Rules: docs/explanation/scheduling.md, Consolidation.
"""

from __future__ import annotations

from typing import Final

from .undo_log import UndoLog

__all__ = ["BURST", "PER_SECOND", "TrialBudget"]

PER_SECOND: Final = 100
"""Simulations that a pool gains per second: about a tenth of a processor's time."""
BURST: Final = 2000
"""The most that it saves up. A search is never cut short for the budget, which may become negative.
"""


class TrialBudget:
    """Of one pool. Once it is spent, every class of requests is searched once before any is
    searched again: that is a round.
    """

    __slots__ = ("_at", "_left", "is_short", "round")

    def __init__(self) -> None:
        self._left, self._at = BURST * 1000, 0  # in thousandths, so that no millisecond is lost
        self.round = 0
        self.is_short = False
        """Whether the current round was interrupted because the budget was spent."""

    def left(self, now: int) -> int:
        """Simulations left at this time (ms)."""
        return self._thousandths(now) // 1000

    def charge(self, undo_log: UndoLog, now: int, trials: int) -> None:
        """After a search."""
        undo_log.assign(self, "_left", self._thousandths(now) - trials * 1000)
        undo_log.assign(self, "_at", max(now, self._at))

    def settle(self, undo_log: UndoLog, now: int) -> None:
        """At the end of the action: interrupts the round, or ends it."""
        is_short = self.left(now) <= 0
        if self.is_short and not is_short:
            undo_log.assign(self, "round", self.round + 1)
        if self.is_short != is_short:
            undo_log.assign(self, "is_short", is_short)

    def _thousandths(self, now: int) -> int:
        return min(BURST * 1000, self._left + max(0, now - self._at) * PER_SECOND)
