"""One pending workload and its pools at the end of a cycle: all that a reason may depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..cluster.capacity import EmptyCapacity
from ..cluster.people import PeopleSnapshot, PersonBound
from ..cluster.pools import BucketKey
from ..cluster.promised_quota import PromisedQuota
from ..cluster.work import Member, Work
from ..model.amounts import Amounts
from ..model.booked_window import BookedWindow
from ..model.decisions import QueueShare
from ..model.model import Policy
from ..model.requirements import PodRequirements

__all__ = ["PendingView", "FreeCapacity", "PoolView"]


class FreeCapacity(NamedTuple):
    """Milli-GPU that are free in a pool, and the largest free part: whole GPUs of one node, else a
    fraction of one GPU.
    """

    total: int
    largest: int


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool at the end of a cycle."""

    name: str
    queues: Mapping[str, QueueShare]
    listed: frozenset[str]
    """Queues that are configured or used here; the others are only ancestors."""
    non_preemptible: Mapping[str, Amounts]
    """What non-preemptible work of each queue holds."""
    paths: Mapping[str, tuple[str, ...]]
    """Project -> itself and the departments above."""
    shares: Mapping[str, Amounts]
    before: FreeCapacity
    """At the start of the cycle."""
    free: FreeCapacity
    machines: EmptyCapacity
    total: Amounts
    smallest: int
    preemptible_held: int
    """Milli-GPU that preemptible work of all projects holds."""
    reservation: tuple[str, tuple[str, ...]] | None = None
    """The workload with a reservation, and its nodes."""
    reserved_free: int = 0
    """Milli-GPU that are free on them."""
    open_nodes: Mapping[BucketKey, tuple[str, ...]] = field(default_factory=dict)
    """Ready nodes with something free, by what is free on them."""
    people: Mapping[str, PeopleSnapshot] = field(default_factory=dict)
    """The waiting people, by project, where a project has rules between its members."""
    shares_time: bool = False
    host_full: frozenset[str] = frozenset()
    """Projects whose idle workloads stay because their memory cannot be saved."""
    booked: Mapping[BookedWindow, int] = field(default_factory=dict)
    """Milli-GPU that are kept free for bookings."""
    promised: Mapping[str, PromisedQuota] = field(default_factory=dict)
    """By queue: quota that bookings need later."""


@dataclass(frozen=True, slots=True)
class PendingView:
    """One pending workload and all that its reason may depend on."""

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
    def members_to_place(self) -> Sequence[Member]:
        """The pods that have to start together now; all pods if none is pending."""
        return self.work.members_to_place() or list(self.work.members.values())

    def ask(self, view: PoolView) -> Amounts:
        """The cost of those pods in quota in this pool."""
        members_to_place = self.members_to_place
        if view.name in self.wants and len(members_to_place) == self.work.pending:
            return self.wants[view.name]
        total = Amounts()
        for member in members_to_place:
            total = total.plus(member.need.estimate(view.smallest))
        return total

    def person_bounds(self, view: PoolView) -> tuple[PersonBound, ...]:
        """The limits of the person in this pool, and what the person holds."""
        people = view.people.get(self.work.project)
        return () if people is None else people.bounds.get(self.work.user, ())

    @property
    def needs(self) -> list[PodRequirements]:
        return [member.need for member in self.members_to_place]
