"""Consolidation: moves preemptible workloads together so that a larger request fits.

Every victim must get a new place. Candidates are tried in victim order, so a replay moves the same
workloads. Rules: docs/explanation/scheduling.md, Consolidation.
"""

from __future__ import annotations

from ..cluster.pools import PoolState
from ..cluster.queues import QueueState
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.work import Work
from ..model.amounts import GPU, Amounts
from ..queueing.order import NextWorkload
from .evicted_units import EvictedUnits
from .victim_candidates import ALL, NONE, VictimCandidates

__all__ = ["ConsolidationStrategy", "could_move", "is_bound", "may_consolidate"]


def may_consolidate(pool: PoolState, turn: NextWorkload) -> bool:
    """Whether the workload is preemptible and moving others could help it."""
    return turn.work.preemptible and could_move(pool, turn)


def could_move(pool: PoolState, turn: NextWorkload) -> bool:
    """Whether moving workloads could help: the pool packs, no limit or quota is the obstacle, and
    enough is free in total.
    """
    if "spread" in (pool.config.gpu, pool.config.cpu):
        # Under spread, later placements would pull the pool apart again, and the two would
        # alternate.
        return False
    if turn.ask.gpu == 0:
        return False
    work = turn.work
    if is_bound(pool, turn.leaf, turn.ask, work):
        return False
    free = sum(bucket[2] * len(names) * GPU for bucket, names in pool.buckets.items())
    later = 0
    for bucket, names in pool.buckets.items():
        later += bucket[4] * GPU // bucket[0] * len(names)
    return free + max(later, pool.free_fractions) >= turn.ask.gpu


def is_bound(pool: PoolState, leaf: QueueState, ask: Amounts, work: Work) -> bool:
    """Whether a limit or quota is the obstacle, which moves cannot lift: moved pods cost the same.

    Not where GPUs differ in size, since there GPU memory may cost less after a move.
    """
    return pool.smallest == pool.largest and refusal(leaf, ask, work) is not None


class ConsolidationStrategy:
    """The rules of one consolidation."""

    def __init__(self, state: State, pool: PoolState, turn: NextWorkload) -> None:
        self.state, self.pool, self.work = state, pool, turn.work

    def victims(self) -> VictimCandidates:
        leaves = [queue for queue in self.pool.queues.values() if queue.candidates]
        return VictimCandidates(self.pool, leaves, self._eligible_part)

    def _eligible_part(self, work: Work) -> int:
        return NONE if work is self.work else ALL

    def is_allowed(self, units: EvictedUnits, ask: Amounts) -> bool:
        """Whether every victim has a new place."""
        return not units and ask.gpu >= 0
