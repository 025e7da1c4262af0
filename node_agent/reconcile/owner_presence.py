"""Owners that have ended for good, looked up at most once a second: steps are more frequent."""

from __future__ import annotations

from typing import Final

from ..system.process_owner import ProcessOwner

__all__ = ["OwnerPresence"]

EVERY_MS: Final = 1000


class OwnerPresence:
    """Of one node."""

    def __init__(self) -> None:
        self._found: dict[ProcessOwner, bool] = {}
        self._since = 0

    def is_gone(self, owner: ProcessOwner | None, now: int) -> bool:
        """Whether it has ended, as it was at most a second ago. Unknown owners have not."""
        if owner is None:
            return False
        if now - self._since >= EVERY_MS:
            self._found.clear()
            self._since = now
        if owner not in self._found:
            self._found[owner] = owner.is_gone()
        return self._found[owner]
