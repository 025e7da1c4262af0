"""Taking between queues by fairness: who may ask, who may be taken from, and whether a set of
victims is fair.

Priority plays no role here: a project gets back what it is entitled to from those who hold more
than they are. Source: scheduling rules, sections 6 and 7.4.
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
    """Whether the project stays within its fair share with what it asks for, and its
    non-preemptible work within quota (section 6.1).
    """
    if turn.leaf.exceeds(turn.leaf.fair, turn.ask):
        return False
    return turn.work.preemptible or is_within_quota(turn.leaf, turn.ask)


def protected_until(
    state: State, reclaimer: QueueState, victim: QueueState, started: int | None
) -> int:
    """Until when a victim's minimum run time protects it from this reclaimer, ms; 0 when it does
    not.

    The value is looked up from the child of the lowest common ancestor on the victim's side
    upwards, so a value on a project protects it from its siblings, not from other departments.
    """
    if started is None:
        return 0
    _, side = _levelled(reclaimer, victim)
    for queue in side.path:
        if queue.rules.reclaim_min_runtime is not None:
            return started + queue.rules.reclaim_min_runtime
    return started + state.policy.options.reclaim_min_runtime


def _levelled(a: QueueState, b: QueueState) -> tuple[QueueState, QueueState]:
    """The ancestors of both just below their lowest common ancestor."""
    above_a, above_b = a.path[::-1], b.path[::-1]
    at = 0
    while at + 1 < min(len(above_a), len(above_b)) and above_a[at] is above_b[at]:
        at += 1
    return above_a[at], above_b[at]


class _HypotheticalShares:
    """What was taken so far, from whom, and on what it rests."""

    __slots__ = ("relied", "resources", "taken", "units", "works")

    def __init__(self) -> None:
        self.units: list[EvictionUnit] = []
        self.works: set[Work] = set()
        self.taken: dict[QueueState, Amounts] = {}
        self.relied: set[QueueState] = set()
        """Queues of the reclaimer's side whose quota had to stand in."""
        self.resources = [False, False, False]

    def copy(self) -> _HypotheticalShares:
        other = _HypotheticalShares()
        other.units, other.works, other.taken = self.units, set(self.works), dict(self.taken)
        other.relied, other.resources = set(self.relied), self.resources
        return other


class ReclaimStrategy:
    """The rules of one reclaim: candidates through `victims`, and the verdict on a set of them
    through `is_fair`.
    """

    def __init__(self, state: State, pool: PoolState, turn: NextWorkload, now: int) -> None:
        self.state, self.pool, self.leaf, self.work, self.now = (
            state,
            pool,
            turn.leaf,
            turn.work,
            now,
        )
        self.before = {queue: queue.allocated for queue in pool.queues.values()}
        """What everybody held before anything was taken."""
        self.ask = turn.ask
        self._ledger = _HypotheticalShares()

    def victims(self) -> VictimCandidates:
        """Preemptible running work of every other project from which one of the two rules could
        ever allow to take.
        """
        others = [q for q in self.pool.queues.values() if q is not self.leaf and q.lenders]
        return VictimCandidates(
            self.pool,
            [q for q in others if self._may_take_from(q, self.ask)],
            self._accepts,
            exist=bool(others),
        )

    def _may_take_from(self, leaf: QueueState, ask: Amounts) -> bool:
        mine, theirs = _levelled(self.leaf, leaf)
        held = self.before[theirs]
        return not held.fits_in(theirs.share) or (
            self._is_guaranteed(mine, ask) and not held.fits_in(theirs.quota)
        )

    def _accepts(self, work: Work) -> int:
        """A gang that started too recently is left alone; an elastic workload may still lose what
        is above its minimum.
        """
        until = protected_until(self.state, self.leaf, self.pool.queue(work.project), work.started)
        if self.now >= until:
            return ALL
        return SURPLUS if work.elastic() == 2 else NONE

    def is_fair(self, units: Sequence[EvictionUnit], ask: Amounts) -> bool:
        """Whether each chunk is taken from someone above its share (or above its quota, for someone
        within quota), and no ancestor goes above its fair share unless the sibling it takes from is
        still more saturated (sections 6.3, 6.4).
        """
        ledger = self._continued(units)
        if not all(self._is_guaranteed(mine, ask) for mine in ledger.relied):
            return False
        for work, members in _by_work(units[len(ledger.units) :]).items():
            if not self._charge(ledger, work, members, ask):
                return False
        ledger.units = list(units)
        if not self._is_balanced(ledger, ask):
            return False
        self._ledger = ledger
        return True

    def _continued(self, units: Sequence[EvictionUnit]) -> _HypotheticalShares:
        """A copy of the last ledger where these units only add to it, so that a large gang is not
        charged from the start for each of its pods. A workload's chunks depend on all of its pods,
        so one that comes up again starts a new ledger.
        """
        known = self._ledger
        more = units[len(known.units) :]
        if list(units[: len(known.units)]) == known.units and not any(
            unit.work in known.works for unit in more
        ):
            return known.copy()
        return _HypotheticalShares()

    def _charge(
        self,
        ledger: _HypotheticalShares,
        work: Work,
        members: list[tuple[Member, Amounts]],
        ask: Amounts,
    ) -> bool:
        """Takes one workload's chunks; whether each of them was allowed."""
        victim = self.pool.queue(work.project)
        mine, theirs = _levelled(self.leaf, victim)
        guaranteed = self._is_guaranteed(mine, ask)
        ledger.works.add(work)
        for chunk in chunks(members):
            if chunk == NOTHING:
                continue
            held = self.before[theirs].minus(ledger.taken.get(theirs, NOTHING))
            if held.fits_in(theirs.share):
                if not guaranteed or held.fits_in(theirs.quota):
                    return False
                ledger.relied.add(mine)
            for queue in victim.path:
                ledger.taken[queue] = ledger.taken.get(queue, NOTHING).plus(chunk)
            ledger.resources = [r or c > 0 for r, c in zip(ledger.resources, chunk, strict=True)]
        return True

    def _is_guaranteed(self, queue: QueueState, ask: Amounts) -> bool:
        """Whether the reclaimer's side stays within its own quota."""
        return self.before[queue].plus(ask).fits_in(queue.quota)

    def _is_balanced(self, ledger: _HypotheticalShares, ask: Amounts) -> bool:
        used = [r or a > 0 for r, a in zip(ledger.resources, ask, strict=True)]
        left = {
            queue: self.before[queue].minus(ledger.taken.get(queue, NOTHING))
            for queue in (*self.leaf.path, *ledger.taken)
        }
        multiplier = max(MILLI, self.state.policy.options.saturation_multiplier)
        for queue in self.leaf.path:
            if not self.work.preemptible and not queue.fixed.fits_in(queue.quota):
                return False
            mine = left[queue].plus(ask)
            for sibling in ledger.taken:
                if sibling.parent is not queue.parent or sibling is queue:
                    continue
                for i in range(3):
                    if not used[i] or sibling.fair[i] <= 0:
                        continue
                    ratio = _ratio(mine[i], queue.fair[i])
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
    """What is taken per workload, with what each pod was charged, in the order of taking."""
    found: dict[Work, list[tuple[Member, Amounts]]] = {}
    for unit in units:
        charged = found.setdefault(unit.work, [])
        charged.extend(
            (m, m.need.charge(m.node.capacity))
            for m in unit.members
            if m.node is not None and m.status == "releasing"
        )
    return found
