"""What events about people change; `cluster` dispatches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from ..fairness.people import PersonUsage
from ..model.events import PendingSince, PersonLimited, PersonMeasured, WorkloadPromoted
from ..model.model import PersonLimit
from .state import State

__all__ = ["PEOPLE_HANDLERS"]


def _pending_since(state: State, event: PendingSince) -> None:
    state.undo_log.assign(state.work(event.workload), "pending_since", event.since)


def _person(state: State, event: PersonMeasured) -> None:
    people = state.people.of(event.project, event.pool)
    if people is None:
        return  # the rules have been removed from the policy
    people.set(event.user, PersonUsage(event.used, event.at, event.served))
    if event.active_at is not None:
        active = people.active | {event.user: event.active_at}
        state.undo_log.assign(people, "active", active)


def _limited(state: State, event: PersonLimited) -> None:
    people, key = state.people, (event.project, event.user)
    before = people.own_limits.get(key, PersonLimit())
    people.limit_person(key, event.limit)
    state.undo_log.push(people.limit_person, key, before)
    for pool in state.pools.values():
        pool.touch(freed=True)


def _promoted(state: State, event: WorkloadPromoted) -> None:
    work = state.work(event.id)
    state.undo_log.assign(work, "promoted", event.promoted)
    state.undo_log.push(state.mark_dirty, work)
    state.mark_dirty(work)


PEOPLE_HANDLERS: Final[dict[type[Any], Callable[[State, Any], None]]] = cast(
    "dict[type[Any], Callable[[State, Any], None]]",
    {
        PendingSince: _pending_since,
        PersonLimited: _limited,
        PersonMeasured: _person,
        WorkloadPromoted: _promoted,
    },
)
