"""Removes rows of workloads and leases that ended long ago, and reduces requests of ended
workloads, a limited number at a time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sql
from msgspec.structs import replace

from jupyter_gpushare import messages as m

from . import schema as s
from .transaction import StoreTransaction

__all__ = ["ENDED_PER_USER", "Cutoffs", "Pruner", "Retention", "remove_oldest_output"]

LARGE_REQUEST: Final = 4096
"""Characters; smaller requests of ended workloads are kept as they are."""
OUTPUTS_AT_ONCE: Final = 200
"""Workloads whose output is removed in one transaction, at most."""
SHORT_LEASE_MS: Final = 60_000
ENDED_PER_USER: Final = 10_000
"""Ended workloads of one user, unless configured otherwise."""


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Times (ms) before which ended workloads, their events, and leases with their usage are
    removed.
    """

    workloads: int
    events: int
    usage: int
    per_user: int = 0
    """See `Retention`."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long (ms) ended workloads, their events, and leases with their usage are kept."""

    workloads: int
    events: int
    usage: int
    per_user: int = 0
    """How many ended workloads of one user are kept at least; 0: all. A tenth more is kept before
    the oldest are removed.
    """

    @classmethod
    def of(cls, milliseconds: int) -> Retention:
        """The same time for everything."""
        return cls(milliseconds, milliseconds, milliseconds)

    def before(self, now: int, window: int) -> Cutoffs:
        """The cutoffs at this time. Leases are kept at least for `window` (ms), which time-based
        fair share looks at.
        """
        return Cutoffs(
            now - self.workloads, now - self.events, now - max(self.usage, window), self.per_user
        )


class Pruner:
    """Removes old rows, and remembers how far it got."""

    def __init__(self) -> None:
        self._events_removed_before = 0
        """Events of workloads that ended before this time (ms) have been removed."""
        self._reduced_up_to = (-1, "")
        """End (ms) and id of the last workload whose request has been reduced."""
        self._ended: Counter[str] | None = None
        """At least as many ended workloads as each user has; None: not counted yet."""

    def workload_ended(self, user: str) -> None:
        """One more of this user."""
        if self._ended is not None:
            self._ended[user] += 1

    def prune(self, write: StoreTransaction, before: Cutoffs, most: int) -> int:
        """Removes rows older than the cutoffs: at most `most` workloads and leases, oldest first.

        Returns the number of workloads and leases. Their ids may be used again.
        """
        workloads = _ended_before(write, s.workloads, before.workloads, most)
        if before.per_user and len(workloads) < most:
            surplus = self._surplus(write, before.per_user, most - len(workloads))
            _delete_short_leases(write, surplus)
            workloads += surplus
        for table in (s.events, s.outcomes, s.logs):
            _delete(write, table, "workload", workloads)
        _delete(write, s.workloads, "id", workloads)
        without_events = self._with_old_events(write, before.events, most)
        _delete(write, s.events, "workload", without_events)
        _delete(write, s.logs, "workload", without_events)
        for table, key, time, cutoff in (
            (s.usage_hours, "key", "hour_ms", before.usage),
            (s.audit, "number", "time_ms", before.events),
            (s.bookings, "id", "ended_ms", before.events),
            (s.given_back, "key", "start_ms", before.events),
            (s.history, "number", "time_ms", before.events),
        ):
            _delete(write, table, key, _older(write, table.c[key], table.c[time], cutoff, most))
        self._reduce_requests(write, most)
        leases = _ended_before(write, s.leases, before.usage, most)
        _delete(write, s.usage, "lease", leases)
        _delete(write, s.leases, "id", leases)
        return len(workloads) + len(leases)

    def _surplus(self, write: StoreTransaction, per_user: int, most: int) -> list[str]:
        """The oldest ended workloads of a user who has too many."""
        if self._ended is None:
            self._ended = Counter(_count_ended(write))
        crowded = (user for user, n in self._ended.items() if n > per_user + per_user // 10)
        user = next(crowded, None)
        if user is None:
            return []
        self._ended[user] = _count_ended(write, user).get(user, 0)
        surplus = self._ended[user] - per_user
        if surplus <= 0:
            return []
        query = sql.select(s.workloads.c.id).where(*_ended_of(user))
        query = query.order_by(s.workloads.c.ended_ms).limit(min(surplus, most))
        return list(write.connection.execute(query).scalars())

    def _reduce_requests(self, write: StoreTransaction, most: int) -> None:
        """Removes labels and the environment from requests of ended workloads; only their amounts
        and commands are read again.
        """
        workloads, ended = s.workloads.c, s.workloads.c.ended_ms
        place = sql.tuple_(ended, workloads.id)
        query = sql.select(workloads.id, ended, sql.func.length(workloads.request).label("size"))
        query = query.where(ended.is_not(None), ended >= self._reduced_up_to[0])
        query = query.where(place > sql.tuple_(*self._reduced_up_to)).order_by(ended, workloads.id)
        for row in write.connection.execute(query.limit(most)).all():
            if row.size > LARGE_REQUEST:
                _reduce(write, row.id)
            self._reduced_up_to = row.ended_ms, row.id

    def _with_old_events(self, write: StoreTransaction, before: int, most: int) -> list[str]:
        """Workloads that ended before this time and still have events. (Workloads may be kept much
        longer than their events.)
        """
        ended = s.workloads.c.ended_ms
        has_events = sql.exists().where(s.events.c.workload == s.workloads.c.id)
        query = sql.select(s.workloads.c.id, ended).where(
            ended >= self._events_removed_before, ended < before, has_events
        )
        found = write.connection.execute(query.order_by(ended).limit(most)).all()
        if len(found) == most:
            self._events_removed_before = found[-1].ended_ms
        else:
            self._events_removed_before = max(self._events_removed_before, before)
        return [row.id for row in found]


def _ended_of(user: str | None) -> list[sql.ColumnElement[bool]]:
    ended = s.workloads.c.ended_ms.is_not(None)
    return [ended] if user is None else [ended, s.workloads.c.user == user]


def _count_ended(write: StoreTransaction, user: str | None = None) -> dict[str, int]:
    """Ended workloads of one user, or of each."""
    column = s.workloads.c.user
    query = sql.select(column, sql.func.count().label("number")).where(*_ended_of(user))
    rows = write.connection.execute(query.group_by(column))
    return {row.user: row.number for row in rows}


def remove_oldest_output(write: StoreTransaction, user: str, size: int) -> int:
    """See `Store.remove_oldest_output`."""
    has_output = sql.exists().where(s.logs.c.workload == s.workloads.c.id)
    query = sql.select(s.workloads.c.id).where(*_ended_of(user), has_output)
    query = query.order_by(s.workloads.c.ended_ms, s.workloads.c.id).limit(OUTPUTS_AT_ONCE)
    oldest = list(write.connection.execute(query).scalars())
    length = sql.func.sum(sql.func.length(s.logs.c.text)).label("length")
    lengths = sql.select(s.logs.c.workload, length).where(s.logs.c.workload.in_(oldest))
    rows = write.connection.execute(lengths.group_by(s.logs.c.workload))
    by_workload = {row.workload: int(row.length) for row in rows}
    chosen, removed = [], 0
    for workload in oldest:
        if removed >= size:
            break
        chosen.append(workload)
        removed += by_workload[workload]
    _delete(write, s.logs, "workload", chosen)
    return removed


def _delete_short_leases(write: StoreTransaction, workloads: list[str]) -> None:
    """Leases that hardly count for usage: a user who ends workloads by the thousand has many.
    Longer ones stay, because fair shares look at them.
    """
    if not workloads:
        return
    lasted = s.leases.c.ended_ms - s.leases.c.started_ms
    is_short = sql.or_(lasted < SHORT_LEASE_MS, s.leases.c.body.like('%"planned_gpus":[]%'))
    query = sql.select(s.leases.c.id).where(s.leases.c.workload.in_(workloads), is_short)
    leases = list(write.connection.execute(query).scalars())
    _delete(write, s.usage, "lease", leases)
    _delete(write, s.leases, "id", leases)


def _reduce(write: StoreTransaction, workload: str) -> None:
    query = sql.select(s.workloads.c.request).where(s.workloads.c.id == workload)
    request = m.decode(m.WorkloadRequest, write.connection.execute(query).scalar_one())
    pods = [replace(pod, labels={}, node_selector={}) for pod in request.pods]
    command = request.command and replace(request.command, env={})
    write.renamed(replace(request, pods=pods, command=command))


def _ended_before(write: StoreTransaction, table: sql.Table, before: int, most: int) -> list[str]:
    query = sql.select(table.c.id).where(table.c.ended_ms < before)
    query = query.order_by(table.c.ended_ms).limit(most)
    return list(write.connection.execute(query).scalars())


def _older(
    write: StoreTransaction, key: sql.Column[Any], time: sql.Column[Any], before: int, most: int
) -> list[Any]:
    """A query comes first: deleting nothing would still be a commit, every second."""
    query = sql.select(key).where(time < before).order_by(time).limit(most)
    return list(write.connection.execute(query).scalars())


def _delete(write: StoreTransaction, table: sql.Table, column: str, ids: list[Any]) -> None:
    if ids:
        write.do(table.delete().where(table.c[column].in_(ids)))
