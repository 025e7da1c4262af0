"""The budget of stored output per user: a command prints as much as it likes, and so do thousands
of them. The output of a user's oldest ended commands makes room for new output.
"""

from __future__ import annotations

from typing import Final

from ..store.store import Store

__all__ = ["OutputBudget"]

FULL_MS: Final = 10_000
"""How long nothing is tried after there was no output of ended commands."""


class OutputBudget:
    """Characters of output per user."""

    def __init__(self, store: Store, most: int) -> None:
        """`most` 0: unlimited."""
        self._store, self._most = store, most
        self._stored: dict[str, int] = {}
        """At least as much as each user has: deletions of old workloads are not counted."""
        self._full_until: dict[str, int] = {}
        """Users whose output is all of running commands, with a time (ms)."""

    def make_room(self, user: str, size: int, now: int) -> bool:
        """Whether `size` more may be stored, after output of ended commands was removed."""
        if not self._most:
            return True
        if now < self._full_until.get(user, 0):
            return False
        if user not in self._stored or self._stored[user] + size > self._most:
            self._stored[user] = self._store.output_of(user)
        if self._stored[user] + size > self._most:
            self._remove_oldest(user, min(self._most - self._most // 10, self._most - size))
        if self._stored[user] + size > self._most:
            self._full_until[user] = now + FULL_MS
            return False
        self._full_until.pop(user, None)
        self._stored[user] += size
        return True

    def _remove_oldest(self, user: str, most: int) -> None:
        """Removes more than is needed now, so that this is rare."""
        while self._stored[user] > most:
            removed = self._store.remove_oldest_output(user, self._stored[user] - most)
            self._stored[user] -= removed
            if not removed:
                return
