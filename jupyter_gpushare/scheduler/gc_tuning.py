"""When Python looks for garbage in a service that remembers much: often among what is new, rarely
through what it keeps.

Python looks through everything that is old whenever a quarter as much has been added. With ten
thousand workloads that is half a second, several times a minute under load, in which nobody is
answered. So once a second what is new is looked through, which takes a millisecond, and what is
left of it is set aside (`gc.freeze`). Workloads that have ended are circles of objects among that;
everything is looked through when as many have ended as live, so memory at most doubles and the time
is spread over as many requests.

Only for a process of our own: a Jupyter server that embeds the scheduler has other things to
remember.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

__all__ = ["GcTuning"]

LEAST: Final = 2_000
"""Workloads: when fewer have ended, there is not much to be found."""
LONGEST: Final = 3_600
"""Ticks. After an hour everything is looked through in any case: not all circles are workloads."""


class GcTuning:
    """`living` and `ended`: how many workloads are remembered now, and how many have ended in this
    life of the service.
    """

    def __init__(self, living: Callable[[], int], ended: Callable[[], int]) -> None:
        self._living, self._ended = living, ended
        self._gone = self._ticks = 0

    def tick(self) -> bool:
        """Called once a second; whether it looked through everything."""
        self._ticks += 1
        is_due = self._ended() - self._gone >= max(LEAST, self._living()) or self._ticks >= LONGEST
        if is_due:
            self._gone, self._ticks = self._ended(), 0
            gc.unfreeze()
        gc.collect(2 if is_due else 1)
        gc.freeze()
        return is_due
