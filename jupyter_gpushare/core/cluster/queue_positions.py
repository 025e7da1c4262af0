"""Positions in the queue: the order in which pending workloads would be served.

1 is next. The walk is that of the scheduler, with every workload counted as allocated after its
turn; so positions interleave between projects as grants would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace

from ..fairness.people import Waiter, waiting_order
from ..model.amounts import Amounts
from .people import PeopleSnapshot
from .queues import QueueOrderKey, QueueSnapshot, QueueState, queue_order_key

__all__ = ["WaitingClass", "positions_in"]


class WaitingClass:
    """Equal pending workloads of one queue at the time of a snapshot."""

    __slots__ = ("ask", "leaf", "members", "prefix", "total", "user")

    def __init__(
        self,
        leaf: QueueState,
        total: Amounts,
        ask: Amounts,
        prefix: tuple[bool, int, int, int],
        members: tuple[tuple[int, str], ...],
        user: str = "",
    ) -> None:
        self.leaf, self.total, self.ask, self.prefix, self.members, self.user = (
            leaf,
            total,
            ask,
            prefix,
            members,
            user,
        )


def positions_in(
    classes: list[WaitingClass],
    snapshots: Mapping[QueueState, QueueSnapshot],
    people: Mapping[str, PeopleSnapshot],
) -> Iterator[str]:
    """The ids of these classes of one pool in queue order, by what the queues held at the
    snapshot. `people`: of projects with rules between their members.
    """
    if not classes:
        return
    by_name: dict[str, list[WaitingClass]] = {}
    leaves: dict[str, QueueState] = {}
    for waiting_class in classes:
        if waiting_class.leaf.name not in leaves:
            leaves[waiting_class.leaf.name] = waiting_class.leaf.frozen(snapshots)
        by_name.setdefault(waiting_class.leaf.name, []).append(waiting_class)
    by_leaf = {name: _last_first(own, people.get(name)) for name, own in by_name.items()}
    if len(by_leaf) == 1:
        (waiting,) = by_leaf.values()
        yield from (id_ for id_, _ in reversed(waiting))
        return
    yield from _PositionWalk(by_leaf, leaves, classes[0].total).order()


def _last_first(
    classes: list[WaitingClass], people: PeopleSnapshot | None
) -> list[tuple[str, Amounts]]:
    """Ids and requests of one queue, the last in its order first."""
    if people is None or not people.standings:
        plain = [
            (each.prefix, created, id_, each.ask)
            for each in classes
            for created, id_ in each.members
        ]
        plain.sort(reverse=True)
        return [(id_, ask) for *_, id_, ask in plain]
    asks = {id_: each.ask for each in classes for _, id_ in each.members}
    waiters = [
        Waiter(tuple(map(int, each.prefix)), each.user, each.ask.gpu, (created,), id_)
        for each in classes
        for created, id_ in each.members
    ]
    ordered = waiting_order(waiters, people.standings, people.now)
    return [(waiter.id, asks[waiter.id]) for waiter in reversed(ordered)]


class _PositionWalk:
    """The same tree of heaps as in `queueing.order`, over copies of the queues."""

    def __init__(
        self,
        waiting: dict[str, list[tuple[str, Amounts]]],
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
        return queue_order_key(self.queues[name], self.waiting[best][-1][1], self.total)

    def order(self) -> Iterator[str]:
        """The ids in queue order."""
        top = self.heaps[None]
        while top:
            name = top[0][1]
            while name not in self.waiting:
                name = self.heaps[name][0][1]
            id_, ask = self.waiting[name].pop()
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
