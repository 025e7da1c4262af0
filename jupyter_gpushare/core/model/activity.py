"""What its agent reports about one workload: who works, who is idle, and whose cell waits."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["UNREPORTED", "Activity"]


@dataclass(frozen=True, slots=True)
class Activity:
    """Times are ms on the scheduler's clock."""

    waits_since: int | None = None
    """When its oldest cell that waits for a GPU arrived at the gate; None: no cell waits."""
    idle_since: int | None = None
    """When it was last used; None: a cell runs or waits, or work runs on the GPU."""
    turn_since: int | None = None
    """When its turn began: its share was granted, or its memory was restored. None: not known, so
    that nothing is taken from it.
    """
    copy_ms: int = 0
    """How long its memory takes to be saved and restored."""
    is_pinned: bool = False
    can_save: bool = True
    """Whether its memory can be saved now."""
    is_host_full: bool = False
    """It cannot be saved because the host memory for saved GPU memory is full."""


UNREPORTED = Activity()
