"""Who is next: walks the tree of queues and gives the best waiting workload, again and again.
Decides nothing about room.

Each queue keeps its children in a heap by `turn_key`. A key depends only on the queue itself and on
the best workload below it, so after a turn only the keys on the path that was walked are computed
anew: the order is exact, and a turn costs the depth of the tree.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace

from ..cluster.pools import PoolState
from ..cluster.queues import QueueState, TurnKey, turn_key
from ..cluster.state import State
from ..cluster.work import EquivalenceClass, Member, Work
from ..model.amounts import Amounts

__all__ = ["NextWorkload", "QueueOrder", "asked"]

JobKey = tuple[bool, int, int, int, str]


class NextWorkload:
    """A workload whose turn it is, and what it asks for."""

    __slots__ = ("alike", "ask", "index", "leaf", "work")

    def __init__(
        self, work: Work, leaf: QueueState, ask: Amounts, alike: EquivalenceClass, index: int
    ) -> None:
        self.work, self.leaf, self.ask, self.alike, self.index = work, leaf, ask, alike, index

    @property
    def is_single(self) -> bool:
        """Whether it speaks for itself alone, not for its kind: it grows, or nodes are kept for it."""
        return self.index < 0


def asked(members: Iterable[Member], smallest: int) -> Amounts:
    """What these pods ask for together; GPU memory counts against the smallest device."""
    gpu = cpu = memory = 0
    for member in members:
        more = member.need.estimate(smallest)
        gpu, cpu, memory = gpu + more[0], cpu + more[1], memory + more[2]
    return Amounts(gpu, cpu, memory)


class QueueOrder:
    """The walk over one pool's queues for these pending kinds of workloads."""

    def __init__(self, state: State, pool: PoolState, kinds: Iterable[EquivalenceClass]) -> None:
        self.state, self.pool = state, pool
        self.lines: dict[QueueState, list[tuple[JobKey, NextWorkload]]] = {}
        self.heaps: dict[QueueState | None, list[tuple[TurnKey, QueueState]]] = {}
        self.path: list[QueueState] = []
        for alike in kinds:
            leaf = pool.queue(alike.project)
            self.lines.setdefault(leaf, []).append(self._head(alike, leaf, 0, None))
        for line in self.lines.values():
            heapify(line)
        self.reorder()

    def _head(
        self, alike: EquivalenceClass, leaf: QueueState, index: int, ask: Amounts | None
    ) -> tuple[JobKey, NextWorkload]:
        work = self.state.works[alike.members[index][1]]
        if ask is None:
            ask = asked(work.asking(), self.pool.smallest)
        return work.turn_order(), NextWorkload(work, leaf, ask, alike, index)

    def reorder(self) -> None:
        """Computes every key anew: something was taken from queues off the path."""
        self.heaps = {}
        queues = {queue for leaf in self.lines for queue in leaf.path}
        for queue in sorted(queues, key=lambda q: -len(q.path)):  # children before parents
            if queue in self.heaps:
                heapify(self.heaps[queue])
            key = turn_key(queue, self._best_below(queue).ask, self.pool.total)
            self.heaps.setdefault(queue.parent, []).append((key, queue))
        heapify(self.heaps.setdefault(None, []))

    def _best_below(self, queue: QueueState) -> NextWorkload:
        while queue not in self.lines:
            queue = self.heaps[queue][0][1]
        return self.lines[queue][0][1]

    def next(self) -> NextWorkload | None:
        """The workload whose turn it is; None when nobody is left. Every call is answered by
        `passed` or `served` before the next one.
        """
        heap = self.heaps[None]
        if not heap:
            return None
        self.path = []
        while True:
            queue = heap[0][1]
            self.path.append(queue)
            if queue in self.lines:
                return self.lines[queue][0][1]
            heap = self.heaps[queue]

    def passed(self, *, alone: bool = False) -> None:
        """The turn brought nothing; nobody of its kind is asked again in this walk (with `alone`:
        only this one is not).
        """
        leaf = self.path[-1]
        _, turn = heappop(self.lines[leaf])
        if alone and 0 <= turn.index < len(turn.alike.members) - 1:
            heappush(self.lines[leaf], self._head(turn.alike, leaf, turn.index + 1, turn.ask))
        self._repair()

    def served(self, *, again: bool) -> None:
        """The turn succeeded; the next of its kind comes up, and with `again` the workload itself
        for its further pods.
        """
        leaf = self.path[-1]
        line = self.lines[leaf]
        _, turn = heappop(line)
        if turn.index >= 0 and turn.index + 1 < len(turn.alike.members):
            heappush(line, self._head(turn.alike, leaf, turn.index + 1, turn.ask))
        if again:
            ask = asked(turn.work.asking(), self.pool.smallest)
            heappush(
                line, (turn.work.turn_order(), NextWorkload(turn.work, leaf, ask, turn.alike, -1))
            )
        self._repair()

    def _repair(self) -> None:
        """New keys for the queues on the path, from the project up."""
        for queue in reversed(self.path):
            heap = self.heaps[queue.parent]
            is_empty = not self.lines[queue] if queue in self.lines else not self.heaps[queue]
            if is_empty:
                heappop(heap)
                self.lines.pop(queue, None)
            else:
                heapreplace(
                    heap, (turn_key(queue, self._best_below(queue).ask, self.pool.total), queue)
                )
