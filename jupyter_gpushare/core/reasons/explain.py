"""Why everybody else waits: the view of one cycle's end, and the reasons read off it.

The view is taken at once and cheaply; a reason is worked out when somebody reads it, so ten
thousand waiting workloads cost nothing to a cycle in which nobody asks about them. What is read
later is still the truth of that cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from ..cluster.pools import PoolState
from ..cluster.queue_positions import WaitingClass, positions_in
from ..cluster.queues import QueueSnapshot, QueueState
from ..cluster.state import State
from ..cluster.work import EquivalenceClass, Member, Work
from ..model.amounts import GPU, Amounts
from ..model.decisions import Evict, QueueShare
from ..model.reason import Reason
from ..queueing.reservation import kept_free
from .pending_view import FreeCapacity, PendingView, PoolView
from .reason_rules import reason_of

__all__ = ["Explainer", "FreeCapacity", "eviction_message", "free_in"]

BREATH: Final = 500
"""Places that are counted in one go: about two milliseconds."""


def free_in(pool: PoolState) -> FreeCapacity:
    """What a person could get there now."""
    total, whole, share = 0, 0, 0
    for (capacity, _, _, idle, _, shared), names in pool.buckets.items():
        part = shared * GPU // capacity
        total += (idle * GPU + part) * len(names)
        whole, share = max(whole, idle * GPU), max(share, part)
    return FreeCapacity(total, whole or share)


def eviction_message(member: Member, action: str, by: Work | None) -> str:
    """A sentence for the person who loses the place; for whom, in words and not by an id."""
    project = by.workload.project if by is not None else "another"
    where = (
        ""
        if member.old_spot() is None or member.node is None
        else f" It goes on at {member.node.name}."
    )
    if action == "reclaim":
        return f"Project {project} takes back GPUs that it is entitled to.{where}"
    if action == "preempt":
        return f"A workload of your project with a higher priority needs this place.{where}"
    if action == "consolidation":
        return f"A workload of project {project} needs connected room, so this one moves.{where}"
    return "Too few pods of this gang are left for it to work, and the grace time is over."


class Explainer:
    """The end of one cycle, frozen."""

    def __init__(
        self, state: State, before: dict[str, FreeCapacity], evictions: tuple[Evict, ...]
    ) -> None:
        self._stands = {
            pool.name: PoolSnapshot(pool, before[pool.name]) for pool in state.pools.values()
        }
        self._views: dict[str, PoolView] | None = None
        self.projects = dict(state.projects)
        self.policy = state.policy
        self.waiting = state.waiting.copy()
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
        """None: not counted yet."""
        self._shared: dict[EquivalenceClass, Reason] = {}

    @property
    def views(self) -> dict[str, PoolView]:
        """The pools by name."""
        if self._views is None:
            self._views = {name: stand.view() for name, stand in self._stands.items()}
        return self._views

    def queues(self) -> Sequence[QueueShare]:
        """The queues that are configured or used, by pool and name."""
        return _LazyTuple(
            lambda: tuple(
                s
                for view in self.views.values()
                for name, s in view.queues.items()
                if name in view.listed
            )
        )

    def ids(self) -> list[str]:
        """Everybody with pending or promised pods."""
        return list(
            dict.fromkeys(
                [*self.waiting, *self.apart, *(i for i in self.promised if i not in self.moving)]
            )
        )

    def explains(self, id_: str) -> bool:
        """Whether it is one of them."""
        return (
            id_ in self.waiting
            or id_ in self.apart
            or (id_ in self.promised and id_ not in self.moving)
        )

    def counting(self) -> Iterator[None]:
        """Counts everybody's place, breathing after every few; once it is through, reading a place
        costs nothing.
        """
        found: dict[str, int] = {}
        for pool, stand in self._stands.items():
            promised = [
                i
                for i, (_, name) in self.promised.items()
                if name == pool and (i in self.waiting or i not in self.moving)
            ]
            waiting = (
                i
                for i in positions_in(self._lines.get(pool, []), stand.queues)
                if i not in self.promised
            )
            for place, id_ in enumerate(chain(promised, waiting), start=1):
                found[id_] = place
                if place % BREATH == 0:
                    yield
        self._positions = found

    def position(self, id_: str) -> int | None:
        """The place in its pool, 1 being next; counted now if it was not before."""
        for _ in self.counting() if self._positions is None else ():
            pass
        assert self._positions is not None
        return self._positions.get(id_)

    def reason(self, id_: str) -> Reason:
        """The reason with the place in the queue; what alike workloads share is worked out once."""
        return _placed(self._unplaced(id_), self.position(id_))

    def glimpse(self, id_: str) -> tuple[Reason | None, int | None]:
        """The same without counting, unless few wait: reason and place as far as they are known."""
        if not self.explains(id_):
            return None, None
        known = self._positions is not None or len(self.waiting) <= BREATH
        place = self.position(id_) if known else None
        return _placed(self._unplaced(id_), place), None if id_ in self.apart else place

    def _unplaced(self, id_: str) -> Reason:
        alike = None if id_ in self.promised else self.waiting.get(id_)
        if alike is None:
            return self._reason(id_)
        return self._shared.get(alike) or self._shared.setdefault(alike, self._reason(id_))

    def _reason(self, id_: str) -> Reason:
        alike = self.waiting.get(id_)
        if id_ in self.promised:
            work, pool = self.promised[id_]
            pools: tuple[str, ...] = (pool,)
        else:
            work = alike.sample if alike else self.apart[id_]
            pools = alike.pools if alike else self.apart_pools[id_]
        case = PendingView(
            id_,
            work,
            pools,
            self.views,
            self.policy,
            work.project in self.projects,
            id_ in self.held,
            id_ in self.promised,
            self.victims.get(id_, 0),
            dict(alike.found) if alike else {},
            alike.wants if alike else {},
        )
        return reason_of(case)

    def reasons(self) -> Mapping[str, Reason]:
        return _Lazy(self.explains, self.ids, self.reason)

    def positions(self) -> Mapping[str, int]:
        def ids() -> list[str]:
            return [i for i in self.ids() if i not in self.apart]

        return _Lazy(lambda id_: self.explains(id_) and id_ not in self.apart, ids, self.position)


class _Lazy(Mapping[str, Any]):
    """A mapping whose keys are listed, and whose values are worked out, when somebody reads them."""

    def __init__(
        self, has: Callable[[str], bool], ids: Callable[[], list[str]], make: Callable[[str], Any]
    ) -> None:
        self._has, self._ids, self._make = has, ids, make
        self._made: dict[str, Any] = {}

    def __getitem__(self, id_: str) -> Any:
        if id_ not in self._made:
            if not self._has(id_):
                raise KeyError(id_)
            self._made[id_] = self._make(id_)
        return self._made[id_]

    def __contains__(self, id_: object) -> bool:
        return isinstance(id_, str) and self._has(id_)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids())

    def __len__(self) -> int:
        return len(self._ids())


class _LazyTuple(Sequence[Any]):
    """A tuple that is made when somebody looks."""

    def __init__(self, make: Callable[[], tuple[Any, ...]]) -> None:
        self._make = make
        self._made: tuple[Any, ...] | None = None

    def _tuple(self) -> tuple[Any, ...]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, index: Any) -> Any:
        return self._tuple()[index]

    def __len__(self) -> int:
        return len(self._tuple())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._tuple() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._tuple())


def _placed(reason: Reason, place: int | None) -> Reason:
    if place is None:
        return reason
    return Reason(
        reason.code, reason.message, {**reason.numbers, "position": float(place)}, reason.helps
    )


class PoolSnapshot:
    """One pool at the end of a cycle: numbers only, taken at once. Most cycles are never asked
    about, so the view is made when one is.
    """

    __slots__ = (
        "before",
        "free",
        "kept",
        "machines",
        "pool",
        "queues",
        "reservation",
        "smallest",
        "total",
    )

    def __init__(self, pool: PoolState, before: FreeCapacity) -> None:
        self.pool, self.before, self.free = pool, before, free_in(pool)
        for name, spec in pool.specs.items():
            if pool.name in spec.rules:
                pool.queue(name)  # configured here, though nobody has come yet
        self.queues = {queue: queue.numbers() for queue in pool.queues.values()}
        self.machines, self.total, self.smallest = pool.machines, pool.total, pool.smallest
        self.reservation, self.kept = pool.reservation, kept_free(pool)

    def view(self) -> PoolView:
        pool = self.pool  # of which only what a cycle never changes is read
        held = {queue.name: (queue, numbers) for queue, numbers in self.queues.items()}
        listed = {name for name, spec in pool.specs.items() if pool.name in spec.rules}
        listed |= {name for name, (_, numbers) in held.items() if numbers.is_used}
        known = {
            name: held[name]
            for name in sorted({above.name for name in listed for above in held[name][0].path})
        }
        projects = [name for name in known if known[name][0].kind == "project"]
        return PoolView(
            pool.name,
            {name: _share(pool.name, queue, numbers) for name, (queue, numbers) in known.items()},
            frozenset(listed),
            {name: Amounts(*numbers.fixed) for name, (_, numbers) in known.items()},
            {name: tuple(q.name for q in known[name][0].path) for name in projects},
            {name: numbers.share for name, (_, numbers) in known.items()},
            self.before,
            self.free,
            self.machines,
            self.total,
            self.smallest,
            sum(known[name][1].gpu - known[name][1].fixed[0] for name in projects),
            self.reservation,
            self.kept,
        )


def _share(pool: str, queue: QueueState, numbers: QueueSnapshot) -> QueueShare:
    allocated = Amounts(numbers.gpu, numbers.cpu, numbers.memory)
    return QueueShare(
        queue.name,
        queue.kind,
        pool,
        queue.quota,
        queue.limit,
        numbers.fair,
        allocated,
        numbers.request,
    )


def _lines(state: State) -> dict[str, list[WaitingClass]]:
    """Per pool who waits in its queues. A workload stands in the line of the first pool on its
    list.
    """
    lines: dict[str, list[WaitingClass]] = {}
    for alike in state.alike.values():
        pool = state.pools[alike.pools[0]]
        line, leaf, members, ask = (
            alike.line,
            pool.queue(alike.project),
            alike.frozen(),
            alike.wants[pool.name],
        )
        if (
            line is None
            or line.leaf is not leaf
            or line.members is not members
            or line.ask is not ask
            or line.total is not pool.total
        ):
            line = alike.line = WaitingClass(leaf, pool.total, ask, alike.head_key[:3], members)
        lines.setdefault(pool.name, []).append(line)
    return lines
