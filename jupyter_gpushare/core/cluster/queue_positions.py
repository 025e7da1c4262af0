"""Positions in the queue: the order in which pending workloads would be served.

1 is next. The walk is that of the scheduler, with every workload counted as allocated after its
turn; so positions interleave between projects as grants would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace

from ..model.amounts import Amounts
from .queues import QueueOrderKey, QueueSnapshot, QueueState, queue_order_key

__all__ = ["WaitingClass", "positions_in"]


class WaitingClass:
    """Equal pending workloads of one queue at the time of a snapshot."""

    __slots__ = ("ask", "leaf", "members", "prefix", "total")

    def __init__(
        self,
        leaf: QueueState,
        total: Amounts,
        ask: Amounts,
        prefix: tuple[bool, int, int],
        members: tuple[tuple[int, str], ...],
    ) -> None:
        self.leaf, self.total, self.ask, self.prefix, self.members = (
            leaf,
            total,
            ask,
            prefix,
            members,
        )


def positions_in(
    classes: list[WaitingClass], snapshots: Mapping[QueueState, QueueSnapshot]
) -> Iterator[str]:
    """The ids of these classes of one pool in queue order, by what the queues held at the
    snapshot.
    """
    if not classes:
        return
    by_leaf: dict[str, list[tuple[tuple[bool, int, int], int, str, Amounts]]] = {}
    leaves: dict[str, QueueState] = {}
    for waiting_class in classes:
        if waiting_class.leaf.name not in leaves:
            leaves[waiting_class.leaf.name] = waiting_class.leaf.frozen(snapshots)
        by_leaf.setdefault(waiting_class.leaf.name, []).extend(
            (waiting_class.prefix, created, id_, waiting_class.ask)
            for created, id_ in waiting_class.members
        )
    for waiting in by_leaf.values():
        waiting.sort(reverse=True)
    if len(by_leaf) == 1:
        (waiting,) = by_leaf.values()
        yield from (id_ for _, _, id_, _ in reversed(waiting))
        return
    yield from _PositionWalk(by_leaf, leaves, classes[0].total).order()


class _PositionWalk:
    """The same tree of heaps as in `queueing.order`, over copies of the queues."""

    def __init__(
        self,
        waiting: dict[str, list[tuple[tuple[bool, int, int], int, str, Amounts]]],
        leaves: dict[str, QueueState],
        total: Amounts,
    ) -> None:
        self.waiting, self.total = waiting, total
        shared: dict[str, QueueState] = {}
        self.paths = {
            name: [shared.setdefault(q.name, q) for q in leaf.path] for name, leaf in leaves.items()
        }
        self.heaps: dict[str | None, list[tuple[QueueOrderKey, str]]] = {}
        parents = {
            q.name: path[i + 1].name if i + 1 < len(path) else None
            for path in self.paths.values()
            for i, q in enumerate(path)
        }
        depth = {q.name: len(q.path) for q in shared.values()}
        self.queues = shared
        for name in sorted(shared, key=lambda n: -depth[n]):
            if name in self.heaps:
                heapify(self.heaps[name])
            self.heaps.setdefault(parents[name], []).append((self._key(name), name))
        heapify(self.heaps[None])

    def _key(self, name: str) -> QueueOrderKey:
        best = name
        while best not in self.waiting:
            best = self.heaps[best][0][1]
        return queue_order_key(self.queues[name], self.waiting[best][-1][3], self.total)

    def order(self) -> Iterator[str]:
        """The ids in queue order."""
        top = self.heaps[None]
        while top:
            name = top[0][1]
            while name not in self.waiting:
                name = self.heaps[name][0][1]
            _, _, id_, ask = self.waiting[name].pop()
            yield id_
            self._count_as_served(name, ask)

    def _count_as_served(self, leaf: str, ask: Amounts) -> None:
        path = self.paths[leaf]
        for queue in path:
            queue.gpu, queue.cpu, queue.memory = (
                queue.gpu + ask[0],
                queue.cpu + ask[1],
                queue.memory + ask[2],
            )
        for i, queue in enumerate(path):
            heap = self.heaps[path[i + 1].name if i + 1 < len(path) else None]
            if self.waiting[leaf] if i == 0 else self.heaps[queue.name]:
                heapreplace(heap, (self._key(queue.name), queue.name))
            else:
                heappop(heap)
