"""Who is waiting for what: files every pending workload under its kind, so that one verdict serves
all that are alike.

Refuses to know whether there is room. Filing is done in one go (`refresh`) for whatever was touched
since the last time.
"""

from __future__ import annotations

from ..model.amounts import Amounts
from ..model.model import DEFAULT_POOL, Policy, Project
from .cow_dict import CowDict
from .nodes import NodeState
from .pools import PoolState, tick
from .topology import problem_of
from .undo_log import UndoLog
from .work import EquivalenceClass, Work

__all__ = ["PendingIndex"]

Filing = tuple[tuple[object, ...], tuple[str, ...], tuple[object, ...] | None]


class PendingIndex:
    """Pools, workloads, and the kinds of those that wait. What it holds is filled by `State`."""

    def __init__(self) -> None:
        self.journal = UndoLog()
        self.policy = Policy()
        self.nodes: dict[str, NodeState] = {}
        self.works: dict[str, Work] = {}
        self.pools: dict[str, PoolState] = {}
        self.projects: dict[str, Project] = {}
        self.alike: dict[tuple[object, ...], EquivalenceClass] = {}
        self.waiting: CowDict[EquivalenceClass] = CowDict()
        """Pending workloads that may ask, by id."""
        self.apart: dict[str, Work] = {}
        """Pending workloads that may not ask: held, unknown project or pool, invalid."""
        self.stale: dict[str, Work] = {}
        self.dirty: dict[Work, None] = {}
        """Touched since they were filed."""

    def refresh(self) -> None:
        """Files every workload that changed under what it is waiting for."""
        for pool in self.pools.values():
            if pool.smallest != pool.estimated_with:
                self._estimate_again(pool)
        for work in self.dirty:
            filing = self._filing(work)
            if filing is None or work.alike is None or work.alike.filing != filing:
                self._withdraw(work)
                if self.works.get(work.id) is work:
                    self._enlist(work, filing)
        self.dirty.clear()

    def _withdraw(self, work: Work) -> None:
        self.apart.pop(work.id, None)
        self.stale.pop(work.id, None)
        alike = work.alike
        if alike is None:
            return
        work.alike = None
        if self.waiting.get(work.id) is alike:
            del self.waiting[work.id]
        alike.leave(work)
        self._want(alike, -1)
        if alike.members:
            if alike.sample is work:
                present = (
                    self.works[id_] for _, id_ in alike.members if id_ in self.works
                )  # others are about to be withdrawn
                alike.sample = next(present, work)
            return
        del self.alike[alike.key]
        for pool in alike.pools:
            self.pools[pool].queue(alike.project).pending.discard(alike)

    def _filing(self, work: Work) -> Filing | None:
        """Under what a workload waits: its kind, its pools, and which pods (None: all). None when
        it does not, or may not ask.

        Most workloads that a simulation touched are back where they were; what is remembered of
        them must not be lost over that.
        """
        if not work.pending or work.held or self.works.get(work.id) is not work:
            return None
        pools = self.pools_for(work)
        if not pools or work.project not in self.projects or problem_of(work.workload, self.policy):
            return None
        if work.is_fresh and not any(m.nominated for m in work.members.values()):
            return (work.project, pools, work.priority, work.preemptible, work.shape), pools, None
        return (
            (work.id,),
            pools,
            (*((m.name, m.status, m.nominated) for m in work.members.values()),),
        )

    def _enlist(self, work: Work, filing: Filing | None) -> None:
        if work.is_stale:
            self.stale[work.id] = work
        elif work.stale_since is not None:
            self.journal.assign(work, "stale_since", None)
        if not work.pending:
            return
        if filing is None:
            self.apart[work.id] = work
            return
        key, pools, _ = filing
        alike = self.alike.get(key)
        if alike is None:
            alike = self.alike[key] = EquivalenceClass(key, work, pools, filing)
            alike.wants = {pool: self._wanted(work, self.pools[pool]) for pool in pools}
            for pool in pools:
                self.pools[pool].queue(work.project).pending.add(alike)
        alike.join(work)
        work.alike = self.waiting[work.id] = alike
        self._want(alike, 1)

    def _want(self, alike: EquivalenceClass, sign: int) -> None:
        for name, amount in alike.wants.items():
            pool = self.pools[name]
            pool.queue(alike.project).want(amount, sign)
            pool.version = tick()

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
        """The smallest device changed, and with it what pending requests for GPU memory count."""
        pool.estimated_with = pool.smallest
        for alike in self.alike.values():
            if pool.name in alike.wants:
                was = alike.wants[pool.name]
                now = alike.wants[pool.name] = self._wanted(alike.sample, pool)
                difference = now.minus(was)
                pool.queue(alike.project).want(
                    Amounts(*(len(alike.members) * part for part in difference)), 1
                )

    def pools_for(self, work: Work) -> tuple[str, ...]:
        """The pools where it may go, in order: where it already is, else its list, its project's
        list, or `default`; known ones only.
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
        # a promise comes before the list, or the room that was made in a later pool goes to those
        # who try that pool first
        return tuple(sorted(known, key=lambda name: name not in promised)) if promised else known
