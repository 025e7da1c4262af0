"""Preemption: a workload may evict workloads of strictly lower priority in its own project.

Rules: docs/explanation/scheduling.md, Preemption and Minimum run time.
"""

from __future__ import annotations

from ..cluster.pools import PoolState
from ..cluster.queues import QueueState
from ..cluster.quota import is_within_quota
from ..cluster.state import State
from ..cluster.work import Work
from ..queueing.order import NextWorkload
from .victim_candidates import ALL, NONE, SURPLUS, VictimCandidates

__all__ = ["PreemptionStrategy", "protected_until"]


def protected_until(state: State, victim: QueueState, started: int | None) -> int:
    """The time until which a minimum run time protects a workload from preemption, ms.

    The first value set from the project upwards applies.
    """
    if started is None:
        return 0
    for queue in victim.path:
        if queue.rules.preempt_min_runtime is not None:
            return started + queue.rules.preempt_min_runtime
    return started + state.policy.options.preempt_min_runtime


class PreemptionStrategy:
    """The rules of one preemption."""

    def __init__(self, state: State, pool: PoolState, turn: NextWorkload, now: int) -> None:
        self.state, self.pool, self.leaf, self.work, self.ask, self.now = (
            state,
            pool,
            turn.leaf,
            turn.work,
            turn.ask,
            now,
        )

    def may_preempt(self) -> bool:
        """Whether there are candidates of lower priority, and non-preemptible work stays within
        quota.
        """
        candidates = self.leaf.candidates
        if not candidates or -candidates[-1][0][0] >= self.work.priority:
            return False
        return self.work.preemptible or is_within_quota(self.leaf, self.ask, self.work)

    def victims(self) -> VictimCandidates:
        return VictimCandidates(self.pool, [self.leaf], self._eligible_part)

    def _eligible_part(self, work: Work) -> int:
        room = self.work.room
        if work.priority >= self.work.priority or work is self.work:
            return NONE
        if room is not None and room.admits(work.project, work.user):
            return NONE  # what is kept free for it is not taken from it
        if self.now >= protected_until(self.state, self.leaf, work.started):
            return ALL
        return SURPLUS if work.elastic() == 2 else NONE
