"""Warnings about peers. Any user of the machine can cause them, so each has a budget: a flood of
bad lines must not fill the agent's log, nor hide the lines about others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ..state.node import log
from ..state.rate_budget import RateBudget
from ..system.process_owner import ProcessOwner

__all__ = ["PeerLog"]

AT_ONCE: Final = 50
PER_S: Final = 0.2
LONGEST: Final = 500
"""Characters of one warning: it may quote the peer."""
MOST_OWNERS: Final = 1000


class PeerLog:
    """At most `AT_ONCE` warnings per owner, and then `PER_S` per second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._budgets: dict[ProcessOwner, RateBudget] = {}
        self._dropped: dict[ProcessOwner, int] = {}

    def warning(self, owner: ProcessOwner, text: str, *args: object) -> None:
        """Logs it, if the budget of this owner allows it."""
        now = self._clock()
        if owner not in self._budgets and len(self._budgets) >= MOST_OWNERS:
            self._forget(now)
        if not self._budgets.setdefault(owner, RateBudget(AT_ONCE, PER_S)).take(now):
            self._dropped[owner] = self._dropped.get(owner, 0) + 1
            return
        if dropped := self._dropped.pop(owner, 0):
            log.warning("%d more warnings about %s were not logged", dropped, owner)
        message = text % args
        log.warning("%s", message if len(message) <= LONGEST else f"{message[:LONGEST]}…")

    def _forget(self, now: float) -> None:
        """Owners without recent warnings, or else all."""
        self._budgets = {one: b for one, b in self._budgets.items() if not b.is_full(now)}
        if len(self._budgets) >= MOST_OWNERS:
            self._budgets.clear()
