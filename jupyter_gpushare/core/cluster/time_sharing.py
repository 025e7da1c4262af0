"""Turns: in a pool that shares time, a workload whose cell waits takes the share of an idle one.

A turn begins when a share is granted or its memory is restored. Rules:
docs/explanation/scheduling.md, Turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..model.activity import Activity
from ..model.pool_option import Hook

__all__ = ["TIME_SHARING", "TimeSharing", "give_way_order"]

COPY_WEIGHT: Final = 8
"""A second of copying counts like so many seconds of being idle."""
COPIES_PER_TURN: Final = 10
"""A running cell is interrupted after so many times the cost of its copy at the earliest: with
shorter turns the GPU would mostly copy.
"""


@dataclass(frozen=True, slots=True)
class TimeSharing:
    """The rules of a pool that shares time, in ms. `max_turn` None: running cells go on."""

    min_turn: int
    max_turn: int | None = None

    def idle_from(self, activity: Activity) -> int | None:
        """From when the idle workload may give way; None: it is not idle, or keeps its share."""
        if activity.idle_since is None or activity.waits_since is not None:
            return None
        if not _can_be_taken(activity) or activity.turn_since is None:
            return None
        return activity.turn_since + max(self.min_turn, activity.copy_ms)

    def ends_at(self, activity: Activity) -> int | None:
        """When the turn of a running cell ends for waiting equals; None: never."""
        if self.max_turn is None or activity.idle_since is not None:
            return None
        if not _can_be_taken(activity) or activity.turn_since is None:
            return None
        longest = max(self.max_turn, self.min_turn, COPIES_PER_TURN * activity.copy_ms)
        return activity.turn_since + longest


def _can_be_taken(activity: Activity) -> bool:
    return activity.can_save and not activity.is_pinned


TIME_SHARING: Final[Hook[TimeSharing]] = Hook("time sharing")
"""The rules of turns; without an option, shares are kept until they are released or evicted."""


def give_way_order(activity: Activity) -> int:
    """Least recently used first; copying costs count like time in which the GPU was used."""
    return (activity.idle_since or 0) + COPY_WEIGHT * activity.copy_ms
