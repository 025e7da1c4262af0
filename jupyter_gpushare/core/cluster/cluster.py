"""The public interface of the cluster model: events come in through `apply`, the rest is read.

Between cycles the caller reports what happened: evicted pods that have released their place
(`PodReleased`), pods that ended, nodes that joined and left. When the next cycle begins, a bound
pod becomes running, and a promised pod pending again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, cast

from ..model.amounts import NOTHING
from ..model.errors import Conflict, InvalidInput, NotFound
from ..model.events import (
    ActivityReported,
    BookingsChanged,
    Event,
    EvictionCancelled,
    NodeChanged,
    NodeJoined,
    NodeLeft,
    PodEnded,
    PodEvicted,
    PodNominated,
    PodPlaced,
    PodReleased,
    PolicyChanged,
    StaleSince,
    UsageMeasured,
    WorkloadEnded,
    WorkloadHeld,
    WorkloadSubmitted,
)
from ..model.model import Node, Policy, Spot, Workload
from .bookings import BookedRoom
from .nodes import NodeState
from .people import PeopleLedger
from .people_events import PEOPLE_HANDLERS
from .pools import PoolState
from .state import State
from .work import Member, Status, Work

__all__ = ["Cluster"]


class Cluster:
    """Changed by events and by `cycle`. `checkpoint`, `rollback` and `forget` bracket tentative
    changes.
    """

    # frozen: one shared default is safe
    def __init__(self, policy: Policy = Policy()) -> None:  # noqa: B008
        self._state = State(policy)
        self._stamps: dict[int, list[tuple[PoolState, int, int]]] = {}

    # -- reading

    @property
    def policy(self) -> Policy:
        return self._state.policy

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        return MappingProxyType(self._state.nodes)

    @property
    def workloads(self) -> Mapping[str, Work]:
        works, rooms = self._state.works, self._state.rooms
        return _Submitted(works, rooms) if rooms else MappingProxyType(works)

    @property
    def booked_rooms(self) -> tuple[BookedRoom, ...]:
        """What is kept free for bookings now, and where."""
        return tuple(
            BookedRoom(work.room, member.charge.gpu, spot)
            for work in self._state.rooms.values()
            for member in work.members.values()
            if work.room is not None and (spot := member.spot()) is not None
        )

    @property
    def usage(self) -> Mapping[tuple[str, str], tuple[int, int, int]]:
        """The last measurement by (queue, pool): see `UsageMeasured`."""
        return MappingProxyType(self._state.usage)

    @property
    def people(self) -> PeopleLedger:
        """What people hold and have used, in projects with rules between their members."""
        return self._state.people

    def spot(self, workload: str, pod: str) -> Spot | None:
        """Where the pod is, or is promised a place. None: nowhere, or there is no such pod."""
        work = self._state.works.get(workload)
        member = work.members.get(pod) if work else None
        return None if member is None else member.spot()

    def nominated(self, workload: str, pod: str) -> str | None:
        """The node that a pending or promised pod prefers in the next cycle. Raises `NotFound`."""
        member = self._state.member(workload, pod)
        if member.status == "pipelined" and member.node is not None:
            return member.node.name
        return member.nominated if member.status in ("pending", "releasing") else None

    def state(self, workload: str, pod: str) -> Status:
        """Raises `NotFound`."""
        return self._state.member(workload, pod).status

    # -- undoing

    def checkpoint(self) -> int:
        """A mark to roll back to. It costs memory until it is rolled back to or forgotten."""
        mark = self._state.undo_log.open()
        self._stamps[mark] = self._state.stamp()
        return mark

    def rollback(self, mark: int) -> None:
        """Undoes everything since the mark exactly. The mark cannot be used again."""
        self._state.undo_log.undo_to(mark)
        self._state.undo_log.close(mark)
        self._state.refresh()
        stamps = self._stamps.pop(mark, [])
        if all(self._state.pools.get(pool.name) is pool for pool, _, _ in stamps):
            self._state.restamp(stamps)

    def forget(self, mark: int) -> None:
        """Keeps the changes since the mark."""
        self._stamps.pop(mark, None)
        self._state.undo_log.close(mark)

    # -- changing

    def advance(self, now: int) -> None:
        """Time (ms) has passed, for the events that follow. Cycles do the same."""
        self._state.people.advance(now)

    def apply(self, event: Event) -> None:
        """Applies an event. Raises `InvalidInput`, `Conflict` or `NotFound`, with nothing
        changed.
        """
        state = self._state
        mark = state.undo_log.mark()
        try:
            _HANDLERS[type(event)](state, event)
        except Exception:
            state.undo_log.undo_to(mark)
            raise
        state.undo_log.settle()


class _Submitted(Mapping[str, Work]):
    """Workloads without those that keep GPUs free for bookings."""

    def __init__(self, works: Mapping[str, Work], rooms: Mapping[str, Work]) -> None:
        self._works, self._rooms = works, rooms

    def __getitem__(self, id_: str) -> Work:
        if id_ in self._rooms:
            raise KeyError(id_)
        return self._works[id_]

    def __iter__(self) -> Iterator[str]:
        return (id_ for id_ in self._works if id_ not in self._rooms)

    def __len__(self) -> int:
        return len(self._works) - len(self._rooms)


def _policy_changed(state: State, event: PolicyChanged) -> None:
    before = state.policy
    state.install(event.policy)
    state.undo_log.push(state.install, before)


def _bookings_changed(state: State, event: BookingsChanged) -> None:
    if event.windows != state.bookings.windows:
        state.book(state.bookings.replaced_by(event.windows))


def _node_joined(state: State, event: NodeJoined) -> None:
    known = state.nodes.get(event.node.name)
    _check_node(event.node)
    if known is None:
        state.join(event.node)
    else:
        state.reload(known, event.node)


def _node_changed(state: State, event: NodeChanged) -> None:
    known = _node(state, event.node.name)
    _check_node(event.node)
    state.reload(known, event.node)


def _node_left(state: State, event: NodeLeft) -> None:
    known = _node(state, event.name)
    for member in state.members_on(known):
        if member.old is known:
            state.put(member, member.status, member.node, member.devices, member.charge)
        if member.node is known and member.old is None:
            _requeue(state, member)
        elif member.node is known:
            state.put(member, "releasing", member.old, member.old_devices)
    state.leave(known)


def _submitted(state: State, event: WorkloadSubmitted) -> None:
    workload = event.workload
    known = state.works.get(workload.id)
    if known is not None:
        if known.workload != workload:
            raise Conflict(f"workload {workload.id} exists with different content", field="id")
        return
    _check_workload(workload)
    state.add_work(Work(workload, state.needs))


def _held(state: State, event: WorkloadHeld) -> None:
    work = _work(state, event.id)
    state.undo_log.assign(work, "held", event.held)
    state.undo_log.push(_mark_dirty, state, work)
    if not event.held:
        state.undo_log.assign(work, "pending_since", max(work.created, state.people.now))
    _mark_dirty(state, work)


def _ended(state: State, event: WorkloadEnded) -> None:
    state.remove_work(_work(state, event.id))


def _placed(state: State, event: PodPlaced) -> None:
    member = state.member(event.workload, event.pod)
    node = _node(state, event.spot.node)
    status: Status = "running" if event.state == "running" else "releasing"
    devices = event.spot.devices or _any_devices(node, member)
    if any(device < 0 for device in devices):
        raise InvalidInput(
            f"pod {event.pod} has a negative GPU index on node {node.name}", field="spot"
        )
    state.put(
        member,
        status,
        node,
        devices,
        member.need.charge(node.capacity) if status == "running" else NOTHING,
    )
    if member.work.started is None or event.started < member.work.started:
        state.undo_log.assign(member.work, "started", event.started)


def _evicted(state: State, event: PodEvicted) -> None:
    member = state.member(event.workload, event.pod)
    if member.status in ("running", "bound"):
        state.put(member, "releasing", member.node, member.devices)
    elif member.status == "pipelined" and member.old is not None:
        state.put(member, "releasing", member.old, member.old_devices)
    elif member.status != "releasing":
        raise Conflict(
            f"pod {event.pod} of workload {event.workload} is {member.status} and holds no place",
            field="pod",
        )


def _eviction_cancelled(state: State, event: EvictionCancelled) -> None:
    member = state.member(event.workload, event.pod)
    if member.status != "releasing" or member.node is None:
        raise Conflict(
            f"pod {event.pod} of workload {event.workload} is {member.status}, not releasing",
            field="pod",
        )
    node = member.node
    state.put(member, "running", node, member.devices, member.need.charge(node.capacity))


def _activity(state: State, event: ActivityReported) -> None:
    work = _work(state, event.workload)
    if event.activity != work.activity:
        state.undo_log.assign(work, "activity", event.activity)
        state.undo_log.push(_mark_dirty, state, work)
        _mark_dirty(state, work)


def _released(state: State, event: PodReleased) -> None:
    member = state.member(event.workload, event.pod)
    if (
        member.status == "pipelined" and member.old is not None
    ):  # moved: it has left the old place and keeps the promise of the new one
        state.put(member, "pipelined", member.node, member.devices, member.charge)
    elif member.status == "releasing":
        _requeue(state, member)
    elif member.status != "pending":
        raise Conflict(
            f"pod {event.pod} of workload {event.workload} is {member.status}, not releasing",
            field="pod",
        )


def _pod_ended(state: State, event: PodEnded) -> None:
    state.put(
        state.member(event.workload, event.pod),
        "succeeded" if event.outcome == "succeeded" else "failed",
    )


def _usage(state: State, event: UsageMeasured) -> None:
    key = (event.queue, event.pool)
    before = state.usage.get(key, (0, 0, 0))
    _set_usage(state, key, event.usage)
    state.undo_log.push(_set_usage, state, key, before)


def _stale(state: State, event: StaleSince) -> None:
    state.undo_log.assign(_work(state, event.workload), "stale_since", event.since)


def _nominated(state: State, event: PodNominated) -> None:
    state.nominate(state.member(event.workload, event.pod), event.node)


def _set_usage(state: State, key: tuple[str, str], usage: tuple[int, int, int]) -> None:
    state.usage[key] = usage
    if key[1] in state.pools:
        state.pools[key[1]].fair_stamp = ()


def _requeue(state: State, member: Member) -> None:
    """A pod without a place is pending again with its age, or ended."""
    state.put(member, "failed" if member.work.workload.ends_when_evicted else "pending")


def _any_devices(node: NodeState, member: Member) -> tuple[int, ...]:
    """GPUs for a placed pod without stated devices: idle ones if there are any, else the least
    used.
    """
    need, held = member.need, node.gpu[0]
    if need.mig:
        found = node.choose(need, "spread")
        return found[0] if found else ()
    wanted = need.whole or need.devices
    ranked = sorted(range(node.node.gpus), key=lambda d: (held[d] + node.gpu[1][d], d))
    return tuple(sorted(ranked[:wanted]))


def _mark_dirty(state: State, work: Work) -> None:
    state.dirty[work] = None


def _work(state: State, id_: str) -> Work:
    if id_ not in state.works:
        raise NotFound(f"there is no workload {id_}", field="id")
    return state.works[id_]


def _node(state: State, name: str) -> NodeState:
    if name not in state.nodes:
        raise NotFound(f"there is no node {name}", field="node")
    return state.nodes[name]


def _check_node(node: Node) -> None:
    for field in ("gpus", "gpu_memory", "cpu", "memory", "max_pods"):
        if getattr(node, field) < 0:
            raise InvalidInput(f"node {node.name} has a negative {field}", field=field)


def _check_workload(workload: Workload) -> None:
    if not workload.id:
        raise InvalidInput("a workload needs an id", field="id")
    if not workload.pods:
        raise InvalidInput(f"workload {workload.id} has no pods", field="pods")
    if workload.min_pods is not None and workload.min_pods < 0:
        raise InvalidInput(f"workload {workload.id} has a negative min_pods", field="min_pods")


_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = cast(
    "dict[type[Any], Callable[[State, Any], None]]",
    {
        PolicyChanged: _policy_changed,
        BookingsChanged: _bookings_changed,
        NodeJoined: _node_joined,
        NodeChanged: _node_changed,
        NodeLeft: _node_left,
        WorkloadSubmitted: _submitted,
        WorkloadHeld: _held,
        WorkloadEnded: _ended,
        PodPlaced: _placed,
        PodEvicted: _evicted,
        EvictionCancelled: _eviction_cancelled,
        ActivityReported: _activity,
        PodReleased: _released,
        PodNominated: _nominated,
        PodEnded: _pod_ended,
        UsageMeasured: _usage,
        **PEOPLE_HANDLERS,
        StaleSince: _stale,
    },
)
