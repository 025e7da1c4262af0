"""When Python looks for garbage in a service that remembers much: rarely, and never through what it keeps.

Python looks through everything that is old whenever a quarter as much has been added. With ten thousand workloads that is half a second,
several times a minute under load, in which nobody is answered. So what is remembered is set aside (`gc.freeze`) and is looked through
again only when as much has come or gone as was there: the time that costs is spread over as many requests, and memory at most doubles.
Only for a process of our own: a Jupyter server that embeds the scheduler has other things to remember.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

__all__ = ["Garbage"]

LEAST: Final = 2_000
"""Workloads: with fewer a look through everything is a matter of milliseconds, and Python's own habit is right."""


class Garbage:
    """`living` and `ended`: how many workloads are remembered now, and how many have ended in this life of the service."""

    def __init__(self, living: Callable[[], int], ended: Callable[[], int]) -> None:
        self._living, self._ended = living, ended
        self._lived = self._gone = 0

    def tick(self) -> bool:
        """Called now and then; whether it looked through everything."""
        changed = abs(self._living() - self._lived) + self._ended() - self._gone
        if changed < max(LEAST, self._lived):
            return False
        self._lived, self._gone = self._living(), self._ended()
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        return True
