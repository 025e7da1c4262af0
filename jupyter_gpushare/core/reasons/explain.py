"""Reasons and queue positions of pending workloads, from a snapshot at the end of a cycle.

The snapshot is cheap. A reason is computed when it is read, so that pending workloads cost a cycle
nothing; it still describes that cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, cast

from ..cluster.people import PeopleSnapshot
from ..cluster.pools import PoolState
from ..cluster.queue_positions import WaitingClass, positions_in
from ..cluster.queues import QueueSnapshot, QueueState
from ..cluster.state import State
from ..cluster.time_sharing import TIME_SHARING
from ..cluster.work import EquivalenceClass, Work
from ..model.amounts import GPU, Amounts
from ..model.booked_window import BookedWindow
from ..model.decisions import Evict, QueueShare
from ..model.reason import Reason, ReasonCode
from ..queueing.booked_rooms import booked_gpu
from ..queueing.reservation import reserved_free_gpu
from .messages import turn
from .pending_view import FreeCapacity, PendingView, PoolView
from .reason_rules import reason_of

__all__ = ["Explainer", "FreeCapacity", "free_in"]

POSITIONS_PER_STEP: Final = 500
"""Positions computed between two yields: about two milliseconds."""


def _host_full(state: State, pool: PoolState) -> frozenset[str]:
    return frozenset(project for name, project in state.host_full if name == pool.name)


def free_in(pool: PoolState) -> FreeCapacity:
    """What a request could get in the pool now."""
    total, whole, share = 0, 0, 0
    for (capacity, _, _, idle, _, shared), names in pool.buckets.items():
        part = shared * GPU // capacity
        total += idle * GPU * len(names)
        whole, share = max(whole, idle * GPU), max(share, part)
    return FreeCapacity(total + pool.free_fractions, whole or share)


class Explainer:
    """The state at the end of one cycle."""

    def __init__(
        self, state: State, before: dict[str, FreeCapacity], evictions: tuple[Evict, ...]
    ) -> None:
        self._snapshots = {
            pool.name: _snapshot(state, pool, before[pool.name]) for pool in state.pools.values()
        }
        self._rooms = frozenset(state.rooms)
        self._views: dict[str, PoolView] | None = None
        self.projects = dict(state.projects)
        self.policy = state.policy
        self.waiting = state.waiting.copy()
        self.unschedulable = dict(state.unschedulable)
        self.apart_pools = {id_: state.pools_for(work) for id_, work in state.unschedulable.items()}
        self.held = {id_ for id_, work in state.unschedulable.items() if work.held}
        self.promised: dict[str, tuple[Work, str]] = {}
        """Workload and pool, in the order of promises."""
        for member in state.unsettled:
            is_room = member.work.room is not None
            if member.status == "pipelined" and member.node is not None and not is_room:
                self.promised[member.work.id] = member.work, member.node.pool
        self.victims: dict[str, int] = {}
        for eviction in evictions:
            if eviction.by is not None:
                self.victims[eviction.by] = self.victims.get(eviction.by, 0) + 1
        self.evicted = {e.workload for e in evictions}
        self._waiting_classes = _waiting_classes(state)
        self._positions: dict[str, int] | None = None
        """None: not computed yet."""
        self._shared: dict[EquivalenceClass, Reason] = {}

    @property
    def views(self) -> dict[str, PoolView]:
        """The pools by name."""
        if self._views is None:
            self._views = {name: snapshot.view() for name, snapshot in self._snapshots.items()}
        return self._views

    def queues(self) -> Sequence[QueueShare]:
        """The queues that are configured or used, by pool and name."""

        def listed() -> tuple[QueueShare, ...]:
            found = []
            for view in self.views.values():
                found += [share for name, share in view.queues.items() if name in view.listed]
            return tuple(found)

        return _LazyTuple(listed)

    def ids(self) -> list[str]:
        """All workloads with pending or promised pods."""
        promised = (i for i in self.promised if i not in self.evicted)
        found = [*self.waiting, *self.unschedulable, *promised]
        return [id_ for id_ in dict.fromkeys(found) if id_ not in self._rooms]

    def explains(self, id_: str) -> bool:
        """Whether the workload has pending or promised pods."""
        return (
            id_ in self.waiting
            or id_ in self.unschedulable
            or (id_ in self.promised and id_ not in self.evicted)
        )

    def count_positions(self) -> Iterator[None]:
        """Computes all positions, yielding after every few; afterwards reading one is free."""
        found: dict[str, int] = {}
        for pool, snapshot in self._snapshots.items():
            promised = [
                i
                for i, (_, name) in self.promised.items()
                if name == pool and (i in self.waiting or i not in self.evicted)
            ]
            waiting = (
                i
                for i in positions_in(
                    self._waiting_classes.get(pool, []), snapshot.queues, snapshot.people
                )
                if i not in self.promised
            )
            for position, id_ in enumerate(chain(promised, waiting), start=1):
                found[id_] = position
                if position % POSITIONS_PER_STEP == 0:
                    yield
        self._positions = found

    def position(self, id_: str) -> int | None:
        """The position in its pool, 1 being next; computes all positions if needed."""
        for _ in self.count_positions() if self._positions is None else ():
            pass
        assert self._positions is not None
        return self._positions.get(id_)

    def reason(self, id_: str) -> Reason:
        """The reason with the queue position. The reason is computed once per equivalence class."""
        return _with_position(self._without_position(id_), self.position(id_))

    def peek(self, id_: str) -> tuple[Reason | None, int | None]:
        """Reason and position as far as they are known, without computing many positions."""
        if not self.explains(id_):
            return None, None
        known = self._positions is not None or len(self.waiting) <= POSITIONS_PER_STEP
        position = self.position(id_) if known else None
        return _with_position(
            self._without_position(id_), position
        ), None if id_ in self.unschedulable else position

    def _without_position(self, id_: str) -> Reason:
        eq_class = None if id_ in self.promised else self.waiting.get(id_)
        if eq_class is None:
            return self._reason(id_)
        return self._shared.get(eq_class) or self._shared.setdefault(eq_class, self._reason(id_))

    def _reason(self, id_: str) -> Reason:
        eq_class = self.waiting.get(id_)
        if id_ in self.promised:
            work, pool = self.promised[id_]
            pools: tuple[str, ...] = (pool,)
        else:
            work = eq_class.sample if eq_class else self.unschedulable[id_]
            pools = eq_class.pools if eq_class else self.apart_pools[id_]
        view = PendingView(
            id_,
            work,
            pools,
            self.views,
            self.policy,
            work.project in self.projects,
            id_ in self.held,
            id_ in self.promised,
            self.victims.get(id_, 0),
            {pool: n for pool, (n, _) in eq_class.found.items()} if eq_class else {},
            eq_class.wants if eq_class else {},
        )
        return reason_of(view)

    def reasons(self) -> Mapping[str, Reason]:
        return _Lazy(self.explains, self.ids, self.reason)

    def positions(self) -> Mapping[str, int]:
        def ids() -> list[str]:
            return [i for i in self.ids() if i not in self.unschedulable]

        return _Lazy(
            lambda id_: self.explains(id_) and id_ not in self.unschedulable, ids, self.position
        )


class _Lazy(Mapping[str, Any]):
    """A mapping whose keys and values are computed when they are read."""

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
    """A tuple that is computed when it is read."""

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


def _with_position(reason: Reason, position: int | None) -> Reason:
    if position is None:
        return reason
    is_turn = reason.code == ReasonCode.WAITING_FOR_TURN
    message = turn(position - 1) if is_turn else reason.message
    numbers = {**reason.numbers, "position": float(position)}
    return Reason(reason.code, message, numbers, reason.helps)


def _snapshot(state: State, pool: PoolState, before: FreeCapacity) -> PoolSnapshot:
    """The last one while neither the pool, its fair shares nor its people have changed."""
    host_full = _host_full(state, pool)
    last, stamp, people = pool.snapshot, (pool.version, *pool.fair_stamp), _people(pool)
    if isinstance(last, PoolSnapshot) and (stamp, before, people, host_full) == (
        last.stamp,
        last.before,
        last.people,
        last.host_full,
    ):
        return last
    booked = booked_gpu(state, pool.name) if state.rooms else {}
    pool.snapshot = made = PoolSnapshot(pool, before, people, host_full, booked)
    return made


class PoolSnapshot:
    """One pool at the end of a cycle. Most are never read, so only numbers are copied."""

    __slots__ = (
        "before",
        "booked",
        "free",
        "host_full",
        "reserved_free",
        "machines",
        "open_nodes",
        "people",
        "pool",
        "queues",
        "reservation",
        "smallest",
        "stamp",
        "total",
    )

    def __init__(
        self,
        pool: PoolState,
        before: FreeCapacity,
        people: dict[str, PeopleSnapshot],
        host_full: frozenset[str],
        booked: dict[BookedWindow, int],
    ) -> None:
        self.booked = booked
        self.pool, self.before, self.free, self.people = pool, before, free_in(pool), people
        self.stamp, self.host_full = (pool.version, *pool.fair_stamp), host_full
        for name, spec in pool.specs.items():
            if pool.name in spec.rules:
                pool.queue(name)  # configured here, though not used yet
        self.queues = {queue: queue.numbers() for queue in pool.queues.values()}
        self.machines, self.total, self.smallest = pool.machines, pool.total, pool.smallest
        self.reservation, self.reserved_free = pool.reservation, reserved_free_gpu(pool)
        self.open_nodes = {key: tuple(names) for key, names in pool.buckets.items() if any(key[2:])}

    def view(self) -> PoolView:
        pool = self.pool  # Of the pool itself, read only what cycles never change.
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
            {name: Amounts(*numbers.non_preemptible) for name, (_, numbers) in known.items()},
            {name: tuple(q.name for q in known[name][0].path) for name in projects},
            {name: numbers.share for name, (_, numbers) in known.items()},
            self.before,
            self.free,
            self.machines,
            self.total,
            self.smallest,
            sum(known[name][1].gpu - known[name][1].non_preemptible[0] for name in projects),
            self.reservation,
            self.reserved_free,
            self.open_nodes,
            self.people,
            TIME_SHARING.first(pool.config) is not None,
            self.host_full,
            self.booked,
            pool.promised,
        )


def _people(pool: PoolState) -> dict[str, PeopleSnapshot]:
    """The people who wait, by project, where a project has rules between its members."""
    found = {}
    for queue in pool.queues.values():
        if queue.people is not None:
            classes = cast("set[EquivalenceClass]", queue.pending)
            users = sorted({eq_class.user for eq_class in classes})
            found[queue.name] = queue.people.snapshot(users)
    return found


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


def _waiting_classes(state: State) -> dict[str, list[WaitingClass]]:
    """The pending classes per pool. A workload counts in the first pool of its list."""
    found: dict[str, list[WaitingClass]] = {}
    for pools, classes in state.by_pools.items():
        pool = state.pools[pools[0]]
        found.setdefault(pool.name, []).extend(
            known
            if (known := eq_class.waiting_class) is not None and known.total is pool.total
            else _waiting_class(eq_class, pool)
            for eq_class in classes
            if not eq_class.is_room
        )
    return found


def _waiting_class(eq_class: EquivalenceClass, pool: PoolState) -> WaitingClass:
    eq_class.waiting_class = WaitingClass(
        pool.queue(eq_class.project),
        pool.total,
        eq_class.wants[pool.name],
        eq_class.head_key[:4],
        tuple(eq_class.members),
        eq_class.user,
    )
    return eq_class.waiting_class
