"""Queues in one pool: what they hold, and their order among siblings.

A queue is a project or a department in one node pool. Amounts are counted along the path to the
top, so that reading is free and changing costs the depth of the tree. Rules:
docs/explanation/scheduling.md, Queue order.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from typing import NamedTuple

from ..model.amounts import NOTHING, UNLIMITED, Amounts, is_unlimited
from ..model.model import Quota
from .people import PoolPeople
from .promised_quota import PromisedQuota

__all__ = [
    "QueueSnapshot",
    "QueueState",
    "QueueOrderKey",
    "share_of",
    "queue_order_key",
    "victim_order_key",
]

QueueOrderKey = tuple[bool, bool, int, bool, float, float, int, int, str]
"""Rules 1 to 8 among queues in one tuple: the smallest is served first."""


class QueueSnapshot(NamedTuple):
    """What a queue held and was entitled to at one moment."""

    gpu: int
    cpu: int
    memory: int
    non_preemptible: tuple[int, int, int]
    fair: Amounts
    share: Amounts
    request: Amounts
    is_used: bool
    """Whether workloads run or wait here."""


class QueueState:
    """One queue in one pool.

    `gpu`, `cpu`, `memory` are allocated now; `non_preemptible_*` is the non-preemptible part;
    `wanted` is what pending workloads ask for. `fair` and `request` are fixed at the start of a
    cycle; `share` is max(quota, fair), at most the limit.
    """

    __slots__ = (
        "cpu",
        "created",
        "fair",
        "non_preemptible_cpu",
        "non_preemptible_gpu",
        "non_preemptible_memory",
        "gpu",
        "kind",
        "candidates",
        "limit",
        "memory",
        "name",
        "parent",
        "path",
        "pending",
        "people",
        "promised",
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
        self.non_preemptible_gpu = self.non_preemptible_cpu = self.non_preemptible_memory = 0
        self.wanted = self.request = self.fair = NOTHING
        self.share = share_of(rules, NOTHING)
        self.usage = (0, 0, 0)
        self.pending: set[object] = set()
        self.people: PoolPeople | None = None
        """Of a project with rules between its members."""
        self.promised: PromisedQuota | None = None
        """What bookings need later."""
        self.candidates: list[tuple[tuple[int, int, int, str], object]] = []
        """Preemptible workloads with running pods, in queue order: candidates for eviction from the
        end.
        """

    def hold(self, charge: Amounts, sign: int, non_preemptible: bool) -> None:
        """Adds (+1) or removes (-1) a charge, here and in every queue above."""
        gpu, cpu, memory = sign * charge[0], sign * charge[1], sign * charge[2]
        for queue in self.path:
            queue.gpu += gpu
            queue.cpu += cpu
            queue.memory += memory
            if non_preemptible:
                queue.non_preemptible_gpu += gpu
                queue.non_preemptible_cpu += cpu
                queue.non_preemptible_memory += memory

    def want(self, amount: Amounts, sign: int) -> None:
        """Adds or removes pending amounts, here and above."""
        change = Amounts(sign * amount[0], sign * amount[1], sign * amount[2])
        for queue in self.path:
            queue.wanted = queue.wanted.plus(change)

    @property
    def allocated(self) -> Amounts:
        return Amounts(self.gpu, self.cpu, self.memory)

    @property
    def non_preemptible(self) -> Amounts:
        return Amounts(
            self.non_preemptible_gpu, self.non_preemptible_cpu, self.non_preemptible_memory
        )

    def exceeds(self, bound: Amounts, more: Amounts = NOTHING) -> bool:
        """Whether the allocation plus `more` is above the bound in at least one resource."""
        return (
            self.gpu + more[0] > bound[0]
            or self.cpu + more[1] > bound[1]
            or self.memory + more[2] > bound[2]
        )

    def add_candidate(self, key: tuple[int, int, int, str], work: object) -> None:
        insort(
            self.candidates, (key, work)
        )  # keys end in the id, so works themselves are never compared

    def remove_candidate(self, key: tuple[int, int, int, str]) -> None:
        del self.candidates[
            bisect_left(self.candidates, (key,))
        ]  # the shorter tuple sorts just before

    def set_fair(self, request: Amounts, fair: Amounts) -> None:
        """Sets what the cycle decides by."""
        self.request, self.fair, self.share = request, fair, share_of(self.rules, fair)

    def numbers(self) -> QueueSnapshot:
        """Everything that a cycle may change."""
        non_preemptible = (
            self.non_preemptible_gpu,
            self.non_preemptible_cpu,
            self.non_preemptible_memory,
        )
        is_used = bool(
            self.gpu
            or self.cpu
            or self.memory
            or any(self.request)
            or any(self.wanted)
            or self.pending
            or self.candidates
        )
        return QueueSnapshot(
            self.gpu,
            self.cpu,
            self.memory,
            non_preemptible,
            self.fair,
            self.share,
            self.request,
            is_used,
        )

    def frozen(self, numbers: Mapping[QueueState, QueueSnapshot]) -> QueueState:
        """A copy with these numbers, and copies of the queues above, which later changes do not
        reach.
        """
        parent = None if self.parent is None else self.parent.frozen(numbers)
        copy = QueueState(self.name, self.kind, parent, self.rules, self.created)
        copy.gpu, copy.cpu, copy.memory, _, copy.fair, copy.share, _, _ = numbers[self]
        return copy


def share_of(rules: Quota, fair: Amounts) -> Amounts:
    """The allocation up to which reclaim does not take: max(quota, fair share), at most the
    limit.
    """
    return Amounts(
        *(
            limit if is_unlimited(quota) else min(limit, max(quota, part))
            for quota, limit, part in zip(rules.quota, rules.limit, fair, strict=True)
        )
    )


def _dominant(queue: QueueState, gpu: int, cpu: int, memory: int, total: Amounts) -> float:
    """The largest part of its share that such an allocation takes, over the three resources (rule
    5).
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
        )  # For a share of 0, milli-GPU are GPUs times 1000, which ranks such queues last.
        if ratio > worst:
            worst = ratio
    return worst


def queue_order_key(queue: QueueState, ask: Amounts, total: Amounts) -> QueueOrderKey:
    """Compares a queue, whose next workload asks for `ask`, with its siblings: smallest first."""
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


def victim_order_key(
    queue: QueueState, taken: Amounts, candidate: Amounts, total: Amounts
) -> QueueOrderKey:
    """The same comparison for evictions: the largest key gives first. Only rule 5 counts what was
    already taken.
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
