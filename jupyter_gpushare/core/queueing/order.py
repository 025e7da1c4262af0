"""Queue order: walks the tree of queues and returns the next pending workload.

Each queue keeps its children in a heap by `queue_order_key`. A key depends only on the queue and on
the best workload below it, so after a step only the keys on its path are recomputed. The order is
exact, and a step costs the depth of the tree. Rules: docs/explanation/scheduling.md, Queue order.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace

from ..cluster.pools import PoolState
from ..cluster.queues import QueueOrderKey, QueueState, queue_order_key
from ..cluster.state import State
from ..cluster.work import EquivalenceClass, Member, Work
from ..model.amounts import Amounts

__all__ = ["NextWorkload", "QueueOrder", "total_request"]

WorkloadKey = tuple[bool, int, int, int, int, int, str]


class NextWorkload:
    """The next workload and what it asks for."""

    __slots__ = ("eq_class", "ask", "index", "leaf", "work")

    def __init__(
        self, work: Work, leaf: QueueState, ask: Amounts, eq_class: EquivalenceClass, index: int
    ) -> None:
        self.work, self.leaf, self.ask, self.eq_class, self.index = work, leaf, ask, eq_class, index

    @property
    def is_single(self) -> bool:
        """Whether it does not stand for its equivalence class: it grows, or has a reservation."""
        return self.index < 0


def total_request(members: Iterable[Member], smallest: int) -> Amounts:
    """What these pods ask for together; GPU memory counts against the smallest device."""
    gpu = cpu = memory = 0
    for member in members:
        more = member.need.estimate(smallest)
        gpu, cpu, memory = gpu + more[0], cpu + more[1], memory + more[2]
    return Amounts(gpu, cpu, memory)


def _key(work: Work, leaf: QueueState) -> WorkloadKey:
    """The order inside a project. Where it has fair members, people come before age."""
    people = leaf.people
    score = people.score(work.user) if people is not None and people.is_fair else 0
    promised, priority, elastic, waits, place, id_ = work.pending_order_key()
    return promised, priority, elastic, waits, score, place, id_


class QueueOrder:
    """The walk over one pool's queues, for these classes of pending workloads."""

    def __init__(
        self, state: State, pool: PoolState, eq_classes: Iterable[EquivalenceClass]
    ) -> None:
        self.state, self.pool = state, pool
        self.waiting: dict[QueueState, list[tuple[WorkloadKey, NextWorkload]]] = {}
        self.heaps: dict[QueueState | None, list[tuple[QueueOrderKey, QueueState]]] = {}
        self.path: list[QueueState] = []
        for eq_class in eq_classes:
            leaf = pool.queue(eq_class.project)
            self.waiting.setdefault(leaf, []).append(self._head(eq_class, leaf, 0, None))
        for heap_of_leaf in self.waiting.values():
            heapify(heap_of_leaf)
        self.reorder()

    def _head(
        self, eq_class: EquivalenceClass, leaf: QueueState, index: int, ask: Amounts | None
    ) -> tuple[WorkloadKey, NextWorkload]:
        work = self.state.works[eq_class.members[index][1]]
        if ask is None:
            ask = total_request(work.members_to_place(), self.pool.smallest)
        return _key(work, leaf), NextWorkload(work, leaf, ask, eq_class, index)

    def reorder(self) -> None:
        """Recomputes all keys, after evictions from queues that are not on the path."""
        self.heaps = {}
        queues = {queue for leaf in self.waiting for queue in leaf.path}
        for queue in sorted(queues, key=lambda q: -len(q.path)):  # children before parents
            if queue in self.heaps:
                heapify(self.heaps[queue])
            key = queue_order_key(queue, self._best_below(queue).ask, self.pool.total)
            self.heaps.setdefault(queue.parent, []).append((key, queue))
        heapify(self.heaps.setdefault(None, []))

    def _best_below(self, queue: QueueState) -> NextWorkload:
        while queue not in self.waiting:
            queue = self.heaps[queue][0][1]
        return self.waiting[queue][0][1]

    def next(self) -> NextWorkload | None:
        """The next workload; None when none is left. The caller answers with `skip` or
        `advance`.
        """
        heap = self.heaps[None]
        if not heap:
            return None
        self.path = []
        while True:
            queue = heap[0][1]
            self.path.append(queue)
            if queue in self.waiting:
                return self.waiting[queue][0][1]
            heap = self.heaps[queue]

    def skip(self, *, only_this: bool = False) -> None:
        """The workload was not placed: leaves out its class (with `only_this`: only the workload
        itself).
        """
        leaf = self.path[-1]
        _, turn = heappop(self.waiting[leaf])
        if only_this and 0 <= turn.index < len(turn.eq_class.members) - 1:
            heappush(self.waiting[leaf], self._head(turn.eq_class, leaf, turn.index + 1, turn.ask))
        self._repair()

    def advance(self, *, grows: bool) -> None:
        """The workload was placed: the next of its class follows. With `grows` it queues again
        itself.
        """
        leaf = self.path[-1]
        heap_of_leaf = self.waiting[leaf]
        _, turn = heappop(heap_of_leaf)
        if turn.index >= 0 and turn.index + 1 < len(turn.eq_class.members):
            heappush(heap_of_leaf, self._head(turn.eq_class, leaf, turn.index + 1, turn.ask))
        if grows:
            ask = total_request(turn.work.members_to_place(), self.pool.smallest)
            heappush(
                heap_of_leaf,
                (_key(turn.work, leaf), NextWorkload(turn.work, leaf, ask, turn.eq_class, -1)),
            )
        if leaf.people is not None and leaf.people.is_fair:
            # the person comes after others now
            heap_of_leaf[:] = [(_key(each.work, leaf), each) for _, each in heap_of_leaf]
            heapify(heap_of_leaf)
        self._repair()

    def _repair(self) -> None:
        """Recomputes the keys of the queues on the path, from the project up."""
        for queue in reversed(self.path):
            heap = self.heaps[queue.parent]
            is_empty = not self.waiting[queue] if queue in self.waiting else not self.heaps[queue]
            if is_empty:
                heappop(heap)
                self.waiting.pop(queue, None)
            else:
                heapreplace(
                    heap,
                    (queue_order_key(queue, self._best_below(queue).ask, self.pool.total), queue),
                )
