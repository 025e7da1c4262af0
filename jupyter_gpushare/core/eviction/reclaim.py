"""Reclaim: takes GPUs back from projects above their fair share.

Decides which projects may reclaim, from which, and whether a set of victims is fair. Priority plays
no role. Rules: docs/explanation/scheduling.md, Reclaim and Minimum run time.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..cluster.pools import PoolState
from ..cluster.queues import QueueState
from ..cluster.quota import is_within_quota
from ..cluster.state import State
from ..cluster.work import Work
from ..model.amounts import MILLI, NOTHING, Amounts
from ..queueing.order import NextWorkload
from .evicted_units import EvictedUnits
from .reclaim_charges import ReclaimCharges
from .victim_candidates import ALL, NONE, SURPLUS, EvictionUnit, VictimCandidates

__all__ = ["ReclaimStrategy", "is_entitled"]


def is_entitled(turn: NextWorkload) -> bool:
    """Whether the project stays within its fair share with the request, and its non-preemptible
    work within quota.
    """
    if turn.leaf.exceeds(turn.leaf.fair, turn.ask):
        return False
    return turn.work.preemptible or is_within_quota(turn.leaf, turn.ask, turn.work)


def _min_runtime(state: State, side: QueueState) -> int:
    """The minimum run time, ms, that protects workloads of a queue from a reclaimer.

    `side` is the queue just below the lowest common ancestor on the victim's side, from which the
    lookup goes upwards. A value on a project therefore protects it from its siblings, not from
    other departments.
    """
    for queue in side.path:
        if queue.rules.reclaim_min_runtime is not None:
            return queue.rules.reclaim_min_runtime
    return state.policy.options.reclaim_min_runtime


def _queues_below_common_ancestor(a: QueueState, b: QueueState) -> tuple[QueueState, QueueState]:
    """The ancestors of both queues just below their lowest common ancestor."""
    above_a, above_b = a.path[::-1], b.path[::-1]
    at = 0
    while at + 1 < min(len(above_a), len(above_b)) and above_a[at] is above_b[at]:
        at += 1
    return above_a[at], above_b[at]


class ReclaimStrategy:
    """The rules of one reclaim: `victims` lists candidates, `is_fair` judges a set of them."""

    def __init__(self, state: State, pool: PoolState, turn: NextWorkload, now: int) -> None:
        self.state, self.pool, self.leaf, self.work, self.now = (
            state,
            pool,
            turn.leaf,
            turn.work,
            now,
        )
        self.allocated_before = {queue: queue.allocated for queue in pool.queues.values()}
        """Allocated amounts before any eviction."""
        self.ask = turn.ask
        self._sides: dict[QueueState, tuple[QueueState, QueueState]] = {}
        self._protection: dict[QueueState, int] = {}
        self._charges = self._new_charges()
        self._guaranteed: frozenset[QueueState] = frozenset()
        """Queues on the reclaimer's side whose quota justified an eviction."""

    def _new_charges(self) -> ReclaimCharges:
        return ReclaimCharges(
            lambda work: self.pool.queue(work.project), lambda q: self._side(q)[1]
        )

    def _side(self, victim: QueueState) -> tuple[QueueState, QueueState]:
        """The ancestors of the reclaimer and of a victim just below their lowest common one."""
        known = self._sides.get(victim)
        if known is None:
            known = self._sides[victim] = _queues_below_common_ancestor(self.leaf, victim)
        return known

    def victims(self) -> VictimCandidates:
        """Preemptible running work of every other project from which a rule could allow to take."""
        others = [q for q in self.pool.queues.values() if q is not self.leaf and q.candidates]
        return VictimCandidates(
            self.pool,
            [q for q in others if self._may_take_from(q, self.ask)],
            self._eligible_part,
            has_any=bool(others),
        )

    def movable(self) -> VictimCandidates:
        """Preemptible running work of every other project, also of those within their quota."""
        others = [q for q in self.pool.queues.values() if q is not self.leaf and q.candidates]
        return VictimCandidates(self.pool, others, self._eligible_part)

    def are_moved(self, units: EvictedUnits, ask: Amounts) -> bool:
        """Whether every victim has a new place, so that no project loses anything."""
        return not units and ask.gpu > 0

    def _may_take_from(self, leaf: QueueState, ask: Amounts) -> bool:
        reclaimer, victim = self._side(leaf)
        held = self.allocated_before[victim]
        return not held.fits_in(victim.share) or (
            self._is_guaranteed(reclaimer, ask) and not held.fits_in(victim.quota)
        )

    def _eligible_part(self, work: Work) -> int:
        """All of a workload; of one that started too recently only the pods above its minimum."""
        if work.started is None or self.now >= work.started + self._protected_for(work):
            return ALL
        return SURPLUS if work.elastic() == 2 else NONE

    def _protected_for(self, work: Work) -> int:
        victim = self.pool.queue(work.project)
        known = self._protection.get(victim)
        if known is None:
            known = self._protection[victim] = _min_runtime(self.state, self._side(victim)[1])
        return known

    def is_fair(self, units: EvictedUnits, ask: Amounts) -> bool:
        """Whether the set of victims is allowed.

        Each chunk must come from a queue above its share (or above its quota, for a reclaimer
        within its quota), and no ancestor may exceed its fair share unless the sibling from which
        it takes remains more saturated.
        """
        charges, guaranteed, added = self._charges, self._guaranteed, self._added(units)
        if added is None:
            charges, guaranteed, added = self._new_charges(), frozenset(), units
        relied_on = self._relied_on(charges, charges.add(added), ask)
        if relied_on is None or not (
            all(self._is_guaranteed(queue, ask) for queue in guaranteed)
            and self._is_balanced(charges, ask)
        ):
            charges.undo()
            return False
        charges.judged = units
        self._charges, self._guaranteed = charges, guaranteed | relied_on
        return True

    def _added(self, units: EvictedUnits) -> Iterable[EvictionUnit] | None:
        """The units that were not judged yet; None: these do not contain those judged last."""
        if units is self._charges.judged:
            return ()
        return units.added if units.base is self._charges.judged else None

    def _relied_on(
        self, charges: ReclaimCharges, victims: Iterable[QueueState], ask: Amounts
    ) -> set[QueueState] | None:
        """Queues of the reclaimer whose quota is needed to take from these; None: one may not
        lose as much.
        """
        found = set()
        for victim in victims:
            held = self.allocated_before[victim].minus(charges.before_last(victim))
            if held.fits_in(victim.share):
                reclaimer = self._side(victim)[0]
                if held.fits_in(victim.quota) or not self._is_guaranteed(reclaimer, ask):
                    return None
                found.add(reclaimer)
        return found

    def _is_guaranteed(self, queue: QueueState, ask: Amounts) -> bool:
        """Whether the queue stays within its own quota with the request."""
        return self.allocated_before[queue].plus(ask).fits_in(queue.quota)

    def _is_balanced(self, charges: ReclaimCharges, ask: Amounts) -> bool:
        """Whether every ancestor within or above its share stays less saturated than the siblings
        that lose.
        """
        for queue in self.leaf.path:
            if not self.work.preemptible and not queue.non_preemptible.fits_in(queue.quota):
                return False
            reclaimer = self._left(charges, queue).plus(ask)
            for i in range(3):
                if not (charges.total[i] or ask[i] > 0):
                    continue
                ratio = _ratio(reclaimer[i], queue.fair[i])
                if ratio > 1 and not self._is_less_saturated(charges, queue, i, ratio):
                    return False
        return True

    def _is_less_saturated(
        self, charges: ReclaimCharges, queue: QueueState, resource: int, ratio: float
    ) -> bool:
        multiplier = max(MILLI, self.state.policy.options.saturation_multiplier)
        for sibling in charges.taken:
            if sibling.parent is not queue.parent or sibling is queue:
                continue
            fair = sibling.fair[resource]
            left = self._left(charges, sibling)[resource]
            if fair > 0 and ratio * multiplier >= _ratio(left, fair) * MILLI:
                return False
        return True

    def _left(self, charges: ReclaimCharges, queue: QueueState) -> Amounts:
        return self.allocated_before[queue].minus(charges.taken.get(queue, NOTHING))


def _ratio(held: int, fair: int) -> float:
    if fair == 0:
        return float("inf") if held > 0 else 0.0
    return held / fair
