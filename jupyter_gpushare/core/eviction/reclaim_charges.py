"""What a reclaim would take, queue by queue, kept while the set of victims grows.

The rules compare a queue's allocation before each chunk with its share. It only falls, so the last
chunk decides for all chunks of a queue, and sums suffice: adding a victim costs the depth of the
tree, wherever it is in victim order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ..cluster.queues import QueueState
from ..cluster.work import Member, Work
from ..model.amounts import NOTHING, Amounts
from .evicted_units import EvictedUnits
from .victim_candidates import EvictionUnit

__all__ = ["ReclaimCharges", "chunks"]


class _WorkCharge(NamedTuple):
    """What one workload's victims are charged."""

    units: tuple[EvictionUnit, ...]
    """In victim order; the first decides when the workload is charged."""
    total: Amounts
    last: Amounts
    """Its last chunk that is not empty."""


class ReclaimCharges:
    """Charges per workload and per queue. `add` may be undone."""

    def __init__(
        self, leaf_of: Callable[[Work], QueueState], side_of: Callable[[QueueState], QueueState]
    ) -> None:
        self.leaf_of, self.side_of = leaf_of, side_of
        self.judged = EvictedUnits()
        """The units that are charged."""
        self.total = self._former_total = NOTHING
        """The sum of all charges."""
        self.taken: dict[QueueState, Amounts] = {}
        """Per queue, from the victims' projects up."""
        self.last: dict[QueueState, Work] = {}
        """The workload charged last, per queue just below the common ancestor."""
        self._by_work: dict[Work, _WorkCharge] = {}
        self._former: list[tuple[dict[Any, Any], object, object]] = []

    def add(self, units: Iterable[EvictionUnit]) -> set[QueueState]:
        """Charges more units. Returns the queues just below the common ancestor that lose by it."""
        self._former.clear()
        self._former_total = self.total
        added: dict[Work, list[EvictionUnit]] = {}
        for unit in units:
            added.setdefault(unit.work, []).append(unit)
        return {side for work, more in added.items() if (side := self._charge(work, more))}

    def undo(self) -> None:
        """Takes the last `add` back."""
        self.total = self._former_total
        while self._former:
            table, key, value = self._former.pop()
            if value is None:
                del table[key]
            else:
                table[key] = value

    def before_last(self, side: QueueState) -> Amounts:
        """What was taken from this queue before its last chunk."""
        return self.taken[side].minus(self._by_work[self.last[side]].last)

    def _charge(self, work: Work, more: list[EvictionUnit]) -> QueueState | None:
        """Charges one workload again, with more of its units; None: that costs nothing."""
        known = self._by_work.get(work)
        charge = _charge_of((*known.units, *more) if known else tuple(more))
        self._set(self._by_work, work, charge)
        if charge.last == NOTHING:
            return None
        leaf = self.leaf_of(work)
        difference = charge.total.minus(known.total) if known else charge.total
        self.total = self.total.plus(difference)
        for queue in leaf.path:
            self._set(self.taken, queue, self.taken.get(queue, NOTHING).plus(difference))
        side = self.side_of(leaf)
        self._set(self.last, side, self._last_of(side, work, known))
        return side

    def _last_of(self, side: QueueState, work: Work, known: _WorkCharge | None) -> Work:
        """The workload charged last, after this one was; `known` is its former charge."""
        last = self.last.get(side)
        if last is None:
            return work
        if last is not work:
            return max(last, work, key=self._turn)
        if known is None or self._turn(work) >= known.units[0].place:
            return work
        others = (
            other
            for other, charge in self._by_work.items()
            if charge.last != NOTHING and self.side_of(self.leaf_of(other)) is side
        )
        return max(others, key=self._turn)

    def _turn(self, work: Work) -> int:
        return self._by_work[work].units[0].place

    def _set(self, table: dict[Any, Any], key: object, value: object) -> None:
        self._former.append((table, key, table.get(key)))
        table[key] = value


def _charge_of(units: tuple[EvictionUnit, ...]) -> _WorkCharge:
    units = tuple(sorted(units, key=lambda unit: unit.place))
    total = last = NOTHING
    for chunk in chunks(_released(units)):
        total = total.plus(chunk)
        last = last if chunk == NOTHING else chunk
    return _WorkCharge(units, total, last)


def _released(units: Iterable[EvictionUnit]) -> Iterable[tuple[Member, Amounts]]:
    """The evicted pods, with what each was charged, in the order of eviction."""
    for unit in units:
        for member in unit.members:
            if member.node is not None and member.status == "releasing":
                yield member, member.need.charge(member.node.capacity)


def chunks(members: Iterable[tuple[Member, Amounts]]) -> list[Amounts]:
    """One workload's victims as they are charged: pods beyond the minimum one by one, then the
    rest.
    """
    core, single = NOTHING, []
    seen: dict[object, int] = {}
    for member, charge in members:
        count = seen[member.podset] = seen.get(member.podset, 0) + 1
        if count > member.podset.minimum:
            single.append(charge)
        else:
            core = core.plus(charge)
    return [*single, core]
