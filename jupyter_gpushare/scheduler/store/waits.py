"""How long requests waited for their first lease, read back from what is kept of workloads and leases. Nothing is written for it."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sql

from jupyter_gpushare import messages as m

from . import schema as s
from .database import ours
from .store import Store

__all__ = ["PastWait", "past_waits"]


@dataclass(frozen=True, slots=True)
class PastWait:
    """One wait that is over; times in ms. `pool`: where it got its first lease; None: it was given up without one."""

    id: str
    request: m.WorkloadRequest
    project: str
    begun: int
    ended: int
    pool: str | None


def past_waits(store: Store, since: int, most: int) -> list[PastWait]:
    """Those that ended after that time, at most so many, the newest of those that were granted and of those that were given up.

    Raises StoreUnavailable."""
    place = sql.func.row_number().over(partition_by=s.leases.c.workload, order_by=(s.leases.c.started_ms, s.leases.c.id)).label("place")
    first = sql.select(s.leases.c.workload, s.leases.c.body, s.leases.c.started_ms, place).subquery()
    what = (s.workloads.c.id, s.workloads.c.request, s.workloads.c.project, s.workloads.c.created_ms)
    granted = (
        sql.select(*what, first.c.started_ms.label("over_ms"), first.c.body)
        .join(first, first.c.workload == s.workloads.c.id)
        .where(first.c.place == 1, first.c.started_ms >= since)
    )
    had_one = sql.exists().where(s.leases.c.workload == s.workloads.c.id)
    given_up = sql.select(*what, s.workloads.c.ended_ms.label("over_ms"), sql.null().label("body")).where(
        s.workloads.c.ended_ms >= since, ~had_one
    )
    with ours(), store.engine.connect() as connection:
        rows = [
            row
            for query in (granted.order_by(first.c.started_ms.desc()), given_up.order_by(s.workloads.c.ended_ms.desc()))
            for row in connection.execute(query.limit(most))
        ]
    newest = sorted(rows, key=lambda row: (row.over_ms, row.id))[-most:]
    return [
        PastWait(
            row.id, m.decode(m.WorkloadRequest, row.request), row.project, row.created_ms, row.over_ms,
            None if row.body is None else m.decode(m.LeaseBody, row.body).pool,
        )
        for row in newest
    ]  # fmt: skip
