"""Places what is kept free for bookings, before everything else.

Where a room finds no place, all rooms of the pool are placed anew together, since nothing runs in
them: whole GPUs on one node may need a device on which a part of a GPU is kept for another booking.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping

from ..cluster.pools import PoolState
from ..cluster.state import State
from ..cluster.work import Member, Work
from ..queueing.booked_rooms import rooms_in, turn_of
from ..queueing.order import NextWorkload
from .rescheduling import TentativeChanges, VictimRescheduler
from .victim_candidates import EvictionUnit

__all__ = ["place_rooms"]

Victims = MutableMapping[Member, tuple[str, str | None]]
"""Those that `Place` has evicted or moved so far: the action, and the workload that needs room."""
Place = Callable[[PoolState, NextWorkload], bool]
"""Finds a place that is free, or makes others leave one."""


def place_rooms(state: State, pool: PoolState, place: Place, victims: Victims) -> None:
    """Places the rooms of a pool that have no place, the largest first."""
    pending = [work for work in rooms_in(state, pool) if work.pending]
    if not pending or state.rooms_tried.get(pool.name) == pool.version:
        return
    failed = [room for room in pending if not place(pool, turn_of(state, pool, room))]
    if failed and not _placed_together(state, pool, place, victims):
        state.undo_log.push(_set_tried, state, pool.name, state.rooms_tried.get(pool.name))
        state.rooms_tried[pool.name] = pool.version


def _placed_together(state: State, pool: PoolState, place: Place, victims: Victims) -> bool:
    """Whether all rooms of the pool found places; if not, nothing has changed."""
    tentative = TentativeChanges(state, pool)
    rooms = rooms_in(state, pool)
    for room in rooms:
        for member in room.members.values():
            state.put(member, "pending")
    state.refresh()
    for room in rooms:
        if not place(pool, turn_of(state, pool, room)):
            tentative.undo()
            state.refresh()
            return False
        _withdraw_moved(state, victims)
    _place_again(state, pool, victims)
    return True


def _withdraw_moved(state: State, victims: Victims) -> None:
    """Victims that were moved for one room make way for the next ones."""
    for member in victims:
        if member.status == "pipelined" and member.old is not None:
            state.put(member, "releasing", member.old, member.old_devices)


def _place_again(state: State, pool: PoolState, victims: Victims) -> None:
    """Victims whose place was not needed keep it, and the others get what is left. Gangs that are
    below their minimum then leave altogether.
    """
    by_work: dict[Work, list[Member]] = {}
    for member in victims:
        if member.status == "releasing" and member.node and member.node.pool == pool.name:
            by_work.setdefault(member.work, []).append(member)
    units = [EvictionUnit(work, members, extras=[]) for work, members in by_work.items()]
    VictimRescheduler(state, pool).restore(units)
    for work, members in by_work.items():
        if work.elastic() == 0:
            for other in work.members.values():
                if other.status in ("running", "bound"):
                    state.put(other, "releasing", other.node, other.devices)
                    victims[other] = victims[members[0]]


def _set_tried(state: State, pool: str, version: int | None) -> None:
    if version is None:
        state.rooms_tried.pop(pool, None)
    else:
        state.rooms_tried[pool] = version
