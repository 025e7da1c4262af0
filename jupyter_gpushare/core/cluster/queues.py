"""Whose turn it is: queues in one pool, what they hold, and the order among siblings. Knows nothing
of nodes.

A queue is a project or a department in one node pool. What it holds is counted as integers along
the path to the top, so that asking costs nothing and changing costs the depth of the tree.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import NamedTuple

from ..model.amounts import NOTHING, UNLIMITED, Amounts, is_unlimited
from ..model.model import Quota

__all__ = ["QueueSnapshot", "QueueState", "TurnKey", "share_of", "turn_key", "victim_key"]

TurnKey = tuple[bool, bool, int, bool, float, float, int, int, str]
"""Rules 1 to 8 of section 3.1 in one tuple: the smallest is served first."""


class QueueSnapshot(NamedTuple):
    """What a queue held and was entitled to at one moment."""

    gpu: int
    cpu: int
    memory: int
    fixed: tuple[int, int, int]
    fair: Amounts
    share: Amounts
    request: Amounts
    is_used: bool
    """Whether anybody runs or waits here."""


class QueueState:
    """One queue in one pool. `gpu`, `cpu`, `memory` are allocated now; `fixed_*` the
    non-preemptible part of that; `wanted` what its pending workloads ask for. `fair` and `request`
    are frozen at the start of a cycle; `share` is max(quota, fair) within the limit.
    """

    __slots__ = (
        "cpu",
        "created",
        "fair",
        "fixed_cpu",
        "fixed_gpu",
        "fixed_memory",
        "gpu",
        "kind",
        "lenders",
        "limit",
        "memory",
        "name",
        "parent",
        "path",
        "pending",
        "quota",
        "rank",
        "request",
        "rules",
        "share",
        "usage",
        "wanted",
    )

    def __init__(
        self, name: str, kind: str, parent: QueueState | None, rules: Quota, created: int
    ) -> None:
        self.name, self.kind, self.parent, self.rules, self.created = (
            name,
            kind,
            parent,
            rules,
            created,
        )
        self.quota, self.limit, self.rank = rules.quota, rules.limit, rules.rank
        self.path: tuple[QueueState, ...] = (self, *(parent.path if parent else ()))
        self.gpu = self.cpu = self.memory = 0
        self.fixed_gpu = self.fixed_cpu = self.fixed_memory = 0
        self.wanted = self.request = self.fair = NOTHING
        self.share = share_of(rules, NOTHING)
        self.usage = (0, 0, 0)
        self.pending: set[object] = set()
        self.lenders: list[tuple[tuple[int, int, int, str], object]] = []
        """Preemptible workloads with running pods, in the order of service: possible victims from
        the end.
        """

    def hold(self, charge: Amounts, sign: int, fixed: bool) -> None:
        """Counts a charge in (+1) or out (-1), here and in every queue above."""
        gpu, cpu, memory = sign * charge[0], sign * charge[1], sign * charge[2]
        for queue in self.path:
            queue.gpu += gpu
            queue.cpu += cpu
            queue.memory += memory
            if fixed:
                queue.fixed_gpu += gpu
                queue.fixed_cpu += cpu
                queue.fixed_memory += memory

    def want(self, amount: Amounts, sign: int) -> None:
        """Counts what is pending, here and above."""
        change = Amounts(sign * amount[0], sign * amount[1], sign * amount[2])
        for queue in self.path:
            queue.wanted = queue.wanted.plus(change)

    @property
    def allocated(self) -> Amounts:
        return Amounts(self.gpu, self.cpu, self.memory)

    @property
    def fixed(self) -> Amounts:
        return Amounts(self.fixed_gpu, self.fixed_cpu, self.fixed_memory)

    def exceeds(self, bound: Amounts, more: Amounts = NOTHING) -> bool:
        """Whether what it holds, with `more`, is above the bound in at least one resource."""
        return (
            self.gpu + more[0] > bound[0]
            or self.cpu + more[1] > bound[1]
            or self.memory + more[2] > bound[2]
        )

    def lend(self, key: tuple[int, int, int, str], work: object) -> None:
        insort(
            self.lenders, (key, work)
        )  # keys end in the id, so works themselves are never compared

    def unlend(self, key: tuple[int, int, int, str]) -> None:
        del self.lenders[bisect_left(self.lenders, (key,))]  # the shorter tuple sorts just before

    def set_fair(self, request: Amounts, fair: Amounts) -> None:
        """Freezes what the cycle goes by."""
        self.request, self.fair, self.share = request, fair, share_of(self.rules, fair)

    def numbers(self) -> QueueSnapshot:
        """All that a cycle may change, as it is now."""
        fixed = (self.fixed_gpu, self.fixed_cpu, self.fixed_memory)
        is_used = bool(
            self.gpu
            or self.cpu
            or self.memory
            or any(self.request)
            or any(self.wanted)
            or self.pending
            or self.lenders
        )
        return QueueSnapshot(
            self.gpu, self.cpu, self.memory, fixed, self.fair, self.share, self.request, is_used
        )

    def frozen(self, numbers: Mapping[QueueState, QueueSnapshot]) -> QueueState:
        """A copy with these numbers, with copies of the queues above, that later changes do not
        reach.
        """
        parent = None if self.parent is None else self.parent.frozen(numbers)
        copy = QueueState(self.name, self.kind, parent, self.rules, self.created)
        copy.gpu, copy.cpu, copy.memory, _, copy.fair, copy.share, _, _ = numbers[self]
        return copy


def share_of(rules: Quota, fair: Amounts) -> Amounts:
    """Up to where nobody may take from a queue by fairness: max(quota, fair share) within the limit
    (section 1.5).
    """
    return Amounts(
        *(
            limit if is_unlimited(quota) else min(limit, max(quota, part))
            for quota, limit, part in zip(rules.quota, rules.limit, fair, strict=True)
        )
    )


def _dominant(queue: QueueState, gpu: int, cpu: int, memory: int, total: Amounts) -> float:
    """The largest part of its share that a queue with such an allocation would hold, over the three
    resources (rule 5).
    """
    worst = -1e30
    for amount, share, whole in (
        (gpu, queue.share[0], total[0]),
        (cpu, queue.share[1], total[1]),
        (memory, queue.share[2], total[2]),
    ):
        if share >= UNLIMITED >> 1:
            share = whole
            if share == 0:
                continue
        ratio = (
            amount / share if share else float(amount)
        )  # milli-GPU over no share: GPUs times 1000, as in the rules
        if ratio > worst:
            worst = ratio
    return worst


def turn_key(queue: QueueState, ask: Amounts, total: Amounts) -> TurnKey:
    """How a queue whose best workload asks for `ask` compares with its siblings: the smallest key
    is served first.
    """
    gpu, cpu, memory = queue.gpu + ask[0], queue.cpu + ask[1], queue.memory + ask[2]
    fair, quota, share = queue.fair, queue.quota, queue.share
    over = fair[0] < queue.gpu and fair[1] < queue.cpu and fair[2] < queue.memory
    starved = gpu <= quota[0] and cpu <= quota[1] and memory <= quota[2]
    penalty = (
        (share[0] == 0 and gpu > 0) or (share[1] == 0 and cpu > 0) or (share[2] == 0 and memory > 0)
    )
    return (
        over,
        not starved,
        -queue.rank,
        penalty,
        _dominant(queue, gpu, cpu, memory, total),
        _dominant(queue, queue.gpu, queue.cpu, queue.memory, total),
        share[0] + share[1] + share[2],
        queue.created,
        queue.name,
    )


def victim_key(queue: QueueState, taken: Amounts, candidate: Amounts, total: Amounts) -> TurnKey:
    """The same comparison when something is to be taken: the largest key gives first. Only rule 5
    sees what was taken already.
    """
    fair, quota, share = queue.fair, queue.quota, queue.share
    over = fair[0] < queue.gpu and fair[1] < queue.cpu and fair[2] < queue.memory
    within = queue.gpu <= quota[0] and queue.cpu <= quota[1] and queue.memory <= quota[2]
    penalty = (
        (share[0] == 0 and queue.gpu > 0)
        or (share[1] == 0 and queue.cpu > 0)
        or (share[2] == 0 and queue.memory > 0)
    )
    left = (
        queue.gpu - taken[0] - candidate[0],
        queue.cpu - taken[1] - candidate[1],
        queue.memory - taken[2] - candidate[2],
    )
    return (
        over,
        not within,
        -queue.rank,
        penalty,
        _dominant(queue, *left, total),
        _dominant(queue, queue.gpu, queue.cpu, queue.memory, total),
        share[0] + share[1] + share[2],
        queue.created,
        queue.name,
    )
