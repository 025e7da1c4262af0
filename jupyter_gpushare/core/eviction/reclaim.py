"""Reclaim: takes GPUs back from projects above their fair share.

Decides which projects may reclaim, from which, and whether a set of victims is fair. Priority plays
no role. Rules: docs/explanation/scheduling.md, Reclaim and Minimum run time.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cluster.pools import PoolState
from ..cluster.queues import QueueState
from ..cluster.quota import is_within_quota
from ..cluster.state import State
from ..cluster.work import Member, Work
from ..model.amounts import MILLI, NOTHING, Amounts
from ..queueing.order import NextWorkload
from .victim_candidates import ALL, NONE, SURPLUS, EvictionUnit, VictimCandidates, chunks

__all__ = ["ReclaimStrategy", "is_entitled", "protected_until"]


def is_entitled(turn: NextWorkload) -> bool:
    """Whether the project stays within its fair share with the request, and its non-preemptible
    work within quota.
    """
    if turn.leaf.exceeds(turn.leaf.fair, turn.ask):
        return False
    return turn.work.preemptible or is_within_quota(turn.leaf, turn.ask)


def protected_until(
    state: State, reclaimer: QueueState, victim: QueueState, started: int | None
) -> int:
    """The time until which a minimum run time protects a victim from this reclaimer, ms; 0: not
    protected.

    The lookup goes upwards from the child of the lowest common ancestor on the victim's side. A
    value on a project therefore protects it from its siblings, not from other departments.
    """
    if started is None:
        return 0
    _, side = _queues_below_common_ancestor(reclaimer, victim)
    for queue in side.path:
        if queue.rules.reclaim_min_runtime is not None:
            return started + queue.rules.reclaim_min_runtime
    return started + state.policy.options.reclaim_min_runtime


def _queues_below_common_ancestor(a: QueueState, b: QueueState) -> tuple[QueueState, QueueState]:
    """The ancestors of both queues just below their lowest common ancestor."""
    above_a, above_b = a.path[::-1], b.path[::-1]
    at = 0
    while at + 1 < min(len(above_a), len(above_b)) and above_a[at] is above_b[at]:
        at += 1
    return above_a[at], above_b[at]


class _HypotheticalShares:
    """What would be evicted so far, from which queues, and which quotas that relies on."""

    __slots__ = ("guaranteed", "resources", "taken", "units", "works")

    def __init__(self) -> None:
        self.units: list[EvictionUnit] = []
        self.works: set[Work] = set()
        self.taken: dict[QueueState, Amounts] = {}
        self.guaranteed: set[QueueState] = set()
        """Queues on the reclaimer's side whose quota justified an eviction."""
        self.resources = [False, False, False]

    def copy(self) -> _HypotheticalShares:
        other = _HypotheticalShares()
        other.units, other.works, other.taken = self.units, set(self.works), dict(self.taken)
        other.guaranteed, other.resources = set(self.guaranteed), self.resources
        return other


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
        self._hypothetical = _HypotheticalShares()

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

    def are_moved(self, units: Sequence[EvictionUnit], ask: Amounts) -> bool:
        """Whether every victim has a new place, so that no project loses anything."""
        return not units and ask.gpu > 0

    def _may_take_from(self, leaf: QueueState, ask: Amounts) -> bool:
        reclaimer, victim = _queues_below_common_ancestor(self.leaf, leaf)
        held = self.allocated_before[victim]
        return not held.fits_in(victim.share) or (
            self._is_guaranteed(reclaimer, ask) and not held.fits_in(victim.quota)
        )

    def _eligible_part(self, work: Work) -> int:
        """All of a workload; of one that started too recently only the pods above its minimum."""
        until = protected_until(self.state, self.leaf, self.pool.queue(work.project), work.started)
        if self.now >= until:
            return ALL
        return SURPLUS if work.elastic() == 2 else NONE

    def is_fair(self, units: Sequence[EvictionUnit], ask: Amounts) -> bool:
        """Whether the set of victims is allowed.

        Each chunk must come from a queue above its share (or above its quota, for a reclaimer
        within its quota), and no ancestor may exceed its fair share unless the sibling from which
        it takes remains more saturated.
        """
        hypothetical = self._extended(units)
        if not all(self._is_guaranteed(reclaimer, ask) for reclaimer in hypothetical.guaranteed):
            return False
        for work, members in _by_work(units[len(hypothetical.units) :]).items():
            if not self._charge(hypothetical, work, members, ask):
                return False
        hypothetical.units = list(units)
        if not self._is_balanced(hypothetical, ask):
            return False
        self._hypothetical = hypothetical
        return True

    def _extended(self, units: Sequence[EvictionUnit]) -> _HypotheticalShares:
        """A copy of the last result if these units only add to it, so that a large gang is not
        charged from the start for each of its pods. A workload's chunks depend on all its pods, so
        a workload that appears again starts from the beginning.
        """
        known = self._hypothetical
        more = units[len(known.units) :]
        if list(units[: len(known.units)]) == known.units and not any(
            unit.work in known.works for unit in more
        ):
            return known.copy()
        return _HypotheticalShares()

    def _charge(
        self,
        hypothetical: _HypotheticalShares,
        work: Work,
        members: list[tuple[Member, Amounts]],
        ask: Amounts,
    ) -> bool:
        """Charges one workload's chunks; returns whether each of them was allowed."""
        leaf = self.pool.queue(work.project)
        reclaimer, victim = _queues_below_common_ancestor(self.leaf, leaf)
        guaranteed = self._is_guaranteed(reclaimer, ask)
        hypothetical.works.add(work)
        for chunk in chunks(members):
            if chunk == NOTHING:
                continue
            held = self.allocated_before[victim].minus(hypothetical.taken.get(victim, NOTHING))
            if held.fits_in(victim.share):
                if not guaranteed or held.fits_in(victim.quota):
                    return False
                hypothetical.guaranteed.add(reclaimer)
            for queue in leaf.path:
                hypothetical.taken[queue] = hypothetical.taken.get(queue, NOTHING).plus(chunk)
            hypothetical.resources = [
                r or c > 0 for r, c in zip(hypothetical.resources, chunk, strict=True)
            ]
        return True

    def _is_guaranteed(self, queue: QueueState, ask: Amounts) -> bool:
        """Whether the queue stays within its own quota with the request."""
        return self.allocated_before[queue].plus(ask).fits_in(queue.quota)

    def _is_balanced(self, hypothetical: _HypotheticalShares, ask: Amounts) -> bool:
        used = [r or a > 0 for r, a in zip(hypothetical.resources, ask, strict=True)]
        left = {
            queue: self.allocated_before[queue].minus(hypothetical.taken.get(queue, NOTHING))
            for queue in (*self.leaf.path, *hypothetical.taken)
        }
        multiplier = max(MILLI, self.state.policy.options.saturation_multiplier)
        for queue in self.leaf.path:
            if not self.work.preemptible and not queue.non_preemptible.fits_in(queue.quota):
                return False
            reclaimer = left[queue].plus(ask)
            for sibling in hypothetical.taken:
                if sibling.parent is not queue.parent or sibling is queue:
                    continue
                for i in range(3):
                    if not used[i] or sibling.fair[i] <= 0:
                        continue
                    ratio = _ratio(reclaimer[i], queue.fair[i])
                    if (
                        ratio > 1
                        and ratio * multiplier >= _ratio(left[sibling][i], sibling.fair[i]) * MILLI
                    ):
                        return False
        return True


def _ratio(held: int, fair: int) -> float:
    if fair == 0:
        return float("inf") if held > 0 else 0.0
    return held / fair


def _by_work(units: Sequence[EvictionUnit]) -> dict[Work, list[tuple[Member, Amounts]]]:
    """The evicted pods per workload, with what each was charged, in the order of eviction."""
    found: dict[Work, list[tuple[Member, Amounts]]] = {}
    for unit in units:
        charged = found.setdefault(unit.work, [])
        charged.extend(
            (m, m.need.charge(m.node.capacity))
            for m in unit.members
            if m.node is not None and m.status == "releasing"
        )
    return found
