"""Stores what people have used, in the transactions that change it, and restores it.

Rows of people who hold nothing are removed when their usage has decayed to a thirtieth.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.fairness.people import PersonUsage
from jupyter_gpushare.core.model.events import PersonLimited, PersonMeasured
from jupyter_gpushare.core.model.model import PersonLimit

from ..store.store import MemberLimitRow, PersonUsageRow, Store, StoreTransaction

__all__ = ["PeopleStore"]

HALF_LIVES: Final = 5
WITHOUT_DECAY: Final = 365 * 86_400_000
"""ms that usage is kept after the last share where it does not decay."""


class PeopleStore:
    """Of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._written: dict[tuple[str, str, str], PersonUsage] = {}

    def restore(self, people: Iterable[PersonUsageRow], limits: Iterable[MemberLimitRow]) -> None:
        """After all leases: their time since the last write is charged from then on."""
        for row in people:
            self._cluster.apply(
                PersonMeasured(
                    row.project, row.pool, row.user, row.used, row.at_ms, row.served_ms, row.at_ms
                )
            )
        for limit in limits:
            bounds = PersonLimit(limit.gpu, limit.notebooks, limit.pending)
            self._cluster.apply(PersonLimited(limit.project, limit.user, bounds))

    def write(self, write: StoreTransaction) -> dict[tuple[str, str, str], PersonUsage]:
        """Writes what has changed since the last commit. Call `written` with the result after the
        commit.
        """
        found = {}
        for project, pool, user in self._cluster.people.changed:
            people = self._cluster.people.pools[project, pool]
            usage = people.usage.get(user)
            if usage is not None and usage != self._written.get((project, pool, user)):
                found[project, pool, user] = usage
        write.people([PersonUsageRow(*who, *usage) for who, usage in found.items()])
        return found

    def written(self, rows: dict[tuple[str, str, str], PersonUsage]) -> None:
        self._written |= rows
        self._cluster.people.changed.clear()

    def prune(self, store: Store, now: int) -> None:
        """Forgets people who have held nothing for long. Raises StoreUnavailable."""
        gone = [
            (project, pool, user)
            for (project, pool), people in self._cluster.people.pools.items()
            for user, usage in people.usage.items()
            if not people.held[user]
            and now - usage.at > (HALF_LIVES * people.rules.half_life or WITHOUT_DECAY)
        ]
        if not gone:
            return
        with store.transaction() as write:
            for who in gone:
                write.forget_person(*who)
        for project, pool, user in gone:
            self._cluster.people.pools[project, pool].forget(user)
            self._written.pop((project, pool, user), None)
