"""Moving preemptible work together so that a larger request fits: everybody moved must get a new
place, nobody loses one.

Source: scheduling rules, section 7.1. Which workloads are tried first is the order of victims, so
that a replay moves the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cluster.pools import PoolState
from ..cluster.queues import QueueState
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.work import Work
from ..model.amounts import GPU, Amounts
from ..queueing.order import NextWorkload
from .victim_candidates import ALL, NONE, EvictionUnit, VictimCandidates

__all__ = ["ConsolidationStrategy", "is_bound", "may_consolidate"]


def may_consolidate(pool: PoolState, turn: NextWorkload) -> bool:
    """Whether moving could help at all: the workload is preemptible, the pool packs, no bound of
    its queues is in the way, and enough is free somewhere.
    """
    if not turn.work.preemptible or "spread" in (pool.config.gpu, pool.config.cpu):
        # under spread the pool would be pulled apart again: the two would undo each other for ever
        return False
    if turn.ask.gpu == 0:
        return False
    if is_bound(pool, turn.leaf, turn.ask, preemptible=turn.work.preemptible):
        return False
    free = sum(bucket[2] * len(names) * GPU for bucket, names in pool.buckets.items())
    shared = sum(
        bucket[4] * GPU // bucket[0] * len(names) for bucket, names in pool.buckets.items()
    )
    return free + shared >= turn.ask.gpu


def is_bound(pool: PoolState, leaf: QueueState, ask: Amounts, *, preemptible: bool) -> bool:
    """Whether a bound of its queues is in the way for good: everybody moved comes back and costs
    the same, so queues keep what they hold.

    Where GPUs differ in size, GPU memory may cost less after a move, so nothing is said there.
    """
    return pool.smallest == pool.largest and refusal(leaf, ask, preemptible) is not None


class ConsolidationStrategy:
    """The rules of one consolidation."""

    def __init__(self, state: State, pool: PoolState, turn: NextWorkload) -> None:
        self.state, self.pool, self.work = state, pool, turn.work

    def victims(self) -> VictimCandidates:
        leaves = [queue for queue in self.pool.queues.values() if queue.lenders]
        return VictimCandidates(self.pool, leaves, self._accepts)

    def _accepts(self, work: Work) -> int:
        return NONE if work is self.work else ALL

    def is_allowed(self, units: Sequence[EvictionUnit], ask: Amounts) -> bool:
        """Whether nobody was left without a place."""
        return not units and ask.gpu >= 0
