"""Removes rows of workloads and leases that ended long ago, and reduces requests of ended
workloads, a limited number at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sql
from msgspec.structs import replace

from jupyter_gpushare import messages as m

from . import schema as s
from .transaction import StoreTransaction

__all__ = ["Cutoffs", "Pruner", "Retention"]

LARGE_REQUEST: Final = 4096
"""Characters; smaller requests of ended workloads are kept as they are."""


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Times (ms) before which ended workloads, their events, and leases with their usage are
    removed.
    """

    workloads: int
    events: int
    usage: int


@dataclass(frozen=True, slots=True)
class Retention:
    """How long (ms) ended workloads, their events, and leases with their usage are kept."""

    workloads: int
    events: int
    usage: int

    @classmethod
    def of(cls, milliseconds: int) -> Retention:
        """The same time for everything."""
        return cls(milliseconds, milliseconds, milliseconds)

    def before(self, now: int, window: int) -> Cutoffs:
        """The cutoffs at this time. Leases are kept at least for `window` (ms), which time-based
        fair share looks at.
        """
        return Cutoffs(now - self.workloads, now - self.events, now - max(self.usage, window))


class Pruner:
    """Removes old rows, and remembers how far it got."""

    def __init__(self) -> None:
        self._events_removed_before = 0
        """Events of workloads that ended before this time (ms) have been removed."""
        self._reduced_up_to = (-1, "")
        """End (ms) and id of the last workload whose request has been reduced."""

    def prune(self, write: StoreTransaction, before: Cutoffs, most: int) -> int:
        """Removes rows older than the cutoffs: at most `most` workloads and leases, oldest first.

        Returns the number of workloads and leases. Their ids may be used again.
        """
        workloads = _ended_before(write, s.workloads, before.workloads, most)
        for table in (s.events, s.outcomes, s.logs):
            _delete(write, table, "workload", workloads)
        _delete(write, s.workloads, "id", workloads)
        without_events = self._with_old_events(write, before.events, most)
        _delete(write, s.events, "workload", without_events)
        _delete(write, s.logs, "workload", without_events)
        for table, key, time, cutoff in (
            (s.usage_hours, "key", "hour_ms", before.usage),
            (s.audit, "number", "time_ms", before.events),
            (s.history, "number", "time_ms", before.events),
        ):
            _delete(write, table, key, _older(write, table.c[key], table.c[time], cutoff, most))
        self._reduce_requests(write, most)
        leases = _ended_before(write, s.leases, before.usage, most)
        _delete(write, s.usage, "lease", leases)
        _delete(write, s.leases, "id", leases)
        return len(workloads) + len(leases)

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
