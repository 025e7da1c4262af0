"""Option `placement.gpu: defragment`: a pod goes where it spoils least of what typical pods could still use.

A node's fragmentation is the free GPU amount that a pod drawn from the pool's typical mix could not use there, on average over the mix.
The place with the smallest growth wins, in a hundred steps; inside a step, the node on which the larger part left over (of its CPU or of
its GPUs) is smallest, then its name. Measured on a public trace the coarse steps with that second rule pack better than the exact measure,
and unlike it they do not depend on how nodes are named (docs/measurements).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from math import exp
from typing import Final

from .amounts import MILLI
from .devices import HELD, PROMISED, NodeState
from .need import Need

__all__ = ["Defragmenter", "Mix", "mix_of"]

COVERED: Final = 0.95
"""The typical mix is the most frequent requests that make up this part of all."""
STEPS: Final = 100

Score = tuple[int, float, str]
"""(steps of fragmentation, larger part left over, name): smaller is better."""
Mix = tuple[tuple[Need, int], ...]
"""Typical requests with their frequency in thousandths."""


def mix_of(counts: Mapping[Need, int]) -> Mix:
    """The most frequent requests that make up most of all; those that are equally frequent in the order of what they ask for."""
    total = sum(counts.values())
    kinds: list[tuple[Need, int]] = []
    covered = 0
    for need, count in sorted(counts.items(), key=lambda kind: (-kind[1], kind[0].order)):
        kinds.append((need, round(MILLI * count / total)))
        covered += count
        if covered >= COVERED * total:
            break
    return tuple(kinds)


class _Table:
    """What a kind of node with so much CPU left is good for: weights of the requests that it could serve, by what they need."""

    __slots__ = ("lost", "shares", "wholes")

    def __init__(self, kinds: list[tuple[Need, int]], total: int) -> None:
        shares: Counter[int] = Counter()
        wholes: Counter[int] = Counter()
        for need, weight in kinds:
            if need.whole > 1:
                wholes[need.whole] += weight
            else:
                shares[MILLI if need.whole else need.portion(MILLI) if need.share else MILLI] += weight
        self.shares, self.wholes = sorted(shares.items()), sorted(wholes.items())
        self.lost = total - sum(weight for _, weight in kinds)
        """Weight of the requests that cannot use this node at all, CPU-only ones among them."""


class Defragmenter:
    """Scores places in one pool for one mix. Remembers scores until a node changes."""

    def __init__(self, mix: Mix) -> None:
        self.mix = mix
        self.total = max(1, sum(weight for _, weight in mix))
        self.with_gpu = [(need, weight) for need, weight in mix if need.gpu and not need.mig]
        self.cpu_steps = sorted({need.cpu for need, _ in self.with_gpu})
        self._groups: dict[tuple[bool, ...], int] = {}
        self._group_of: dict[str, tuple[object, int]] = {}
        self._tables: dict[tuple[int, int], _Table] = {}
        self._known: dict[tuple[int, int, tuple[int, ...]], float] = {}
        self._scores: dict[Need, dict[str, tuple[int, Score | None, tuple[int, ...]]]] = {}

    def best(self, need: Need, nodes: list[NodeState], allowed: Callable[[NodeState], bool] | None) -> tuple[NodeState, tuple[int, ...]] | None:
        """The node and devices where this pod fragments least, first among those where it can start now."""
        scores = self._scores.setdefault(need, {})
        found: tuple[tuple[bool, Score], NodeState, tuple[int, ...]] | None = None
        for node in nodes:
            known = scores.get(node.name)
            if known is None or known[0] != node.stamp:
                known = scores[node.name] = (node.stamp, *self._score(node, need))
            score = known[1]
            if score is None or (found is not None and not found[0][0] and score >= found[0][1]):
                continue
            if allowed is not None and not allowed(node):
                continue
            rank = (not node.is_free_now(need, known[2]), score)
            if found is None or rank < found[0]:
                found = rank, node, known[2]
        return None if found is None else found[1:]

    def _score(self, node: NodeState, need: Need) -> tuple[Score | None, tuple[int, ...]]:
        if not node.admits(need) or not node.has_spare(need):
            return None, ()
        free = _free(node)
        choice = self._devices(node, need, free)
        if choice is None:
            return None, ()
        devices, after = choice
        cpu = node.node.cpu - node.cpu[HELD] - node.cpu[PROMISED]
        group = self._group(node)
        growth = self._fragmentation(group, cpu - need.cpu, after) - self._fragmentation(group, cpu, tuple(sorted(free)))
        step = -int(STEPS / (1 + exp(min(500.0, growth / MILLI))))
        gpus = sum(after) / (MILLI * node.node.gpus) if node.node.gpus else 0.0
        return (step, max(gpus, (cpu - need.cpu) / node.node.cpu if node.node.cpu else 0.0), node.name), devices

    def _devices(self, node: NodeState, need: Need, free: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The devices that the pod would take and what is free afterwards, sorted."""
        if not need.gpu:
            return (), tuple(sorted(free))
        size = MILLI if need.whole else -(-MILLI * need.portion(node.capacity) // node.capacity)
        if need.whole or need.devices > 1:
            chosen = node.choose(need, "binpack")
            if chosen is None:
                return None
            after = [f - size if d in chosen[0] else f for d, f in enumerate(free)]
            return chosen[0], tuple(sorted(after))
        best: tuple[float, int, int, tuple[int, ...]] | None = None
        cpu = node.node.cpu - node.cpu[HELD] - node.cpu[PROMISED] - need.cpu
        group = self._group(node)
        for value in sorted(set(free)):
            device = free.index(value)
            if not node.has_room_on(need, device):
                continue
            after = free.copy()
            after[device] -= size
            rest = tuple(sorted(after))
            option = (self._fragmentation(group, cpu, rest), value, device, rest)
            if best is None or option < best:
                best = option
        return None if best is None else ((best[2],), best[3])

    def _group(self, node: NodeState) -> int:
        """Nodes that admit the same kinds of requests are one group."""
        known = self._group_of.get(node.name)
        if known is None or known[0] is not node.node:
            signature = tuple(node.admits(need) for need, _ in self.with_gpu)
            known = self._group_of[node.name] = (node.node, self._groups.setdefault(signature, len(self._groups)))
        return known[1]

    def _fragmentation(self, group: int, cpu: int, free: tuple[int, ...]) -> float:
        """Milli-GPU that a typical request could not use. `free` is sorted."""
        step = bisect_right(self.cpu_steps, cpu)
        key = (group, step, free)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _unusable(self._table(group, step), free) / self.total
        return known

    def _table(self, group: int, step: int) -> _Table:
        table = self._tables.get((group, step))
        if table is None:
            signature = next(s for s, number in self._groups.items() if number == group)
            cpu = self.cpu_steps[step - 1] if step else -1
            kinds = [kind for kind, admitted in zip(self.with_gpu, signature, strict=True) if admitted and kind[0].cpu <= cpu]
            table = self._tables[group, step] = _Table(kinds, self.total)
        return table


def _free(node: NodeState) -> list[int]:
    """What every GPU could still give, in thousandths."""
    held, _, promised = node.gpu
    return [max(0, (node.capacity - held[d] - promised[d]) * MILLI // node.capacity) for d in range(node.node.gpus)]


def _unusable(table: _Table, free: tuple[int, ...]) -> int:
    """Sum over requests of weight times the free amount that is of no use to them."""
    idle = sum(free)
    largest = free[-1] if free else 0
    sums = [0]
    for amount in free:
        sums.append(sums[-1] + amount)
    unusable = table.lost * idle
    for size, weight in table.shares:
        unusable += weight * (sums[bisect_left(free, size)] if largest >= size else idle)
    if table.wholes:
        below = bisect_left(free, MILLI)
        for count, weight in table.wholes:
            unusable += weight * (sums[below] if len(free) - below >= count else idle)
    return unusable
