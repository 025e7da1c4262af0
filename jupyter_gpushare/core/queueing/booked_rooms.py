"""GPUs that are kept free for bookings.

What nobody uses of an open booking is held by workloads without processes, called rooms. They come
before all others and stay within quota, so the ordinary rules free the GPUs in time and nobody else
gets them. A workload that may use the booking takes the place of a room at once, and a room is
moved to other GPUs like any workload, at no cost. Rules: docs/explanation/scheduling.md, Bookings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ..allocation.gang import Allocation
from ..cluster.pools import PoolState
from ..cluster.state import State
from ..cluster.work import ACTIVE, Work
from ..model.amounts import GPU
from ..model.booked_window import BookedWindow
from ..model.model import Pod, Workload
from .order import NextWorkload, QueueOrder, total_request

__all__ = ["booked_gpu", "has_moved_rooms", "keep_rooms", "rooms_in", "turn_of", "use_rooms"]

FIRST: Final = 1 << 30
"""The priority of rooms: what others of the project hold beside their booking gives way."""


def keep_rooms(state: State, now: int) -> None:
    """Opens and closes windows at the start of a cycle, and adjusts the rooms."""
    if not state.bookings.windows and not state.rooms:
        return
    bookings = state.bookings.at(now)
    if bookings.open != state.bookings.open:
        state.book(bookings)
    for room in state.rooms.values():
        for member in room.members.values():
            if member.status == "releasing":  # nothing runs there that would have to leave
                state.put(member, "pending")
    _adjust(state)


def _adjust(state: State) -> None:
    """Rooms for what is not used of every open window, and no others."""
    rooms: dict[tuple[str, int], list[Work]] = {}
    for work in list(state.rooms.values()):
        assert work.room is not None
        rooms.setdefault(work.room.key, []).append(work)
    for window, kept in _unused(state).items():
        _keep(state, window, kept, rooms.pop(window.key, []))
    for works in rooms.values():
        for work in works:
            state.remove_work(work)


def _unused(state: State) -> dict[BookedWindow, int]:
    """Milli-GPU of each open window that nobody who may use it holds."""
    held: dict[tuple[str, str], Counter[str]] = {}
    found = {}
    for window in state.bookings.open:
        place = window.project, window.pool
        if place not in held:
            held[place] = _held(state, *place)
        used = _used(state, window, held[place])
        found[window] = window.gpu - used
        _absorb(held[place], window.user, used)
    return found


def _held(state: State, project: str, pool: str) -> Counter[str]:
    """Milli-GPU that each member holds or is promised, without rooms."""
    found: Counter[str] = Counter()
    for work in state.works.values():
        if work.project == project and work.room is None:
            for member in work.members.values():
                if member.status in ACTIVE and member.node and member.node.pool == pool:
                    found[work.user] += member.charge.gpu
    return found


def _used(state: State, window: BookedWindow, held: Counter[str]) -> int:
    """What is used of a window. A booking that adds to the project's quota is used by what goes
    beyond that quota.
    """
    if window.user:
        return min(window.gpu, held[window.user])
    base = 0
    project = state.projects.get(window.project)
    if not window.own_quota and project is not None and window.pool in project.pools:
        base = project.pools[window.pool].quota.gpu
    return min(window.gpu, max(0, held.total() - base))


def _absorb(held: Counter[str], user: str, used: int) -> None:
    """What one window has counted does not count for the next one."""
    for name in [user] if user else sorted(held):
        part = min(used, held[name])
        held[name] -= part
        used -= part


def _keep(state: State, window: BookedWindow, kept: int, rooms: list[Work]) -> None:
    """Rooms of `kept` milli-GPU together. Those of the right size stay where they are."""
    if window.pool not in state.pools or sum(map(_size, rooms)) == kept:
        return
    wanted = Counter(_sizes(window, kept, is_untouched=not rooms))
    for work in rooms:
        if wanted[_size(work)]:
            wanted[_size(work)] -= 1
        else:
            state.remove_work(work)
    for size in sorted(wanted.elements(), reverse=True):
        state.add_work(Work(_room(state, window, size), state.needs))


def _sizes(window: BookedWindow, kept: int, *, is_untouched: bool) -> list[int]:
    """Whole GPUs on one node as long as nobody uses the booking, later one by one; and a part."""
    whole, part = divmod(kept, GPU)
    together = is_untouched and kept == window.gpu
    wholes = [whole * GPU] if together and whole else [GPU] * whole
    return [*wholes, part] if part else wholes


def _size(work: Work) -> int:
    return work.workload.pods[0].gpu


def _room(state: State, window: BookedWindow, gpu: int) -> Workload:
    names = (f"booking:{window.booking}:{window.start}:{n}" for n in range(len(state.rooms) + 1))
    return Workload(
        next(name for name in names if name not in state.works),
        window.project,
        (Pod("room", gpu=gpu),),
        priority=FIRST,
        created=window.start,
        node_pools=(window.pool,),
        room=window,
    )


def has_moved_rooms(state: State) -> bool:
    """Whether rooms have left a place, so that the next cycle can use it at once."""
    members = (m for work in state.rooms.values() for m in work.members.values())
    return any(m.old is not None or m.status == "releasing" for m in members)


def rooms_in(state: State, pool: PoolState) -> list[Work]:
    """The rooms of a pool, the largest first."""
    here = [work for work in state.rooms.values() if work.workload.node_pools == (pool.name,)]
    return sorted(here, key=lambda work: (-_size(work), work.id))


def turn_of(state: State, pool: PoolState, work: Work) -> NextWorkload:
    """A room without a place as the next workload."""
    ask = total_request(work.members_to_place(), pool.smallest)
    return NextWorkload(work, pool.queue(work.project), ask, state.waiting[work.id], -1)


def booked_gpu(state: State, pool: str) -> dict[BookedWindow, int]:
    """Milli-GPU in rooms of a pool, by booking."""
    found: dict[BookedWindow, int] = {}
    for work in state.rooms.values():
        assert work.room is not None
        for member in work.members.values():
            if member.node is not None and member.node.pool == pool:
                found[work.room] = found.get(work.room, 0) + member.charge.gpu
    return found


def use_rooms(state: State, start: Callable[[PoolState, NextWorkload], bool]) -> None:
    """Waiting workloads take the place of rooms that are kept for them, in queue order. `start`
    places one on what is free.
    """
    for window in state.bookings.open if state.rooms else ():
        pool = state.pools.get(window.pool)
        if pool is not None and any(_placed(state, window)):
            _use(state, pool, window, start)
            state.refresh()


def _placed(state: State, window: BookedWindow) -> Iterator[Work]:
    for work in list(state.rooms.values()):
        if work.room is not None and work.room.key == window.key and not work.pending:
            yield work


def _use(
    state: State,
    pool: PoolState,
    window: BookedWindow,
    start: Callable[[PoolState, NextWorkload], bool],
) -> None:
    classes = [
        eq_class
        for eq_class in state.eq_classes.values()
        if eq_class.ready
        and not eq_class.is_room
        and pool.name in eq_class.pools
        and window.admits(eq_class.project, eq_class.sample.user)
    ]
    turns = QueueOrder(state, pool, classes)
    while (turn := turns.next()) is not None:
        rooms = list(_placed(state, window))
        if rooms and _exchange(state, pool, turn, rooms, start):
            turns.advance(grows=turn.work.pending > 0)
        else:
            turns.skip()


def _exchange(
    state: State,
    pool: PoolState,
    turn: NextWorkload,
    rooms: Sequence[Work],
    start: Callable[[PoolState, NextWorkload], bool],
) -> bool:
    """Places a workload where rooms are, and what is left of them beside it; else nothing."""
    mark, version, freed = state.undo_log.mark(), pool.version, pool.freed
    for room in rooms:
        for member in room.members.values():
            state.put(member, "pending")
    if not start(pool, turn):
        state.undo_log.undo_to(mark)
        pool.version, pool.freed = version, freed
        return False
    for room in rooms:
        state.remove_work(room)
    _adjust(state)
    for room in list(state.rooms.values()):
        if room.pending and room.room is not None and room.room.pool == pool.name:
            Allocation(state, pool, room).place_all(room.members_to_place())
    return True
