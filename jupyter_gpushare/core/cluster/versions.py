"""Version numbers for the states of a cluster's pools."""

from __future__ import annotations

__all__ = ["VersionCounter"]


class VersionCounter:
    """Counts up, so that no two states of any pool of one cluster have the same version."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 1
        return self._last
