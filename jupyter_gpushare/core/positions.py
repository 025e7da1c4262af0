"""Everybody's place in the queue: in which order the waiting would be served if room came up bit by bit.

1 is next. The walk is that of the scheduler, with every workload counted as served once its turn came; so places interleave between
projects as the GPUs would.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace

from .amounts import Amounts
from .queue import QueueState, TurnKey, turn_key

__all__ = ["Line", "positions_in"]


class Line:
    """Alike workloads waiting in one queue, as they stood when the view was taken. `leaf` is a frozen copy."""

    __slots__ = ("ask", "leaf", "members", "prefix", "total")

    def __init__(
        self, leaf: QueueState, total: Amounts, ask: Amounts, prefix: tuple[int, int], members: tuple[tuple[int, str], ...]
    ) -> None:  # fmt: skip
        self.leaf, self.total, self.ask, self.prefix, self.members = leaf, total, ask, prefix, members


def positions_in(lines: list[Line]) -> list[str]:
    """Everybody in these lines of one pool, whose turn comes first first."""
    if not lines:
        return []
    by_leaf: dict[str, list[tuple[tuple[int, int], int, str, Amounts]]] = {}
    leaves: dict[str, QueueState] = {}
    for line in lines:
        leaves.setdefault(line.leaf.name, line.leaf)
        by_leaf.setdefault(line.leaf.name, []).extend((line.prefix, created, id_, line.ask) for created, id_ in line.members)
    for waiting in by_leaf.values():
        waiting.sort(reverse=True)
    if len(by_leaf) == 1:
        (waiting,) = by_leaf.values()
        return [id_ for _, _, id_, _ in reversed(waiting)]
    return _walk(by_leaf, leaves, lines[0].total)


def _walk(
    by_leaf: dict[str, list[tuple[tuple[int, int], int, str, Amounts]]], leaves: dict[str, QueueState], total: Amounts
) -> list[str]:  # fmt: skip
    """Leaves compete by the keys of their whole path, from the top: a department's turn comes before its project's."""
    shared: dict[str, QueueState] = {}
    paths = {name: [shared.setdefault(q.name, q) for q in leaf.path] for name, leaf in leaves.items()}

    def key(name: str) -> tuple[TurnKey, ...]:
        ask = by_leaf[name][-1][3]
        return tuple(turn_key(queue, ask, total) for queue in reversed(paths[name]))

    heap = [(key(name), name) for name in by_leaf]
    heapify(heap)
    order: list[str] = []
    while heap:
        old, name = heap[0]
        now = key(name)
        if now != old:  # another project of its department was served meanwhile
            heapreplace(heap, (now, name))
            continue
        _, _, id_, ask = by_leaf[name].pop()
        order.append(id_)
        for queue in paths[name]:
            queue.gpu, queue.cpu, queue.memory = queue.gpu + ask[0], queue.cpu + ask[1], queue.memory + ask[2]
        if by_leaf[name]:
            heapreplace(heap, (key(name), name))
        else:
            heappop(heap)
    return order
