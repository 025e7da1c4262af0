"""Where options of a node pool act while room is made for a workload."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from ..cluster.pools import PoolState
from ..model.pool_option import Hook
from ..model.requirements import PodRequirements
from .evicted_units import EvictedUnits
from .victim_candidates import EvictionUnit

__all__ = ["EVICTION_LIMIT", "VICTIM_SELECTION", "SelectVictims", "VictimSelection"]


class VictimSelection(Protocol):
    """Chooses sets of victims that make room for one pod, the preferred set first."""

    need: PodRequirements

    def next(self) -> list[EvictionUnit] | None:
        """The next set; None: there is none left."""

    def requeue(self, host: str) -> None:
        """Adds the node again: it may have room for another pod."""


SelectVictims = Callable[[PoolState, PodRequirements, Iterable[EvictionUnit]], VictimSelection]

VICTIM_SELECTION: Final[Hook[SelectVictims]] = Hook("victim selection")
"""Replaces the default selection: the first victims in the order of fairness that suffice."""

EVICTION_LIMIT: Final[Hook[Callable[[EvictedUnits], bool]]] = Hook("eviction limit")
"""Whether these units may be evicted for one workload; asked before the rules of fairness."""
