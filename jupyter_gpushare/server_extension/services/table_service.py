"""The scheduler's tables, as the user may see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.messages import QueueHistory, Table

__all__ = ["TableService"]


class TableService:
    """All methods raise Unavailable when the scheduler cannot be reached."""

    def __init__(self, scheduler: SchedulerClient) -> None:
        self._scheduler = scheduler
        self._tables: dict[str, Callable[[], Awaitable[Table]]] = {
            "queues": scheduler.queues,
            "nodes": scheduler.nodes,
            "pools": scheduler.pools,
            "projects": scheduler.projects,
            "workloads": scheduler.workloads,
            "evictions": scheduler.evictions,
        }

    async def rows(self, table: str) -> Table:
        """One table."""
        return await self._tables[table]()

    async def queue_history(self, pool: str | None, minutes: int) -> QueueHistory:
        """Samples of the queues of the last `minutes`."""
        return await self._scheduler.queue_history(pool, minutes)
