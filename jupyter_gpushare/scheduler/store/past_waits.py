"""How long requests waited for their first lease, from the stored workloads and leases."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sql

from jupyter_gpushare import messages as m

from . import schema as s
from .database import translated_errors
from .store import Store

__all__ = ["PastWait", "past_waits"]


@dataclass(frozen=True, slots=True)
class PastWait:
    """One wait that has ended; times in ms. `pool` is the pool of the first lease; None: the
    request ended without one.
    """

    id: str
    request: m.WorkloadRequest
    project: str
    begun: int
    ended: int
    pool: str | None


def past_waits(store: Store, since: int, most: int) -> list[PastWait]:
    """The newest `most` waits that ended after that time, granted or not. Raises
    StoreUnavailable.
    """
    first, earlier = s.leases, s.leases.alias()
    before = sql.tuple_(earlier.c.started_ms, earlier.c.id) < sql.tuple_(
        first.c.started_ms, first.c.id
    )
    had_one_before = sql.exists().where(earlier.c.workload == first.c.workload, before)
    in_time = first.c.ended_ms.is_(None) | (
        first.c.ended_ms >= since
    )  # redundant, but there is an index for it, and leases are kept for a year
    what = (
        s.workloads.c.id,
        s.workloads.c.request,
        s.workloads.c.project,
        s.workloads.c.created_ms,
    )
    granted = (
        sql.select(*what, first.c.started_ms.label("over_ms"), first.c.body)
        .join(first, first.c.workload == s.workloads.c.id)
        .where(in_time, first.c.started_ms >= since, ~had_one_before)
    )
    had_one = sql.exists().where(s.leases.c.workload == s.workloads.c.id)
    given_up = sql.select(
        *what, s.workloads.c.ended_ms.label("over_ms"), sql.null().label("body")
    ).where(s.workloads.c.ended_ms >= since, ~had_one)
    with translated_errors(), store.engine.connect() as connection:
        rows = [
            row
            for query in (
                granted.order_by(first.c.started_ms.desc()),
                given_up.order_by(s.workloads.c.ended_ms.desc()),
            )
            for row in connection.execute(query.limit(most))
        ]
    newest = sorted(rows, key=lambda row: (row.over_ms, row.id))[-most:]
    return [
        PastWait(
            row.id,
            m.decode(m.WorkloadRequest, row.request),
            row.project,
            row.created_ms,
            row.over_ms,
            None if row.body is None else m.decode(m.LeaseBody, row.body).pool,
        )
        for row in newest
    ]
