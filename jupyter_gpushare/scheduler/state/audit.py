"""The audit log: administrators' actions, written in the transaction that performs them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import sqlalchemy as sql

from jupyter_gpushare import messages as m

from ..store import schema as s
from ..store.database import translated_errors
from ..store.store import Store, StoreTransaction

__all__ = ["AuditEntry", "audit", "entries"]

log = logging.getLogger("gpushare.audit")
LONGEST_DETAIL = 20_000


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One action. `time_ms`: wall-clock ms."""

    number: int
    time_ms: int
    actor: str
    action: str
    object: str
    detail: str

    def row(self) -> m.AuditRow:
        """As sent to clients."""
        time = m.stamp(self.time_ms)
        return m.AuditRow(
            number=self.number,
            time=time,
            actor=self.actor,
            action=self.action,
            object=self.object,
            detail=self.detail,
        )


def audit(
    write: StoreTransaction,
    now_ms: int,
    actor: str,
    action: str,
    object: str,  # noqa: A002
    detail: str = "",
    **about: str,
) -> None:
    """Writes one entry. `actor`: a user, or `policy file`; `action`: one word; `object`: `node n0`,
    `policy`; `detail`: what and why.

    `about`: extra fields of the log line only (`workload`, `node`, ...).
    """
    values = {
        "time_ms": now_ms,
        "actor": actor,
        "action": action,
        "object": object,
        "detail": detail[:LONGEST_DETAIL],
    }
    write.do(s.audit.insert(), values)
    log.info(
        "%s: %s %s%s",
        actor or "somebody",
        action,
        object,
        f": {detail}" if detail else "",
        extra={"actor": actor, **about},
    )


def entries(
    store: Store,
    *,
    after: int = 0,
    most: int = 10_000,
    since: int = 0,
    until: int | None = None,
    action: str | None = None,
) -> list[AuditEntry]:
    """At most `most` entries with a number above `after`, oldest first; optionally between two
    times (ms), or of one action.
    """
    query = (
        sql.select(s.audit)
        .where(s.audit.c.number > after, s.audit.c.time_ms >= since)
        .order_by(s.audit.c.number)
        .limit(most)
    )
    if until is not None:
        query = query.where(s.audit.c.time_ms <= until)
    if action is not None:
        query = query.where(s.audit.c.action == action)
    with translated_errors(), store.engine.connect() as connection:
        return [AuditEntry(**row._mapping) for row in connection.execute(query)]
