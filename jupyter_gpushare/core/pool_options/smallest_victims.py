"""Option `victims: smallest`: the cheapest set of victims, not the first that suffices.

Cheap means few GPUs evicted, then little work lost, then few units. Candidates and validation are
the same as without the option.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from ..cluster.departures import Departures
from ..cluster.pools import PoolState
from ..eviction.hooks import VICTIM_SELECTION
from ..eviction.victim_candidates import EvictionUnit, with_extras
from ..model.pool_option import Choice, PoolOption
from ..model.requirements import PodRequirements

__all__ = ["VICTIMS", "SmallestVictimSet"]

Cost = tuple[int, int, int, str]
"""The price (`_price`), and the node."""


class SmallestVictimSet:
    """The nodes of a pool by the price of making room there for one pod."""

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
        """The units to evict on the cheapest node not tried yet; None when no node is left."""
        while self.heap:
            cost = heappop(self.heap)
            now = self._cost(cost[3])
            if now is None:
                continue
            if now > cost:  # a unit on this node was used meanwhile
                heappush(self.heap, now)
                continue
            return self._smallest_set(cost[3])
        return None

    def requeue(self, host: str) -> None:
        """Adds the node again: it may have room for one more pod."""
        cost = self._cost(host)
        if cost is not None:
            heappush(self.heap, cost)

    def _cost(self, host: str) -> Cost | None:
        units = self._smallest_set(host)
        if not units:
            return None
        return *_price(units), host

    def _smallest_set(self, host: str) -> list[EvictionUnit]:
        """The cheapest of three sets: one unit that suffices, small units first, young units first.

        Units that turn out needless are left out. Trying all sets would cost too much on a full
        node.
        """
        units = [u for u in self.by_host.get(host, ()) if not u.is_used]
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
        if node is None or host not in self.pool.bucket_of or not node.admits(self.need):
            return False
        departures = Departures(node)
        for unit in units:
            for member in unit.members:
                if member.node is node:
                    departures.add(member.need, member.devices)
        return departures.would_fit(self.need)


def _price(units: list[EvictionUnit]) -> tuple[int, int, int]:
    """Milli-GPU evicted, then the work lost, then the number of units.

    Among sets of one size, comparing GPUs x age does not depend on the current time.
    """
    units = with_extras(units)
    return (
        sum(u.charge.gpu for u in units),
        -sum(u.charge.gpu * u.work.created for u in units),
        len(units),
    )


VICTIMS = PoolOption(
    key="victims",
    values=Choice(("fair", "smallest")),
    default="fair",
    documentation=(
        "Whose pods make room: the first in the order of fairness (`fair`), or the set that loses"
        " the fewest GPUs and the least work (`smallest`)."
    ),
    hook=VICTIM_SELECTION,
    supply=lambda value: SmallestVictimSet if value == "smallest" else None,
)
