"""Tunes Python's garbage collector for a service that keeps many objects: collects young objects
often, and all objects rarely.

Python runs a full collection whenever the old generation has grown by a quarter. With ten thousand
workloads this takes half a second, several times a minute under load, during which no call is
answered. Therefore young objects are collected once a second, which takes a millisecond, and
survivors are frozen (`gc.freeze`). Ended workloads leave reference cycles among them; a full
collection runs when as many have ended as are alive, so memory at most doubles and the time is
amortized over as many requests.

Only for a process of its own: a Jupyter server that embeds the scheduler keeps other objects.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

__all__ = ["GcTuning"]

LEAST: Final = 2_000
"""Workloads: with fewer ended ones a full collection is not worthwhile."""
LONGEST: Final = 3_600
"""Ticks between full collections, at most: not all reference cycles are workloads."""


class GcTuning:
    """`living` and `ended`: the number of current workloads, and of those that have ended in this
    process.
    """

    def __init__(self, living: Callable[[], int], ended: Callable[[], int]) -> None:
        self._living, self._ended = living, ended
        self._gone = self._ticks = 0

    def tick(self) -> bool:
        """Called once a second; returns whether it ran a full collection."""
        self._ticks += 1
        is_due = self._ended() - self._gone >= max(LEAST, self._living()) or self._ticks >= LONGEST
        if is_due:
            self._gone, self._ticks = self._ended(), 0
            gc.unfreeze()
        gc.collect(2 if is_due else 1)
        gc.freeze()
        return is_due
