"""Why everybody else waits: the view of one cycle's end, and the reasons read off it.

The view is taken at once and cheaply; a reason is worked out when somebody reads it, so ten thousand waiting workloads cost nothing to a
cycle in which nobody asks about them. What is read later is still the truth of that cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .amounts import GPU
from .case import Case, Free, PoolView
from .decisions import Evict, QueueShare
from .pools import PoolState
from .positions import Line, positions_in
from .queue import QueueState
from .reasons import Reason
from .reservation import kept_free
from .state import State
from .why import reason_of
from .work import Alike, Member, Work

__all__ = ["Explainer", "Free", "eviction_message", "free_in"]


def free_in(pool: PoolState) -> Free:
    """What a person could get there now."""
    total, whole, share = 0, 0, 0
    for (capacity, _, _, idle, _, shared), names in pool.buckets.items():
        part = shared * GPU // capacity
        total += (idle * GPU + part) * len(names)
        whole, share = max(whole, idle * GPU), max(share, part)
    return Free(total, whole or share)


def eviction_message(member: Member, action: str, by: str | None) -> str:
    """A sentence for the person who loses the place."""
    where = "" if member.old_spot() is None or member.node is None else f" It goes on at {member.node.name}."
    if action == "reclaim":
        return f"Workload {by} of another project takes back GPUs that its project is entitled to.{where}"
    if action == "preempt":
        return f"Workload {by} of your project has a higher priority and needs this place.{where}"
    if action == "consolidation":
        return f"Workload {by} needs connected room, so this one moves.{where}"
    return "Too few pods of this gang are left for it to work, and the grace time is over."


class Explainer:
    """The end of one cycle, frozen."""

    def __init__(self, state: State, before: dict[str, Free], evictions: tuple[Evict, ...]) -> None:
        self.views = {pool.name: _view(pool, before[pool.name]) for pool in state.pools.values()}
        self.queues = tuple(share for view in self.views.values() for name, share in view.queues.items() if name in view.listed)
        self.projects = dict(state.projects)
        self.policy = state.policy
        self.waiting = dict(state.waiting)
        self.apart = dict(state.apart)
        self.apart_pools = {id_: state.pools_for(work) for id_, work in state.apart.items()}
        self.held = {id_ for id_, work in state.apart.items() if work.held}
        self.promised: dict[str, tuple[Work, str]] = {}
        """Workload and pool, in the order of promising."""
        for member in state.unsettled:
            if member.status == "pipelined" and member.node is not None:
                self.promised[member.work.id] = member.work, member.node.pool
        self.victims: dict[str, int] = {}
        for eviction in evictions:
            if eviction.by is not None:
                self.victims[eviction.by] = self.victims.get(eviction.by, 0) + 1
        self.moving = {e.workload for e in evictions}
        self._lines = _lines(state)
        self._positions: dict[str, int] | None = None
        self._shared: dict[Alike, Reason] = {}

    def ids(self) -> list[str]:
        """Everybody with pending or promised pods."""
        return list(dict.fromkeys([*self.waiting, *self.apart, *(i for i in self.promised if i not in self.moving)]))

    def position(self, id_: str) -> int | None:
        if self._positions is None:
            self._positions = {}
            for pool in self.views:
                promised = [i for i, (_, name) in self.promised.items() if name == pool and (i in self.waiting or i not in self.moving)]
                waiting = [i for i in positions_in(self._lines.get(pool, [])) if i not in self.promised]
                self._positions.update((id_, place) for place, id_ in enumerate([*promised, *waiting], start=1))
        return self._positions.get(id_)

    def reason(self, id_: str) -> Reason:
        """The reason with the place in the queue; what alike workloads share is worked out once."""
        alike = None if id_ in self.promised else self.waiting.get(id_)
        if alike is None:
            reason = self._reason(id_)
        else:
            reason = self._shared.get(alike) or self._shared.setdefault(alike, self._reason(id_))
        place = self.position(id_)
        if place is None:
            return reason
        return Reason(reason.code, reason.message, {**reason.numbers, "position": float(place)}, reason.helps)

    def _reason(self, id_: str) -> Reason:
        alike = self.waiting.get(id_)
        if id_ in self.promised:
            work, pool = self.promised[id_]
            pools: tuple[str, ...] = (pool,)
        else:
            work = alike.sample if alike else self.apart[id_]
            pools = alike.pools if alike else self.apart_pools[id_]
        case = Case(
            id_, work, pools, self.views, self.policy, work.project in self.projects, id_ in self.held, id_ in self.promised,
            self.victims.get(id_, 0), dict(alike.found) if alike else {}, alike.wants if alike else {},
        )  # fmt: skip
        return reason_of(case)

    def reasons(self) -> Mapping[str, Reason]:
        return _Lazy(self.ids(), self.reason)

    def positions(self) -> Mapping[str, int]:
        ids = [i for i in self.ids() if i not in self.apart]
        return _Lazy(ids, self.position)


class _Lazy(Mapping[str, Any]):
    """A mapping whose values are worked out when they are read, once."""

    def __init__(self, ids: list[str], make: Any) -> None:
        self._made: dict[str, Any] = dict.fromkeys(ids)
        self._make = make

    def __getitem__(self, id_: str) -> Any:
        value = self._made[id_]
        if value is None:
            value = self._made[id_] = self._make(id_)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def _view(pool: PoolState, before: Free) -> PoolView:
    shares = {}
    fixed = {}
    lent = 0
    listed = {name for name, spec in pool.specs.items() if pool.name in spec.rules}
    listed |= {queue.name for queue in pool.queues.values() if _is_used(queue)}
    names = {above.name for name in listed for above in pool.queue(name).path}
    for name in sorted(names):
        queue = pool.queue(name)
        shares[name] = QueueShare(name, queue.kind, pool.name, queue.quota, queue.limit, queue.fair, queue.allocated, queue.request)
        fixed[name] = queue.fixed
        if queue.kind == "project":
            lent += queue.gpu - queue.fixed_gpu
    paths = {name: tuple(q.name for q in pool.queue(name).path) for name in names if pool.queue(name).kind == "project"}
    ranks = {name: pool.queue(name).share for name in names}
    return PoolView(
        pool.name, shares, frozenset(listed), fixed, paths, ranks, before, free_in(pool), pool.machines, pool.total, pool.smallest, lent,
        pool.reservation, kept_free(pool),
    )  # fmt: skip


def _is_used(queue: QueueState) -> bool:
    return bool(queue.gpu or queue.cpu or queue.memory or any(queue.request) or any(queue.wanted) or queue.pending or queue.lenders)


def _lines(state: State) -> dict[str, list[Line]]:
    """Per pool: copies of its queues and who waits in them. A workload stands in the line of the first pool on its list."""
    lines: dict[str, list[Line]] = {}
    copies: dict[QueueState, QueueState] = {}
    for alike in state.alike.values():
        pool = state.pools[alike.pools[0]]
        leaf = pool.queue(alike.project)
        if leaf not in copies:
            copies[leaf] = leaf.frozen()
        lines.setdefault(pool.name, []).append(
            Line(copies[leaf], pool.total, alike.wants[pool.name], alike.head_key[:3], tuple(alike.members))
        )  # fmt: skip
    return lines
