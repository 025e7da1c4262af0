"""The victims considered so far, node by node, and what each node would have without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..cluster.departures import Departures
from ..cluster.nodes import NodeState
from ..cluster.work import Member
from ..model.requirements import PodRequirements
from .victim_candidates import EvictionUnit

__all__ = ["NodeVictims"]


class NodeVictims:
    """Grows by one unit at a time, at a cost that does not depend on the units before it.

    Sums are kept per node and computed again after a unit there was evicted or moved.
    """

    def __init__(self, nodes: Mapping[str, NodeState]) -> None:
        self.nodes = nodes
        self._units: dict[str, list[EvictionUnit]] = {}
        self._departures: dict[str, Departures] = {}
        self._moved_to: dict[NodeState, list[Member]] = {}

    def add(self, unit: EvictionUnit) -> None:
        """Considers one more unit, on each of its nodes."""
        for host in unit.hosts:
            self._units.setdefault(host, []).append(unit)
            departures = self._departures.get(host)
            if departures is not None:
                _count(departures, unit)

    def on(self, host: str) -> list[EvictionUnit]:
        """The considered units on this node that have not been used, in victim order."""
        return self._units[host]

    def would_fit(self, need: PodRequirements, host: str) -> bool:
        """Whether the pod could be promised a place on this node if they left, and units that
        were moved there too.
        """
        departures = self._departures.get(host)
        if departures is None:
            departures = self._departures[host] = self._sum(self.nodes[host])
        return departures.would_fit(need)

    def _sum(self, node: NodeState) -> Departures:
        departures = Departures(node)
        for unit in self._units[node.name]:
            _count(departures, unit)
        for member in self._moved_to.get(node, ()):
            departures.add(member.need, member.devices)
        return departures

    def drop_used(self, used: Iterable[EvictionUnit], moved: Iterable[EvictionUnit]) -> None:
        """Drops units that were just used; `moved` are all that were promised other places."""
        for host in {host for unit in used for host in unit.hosts}:
            if host in self._units:
                self._units[host] = [unit for unit in self._units[host] if not unit.is_used]
                self._departures.pop(host, None)
        moved_to: dict[NodeState, list[Member]] = {}
        for unit in moved:
            for member in unit.members:
                if member.status == "pipelined" and member.node is not None:
                    moved_to.setdefault(member.node, []).append(member)
        for node in (*self._moved_to, *moved_to):
            self._departures.pop(node.name, None)
        self._moved_to = moved_to

    def clear(self) -> None:
        """Forgets the units, but not what was moved."""
        self._units.clear()
        self._departures.clear()


def _count(departures: Departures, unit: EvictionUnit) -> None:
    for member in unit.members:
        if member.node is departures.node:
            departures.add(member.need, member.devices)
