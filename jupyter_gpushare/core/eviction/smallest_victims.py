"""Option `victims: smallest`: the cheapest set of victims instead of the first that suffices in the
order of fairness.

Cheap means few GPUs lost, then little work lost, then few units. Who may be taken from does not
change: the same candidates, the same judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from ..cluster.pools import PoolState
from ..model.requirements import PodRequirements
from .victim_candidates import EvictionUnit

__all__ = ["SmallestVictimSet"]

Cost = tuple[int, int, int, str]
"""The price (`_price`), and the node."""


class SmallestVictimSet:
    """Nodes of a pool by what it would cost to make room for one need there."""

    def __init__(
        self, pool: PoolState, need: PodRequirements, units: Iterable[EvictionUnit]
    ) -> None:
        self.pool, self.need = pool, need
        self.by_host: dict[str, list[EvictionUnit]] = {}
        for unit in units:
            for host in unit.hosts:
                self.by_host.setdefault(host, []).append(unit)
        self.heap = [cost for cost in map(self._cost, self.by_host) if cost is not None]
        heapify(self.heap)

    def next(self) -> list[EvictionUnit] | None:
        """The units to evict at the cheapest node that was not tried yet; None when no node is
        left.
        """
        while self.heap:
            cost = heappop(self.heap)
            now = self._cost(cost[3])
            if now is None:
                continue
            if now > cost:  # somebody here was taken meanwhile
                heappush(self.heap, now)
                continue
            return self._set(cost[3])
        return None

    def again(self, host: str) -> None:
        """The node may have room for one more."""
        cost = self._cost(host)
        if cost is not None:
            heappush(self.heap, cost)

    def _cost(self, host: str) -> Cost | None:
        units = self._set(host)
        if not units:
            return None
        return *_price(units), host

    def _set(self, host: str) -> list[EvictionUnit]:
        """The cheapest of: one unit that suffices, small ones first until they do, young ones first
        until they do; none that turn out needless. Trying every set would cost too much on a node
        with many.
        """
        units = [u for u in self.by_host.get(host, ()) if not u.taken]
        units.sort(key=lambda u: (u.charge.gpu, -u.work.created, u.work.id))
        single = next(([unit] for unit in units if self._suffices(host, [unit])), [])
        small = self._first_of(host, units)
        young = self._first_of(
            host, sorted(units, key=lambda u: (-u.work.created, u.charge.gpu, u.work.id))
        )
        return min((option for option in (single, small, young) if option), key=_price, default=[])

    def _first_of(self, host: str, units: list[EvictionUnit]) -> list[EvictionUnit]:
        """As many of these as suffice, without those that turn out needless."""
        chosen: list[EvictionUnit] = []
        for unit in units:
            chosen.append(unit)
            if self._suffices(host, chosen):
                break
        else:
            return []
        for unit in sorted(chosen, key=lambda u: (-u.charge.gpu, u.work.created, u.work.id)):
            rest = [u for u in chosen if u is not unit]
            if self._suffices(host, rest):
                chosen = rest
        return chosen

    def _suffices(self, host: str, units: list[EvictionUnit]) -> bool:
        node = self.pool.nodes.get(host)
        if node is None or host not in self.pool.where or not node.admits(self.need):
            return False
        return node.would_fit(
            self.need, [(m.need, m.devices) for u in units for m in u.members if m.node is node]
        )


def _price(units: list[EvictionUnit]) -> tuple[int, int, int]:
    """GPUs lost (milli); then the work lost, which for sets of one size compares as GPUs x age
    does, whatever the time; then units.
    """
    return (
        sum(u.charge.gpu for u in units),
        -sum(u.charge.gpu * u.work.created for u in units),
        len(units),
    )
