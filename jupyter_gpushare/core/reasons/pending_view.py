"""One waiting workload and its pools as they stood at a cycle's end: all that a reason may depend
on. Values only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..cluster.capacity import EmptyCapacity
from ..cluster.work import Member, Work
from ..model.amounts import Amounts
from ..model.decisions import QueueShare
from ..model.model import Policy
from ..model.requirements import PodRequirements

__all__ = ["PendingView", "FreeCapacity", "PoolView"]


class FreeCapacity(NamedTuple):
    """Milli-GPU that are free in a pool, and the largest request that would find room on one node."""

    total: int
    largest: int


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool at the end of a cycle."""

    name: str
    queues: Mapping[str, QueueShare]
    listed: frozenset[str]
    """Those that are configured here or used; the others are only on somebody's path."""
    fixed: Mapping[str, Amounts]
    """What each queue holds non-preemptibly."""
    paths: Mapping[str, tuple[str, ...]]
    """Project -> itself and the departments above."""
    shares: Mapping[str, Amounts]
    before: FreeCapacity
    """At the start of the cycle."""
    free: FreeCapacity
    machines: EmptyCapacity
    total: Amounts
    smallest: int
    lent: int
    """Milli-GPU that preemptible work of all projects holds."""
    reservation: tuple[str, tuple[str, ...]] | None = None
    """Who keeps nodes free for itself, and which."""
    kept: int = 0
    """Milli-GPU that are free there."""


@dataclass(frozen=True, slots=True)
class PendingView:
    """One waiting workload and all that its reason may depend on."""

    id: str
    work: Work
    pools: tuple[str, ...]
    views: Mapping[str, PoolView]
    policy: Policy
    is_project_known: bool
    is_held: bool
    is_promised: bool
    victims: int
    found: Mapping[str, int]
    wants: Mapping[str, Amounts]

    @property
    def view(self) -> PoolView:
        """The first pool of its list."""
        return self.views[self.pools[0]]

    @property
    def asking(self) -> Sequence[Member]:
        """The pods that have to start together now: its way to its minimum, or one more above it;
        all, if none can be told apart.
        """
        return self.work.asking() or list(self.work.members.values())

    def ask(self, view: PoolView) -> Amounts:
        """What those cost in quota in this pool."""
        asking = self.asking
        if view.name in self.wants and len(asking) == self.work.pending:
            return self.wants[view.name]
        total = Amounts()
        for member in asking:
            total = total.plus(member.need.estimate(view.smallest))
        return total

    @property
    def needs(self) -> list[PodRequirements]:
        return [member.need for member in self.asking]
