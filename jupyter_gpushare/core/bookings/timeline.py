"""What is there at every instant, from one change to the next."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator

from .packing import BookedShare, Load
from .recurrence import Window

__all__ = ["Timeline"]


class Timeline:
    """The same load at all times, and more of it in windows."""

    def __init__(self, always: Load) -> None:
        self._edges: list[int] = []
        """When it changes, sorted."""
        self._loads: list[Load] = [always]
        """The load before each edge, and the one after the last."""
        self._uses: Counter[int] = Counter()
        """How many windows start or end at each edge."""

    def parts(self, window: Window) -> Iterator[tuple[Window, Load]]:
        """The parts of a window between changes, the earliest first."""
        edges, (start, end) = self._edges, window
        for at in range(bisect_right(edges, start), len(edges)):
            if edges[at] >= end:
                break
            yield Window(start, edges[at]), self._loads[at]
            start = edges[at]
        if start < end:
            yield Window(start, end), self._loads[bisect_right(edges, start)]

    def loads(self, window: Window) -> list[Load]:
        """The load of each part."""
        edges = self._edges
        return self._loads[bisect_right(edges, window.start) : bisect_left(edges, window.end) + 1]

    def add(self, window: Window, share: BookedShare) -> None:
        self._cut(window.start)
        self._cut(window.end)
        for load in self.loads(window):
            load.add(share)

    def remove(self, window: Window, share: BookedShare) -> None:
        """Takes away what was added."""
        for load in self.loads(window):
            load.remove(share)
        self._join(window.start)
        self._join(window.end)

    def _cut(self, edge: int) -> None:
        self._uses[edge] += 1
        at = bisect_left(self._edges, edge)
        if self._edges[at : at + 1] != [edge]:
            self._edges.insert(at, edge)
            self._loads.insert(at, self._loads[at].copy())

    def _join(self, edge: int) -> None:
        self._uses[edge] -= 1
        if not self._uses[edge]:
            del self._uses[edge]
            at = bisect_left(self._edges, edge)
            del self._edges[at], self._loads[at]
