"""Groups pending workloads into equivalence classes, so that one result serves all equal ones.

`refresh` classifies everything that has changed since the last call.
"""

from __future__ import annotations

from ..model.amounts import Amounts
from ..model.model import DEFAULT_POOL, Policy, Project
from .cow_dict import CowDict
from .easiest_requests import EasiestRequests
from .nodes import NodeState
from .people import PeopleLedger
from .pools import PoolState
from .time_sharing import TIME_SHARING
from .topology import problem_of
from .undo_log import UndoLog
from .versions import VersionCounter
from .work import EquivalenceClass, Work, place_in_line

__all__ = ["PendingIndex"]

Classification = tuple[tuple[object, ...], tuple[str, ...], tuple[object, ...] | None]


class PendingIndex:
    """Pools, workloads and the equivalence classes of pending ones. `State` fills it."""

    def __init__(self) -> None:
        self.undo_log = UndoLog()
        self.versions = VersionCounter()
        self.people = PeopleLedger(self.undo_log)
        self.policy = Policy()
        self.nodes: dict[str, NodeState] = {}
        self.works: dict[str, Work] = {}
        self.pools: dict[str, PoolState] = {}
        self.projects: dict[str, Project] = {}
        self.eq_classes: dict[tuple[object, ...], EquivalenceClass] = {}
        self.by_pools: dict[tuple[str, ...], dict[EquivalenceClass, None]] = {}
        """The classes by their list of pools, in the order of `eq_classes`."""
        self.easiest = EasiestRequests()
        self.waiting: CowDict[EquivalenceClass] = CowDict()
        """Pending workloads that may be scheduled, by id."""
        self.unschedulable: dict[str, Work] = {}
        """Pending workloads that may not be scheduled: held, unknown project or pool, invalid."""
        self.stale: dict[str, Work] = {}
        self.booked_by_members: frozenset[str] = frozenset()
        """Projects in which a booking is one member's."""
        self.dirty: dict[Work, None] = {}
        """Changed since they were classified."""

    def refresh(self) -> None:
        """Classifies every changed workload again."""
        for pool in self.pools.values():
            if pool.smallest != pool.estimated_with:
                self._estimate_again(pool)
        for work in self.dirty:
            classification = self._classify(work)
            if (
                classification is None
                or work.eq_class is None
                or work.eq_class.classification != classification
                or work.eq_class_entry != (place_in_line(work)[1], work.id)
            ):
                self._remove(work)
                if self.works.get(work.id) is work:
                    self._add(work, classification)
        self.dirty.clear()

    def _remove(self, work: Work) -> None:
        self.unschedulable.pop(work.id, None)
        self.stale.pop(work.id, None)
        eq_class = work.eq_class
        if eq_class is None:
            return
        work.eq_class = None
        if self.waiting.get(work.id) is eq_class:
            del self.waiting[work.id]
        eq_class.leave(work)
        self._change_demand(eq_class, -1)
        if eq_class.members:
            if eq_class.sample is work:
                present = (
                    self.works[id_] for _, id_ in eq_class.members if id_ in self.works
                )  # others are about to be removed
                eq_class.sample = next(present, work)
            return
        del self.eq_classes[eq_class.key]
        del self.by_pools[eq_class.pools][eq_class]
        if not self.by_pools[eq_class.pools]:
            del self.by_pools[eq_class.pools]
        if not eq_class.is_room:
            self.easiest.remove(eq_class)
        for pool in eq_class.pools:
            self.pools[pool].queue(eq_class.project).pending.discard(eq_class)

    def _classify(self, work: Work) -> Classification | None:
        """A workload's class, its pools, and which pods are pending (None: all). None: it is not
        pending, or may not be scheduled.

        A simulation leaves most workloads as they were; comparing classifications keeps their
        results.
        """
        if not work.pending or work.held or self.works.get(work.id) is not work:
            return None
        pools = self.pools_for(work)
        if not pools or work.project not in self.projects or problem_of(work.workload, self.policy):
            return None
        work.takes_turns = any(TIME_SHARING.first(self.pools[name].config) for name in pools)
        if work.is_fresh and not work.nominated and not work.promoted:
            who, waits = self._person(work, pools), work.waits_for_turn
            return (
                (work.project, pools, work.priority, work.preemptible, waits, who, work.shape),
                pools,
                None,
            )
        return (
            (work.id,),
            pools,
            (*((m.name, m.status, m.nominated) for m in work.members.values()),),
        )

    def _person(self, work: Work, pools: tuple[str, ...]) -> str:
        """The user, if the project has rules between its members in one of these pools, or if one
        of them has booked GPUs.
        """
        if work.project in self.booked_by_members:
            return work.user
        if not self.people.is_used:
            return ""
        ruled = any(self.pools[name].queue(work.project).people is not None for name in pools)
        return work.user if ruled else ""

    def _add(self, work: Work, classification: Classification | None) -> None:
        if work.is_stale:
            self.stale[work.id] = work
        elif work.stale_since is not None:
            self.undo_log.assign(work, "stale_since", None)
        if not work.pending:
            return
        if classification is None:
            self.unschedulable[work.id] = work
            return
        key, pools, _ = classification
        eq_class = self.eq_classes.get(key)
        if eq_class is None:
            eq_class = self.eq_classes[key] = EquivalenceClass(key, work, pools, classification)
            eq_class.user = self._person(work, pools)
            eq_class.wants = {pool: self._wanted(work, self.pools[pool]) for pool in pools}
            for pool in pools:
                self.pools[pool].queue(work.project).pending.add(eq_class)
            self.by_pools.setdefault(pools, {})[eq_class] = None
            if not eq_class.is_room:
                self.easiest.add(eq_class)
        eq_class.join(work)
        work.eq_class = self.waiting[work.id] = eq_class
        self._change_demand(eq_class, 1)

    def _change_demand(self, eq_class: EquivalenceClass, sign: int) -> None:
        for name, amount in eq_class.wants.items():
            pool = self.pools[name]
            pool.queue(eq_class.project).want(amount, sign)
            pool.touch()

    def _wanted(self, work: Work, pool: PoolState) -> Amounts:
        amounts = [
            m.need.estimate(pool.smallest) for m in work.members.values() if m.status == "pending"
        ]
        return (
            amounts[0]
            if len(amounts) == 1
            else Amounts(*(sum(a[i] for a in amounts) for i in range(3)))
        )

    def _estimate_again(self, pool: PoolState) -> None:
        """Counts pending GPU memory requests again after the smallest device has changed."""
        pool.estimated_with = pool.smallest
        for eq_class in self.eq_classes.values():
            if pool.name in eq_class.wants:
                was = eq_class.wants[pool.name]
                now = eq_class.wants[pool.name] = self._wanted(eq_class.sample, pool)
                eq_class.waiting_class = None
                difference = now.minus(was)
                pool.queue(eq_class.project).want(
                    Amounts(*(len(eq_class.members) * part for part in difference)), 1
                )

    def pools_for(self, work: Work) -> tuple[str, ...]:
        """The known pools where it may go, in order: the pool where it already runs; else its own
        list, its project's list, or `default`.
        """
        already = work.pool()
        if already is not None:
            return (already,)
        project = self.projects.get(work.project)
        listed = (
            work.workload.node_pools or (project.node_pools if project else ()) or (DEFAULT_POOL,)
        )
        promised = {
            self.nodes[m.nominated].pool for m in work.members.values() if m.nominated in self.nodes
        }
        known = tuple(name for name in dict.fromkeys(listed) if name in self.pools)
        # A promised pool comes first; otherwise the room made there goes to workloads that try it
        # first.
        return tuple(sorted(known, key=lambda name: name not in promised)) if promised else known
