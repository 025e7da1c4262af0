"""The scheduler's tables, as the user may see them, and the actions on their rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.model.errors import NotFound
from jupyter_gpushare.messages import (
    BookingCalendar,
    BookingFit,
    BookingRequest,
    CordonStatus,
    Ended,
    MemberLimit,
    NodeHistory,
    People,
    QueueHistory,
    Table,
)

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
            "people": scheduler.people,
            "bookings": scheduler.bookings,
        }
        self._node_actions: dict[str, Callable[[str], Awaitable[CordonStatus]]] = {
            "cordon": scheduler.cordon,
            "uncordon": scheduler.uncordon,
            "drain": scheduler.drain,
        }

    async def rows(self, table: str) -> Table:
        """One table."""
        return await self._tables[table]()

    async def limit_person(self, limit: MemberLimit) -> People:
        """Limit one person in a project. Raises NotAllowed, InvalidInput."""
        return await self._scheduler.limit_person(limit)

    async def book(self, request: BookingRequest) -> BookingFit:
        """Books GPUs. Raises NotAllowed, InvalidInput, Conflict."""
        return await self._scheduler.book(request)

    async def cancel_booking(self, booking: str) -> Ended:
        """Cancels a booking. Raises NotAllowed, NotFound."""
        return await self._scheduler.cancel_booking(booking)

    async def booking_calendar(self, query: Mapping[str, str]) -> BookingCalendar:
        """What is booked in a node pool, and what is free."""
        return await self._scheduler.booking_calendar(query)

    async def manage(self, workload: str, action: str) -> Ended:
        """What a manager of its project does with a workload. Raises NotFound, NotAllowed."""
        if action == "release":
            return await self._scheduler.end(workload)
        if action == "next-turn":
            return Ended(id=(await self._scheduler.next_turn(workload)).id)
        raise NotFound(f"unknown action {action!r}; actions: release, next-turn", field="action")

    async def queue_history(self, pool: str | None, minutes: int) -> QueueHistory:
        """Samples of the queues of the last `minutes`."""
        return await self._scheduler.queue_history(pool, minutes)

    async def node_history(self, query: Mapping[str, str]) -> NodeHistory:
        """What agents measured of their GPUs and machines."""
        return await self._scheduler.node_history(query)

    async def end_workload(self, workload: str) -> Ended:
        """Ends a workload. Raises NotAllowed, NotFound."""
        return await self._scheduler.end(workload)

    async def node_action(self, node: str, action: str) -> CordonStatus:
        """`cordon`, `uncordon` or `drain`. Raises NotAllowed, NotFound."""
        call = self._node_actions.get(action)
        if call is None:
            known = ", ".join(self._node_actions)
            raise NotFound(f"unknown action {action!r}; actions: {known}", field="action")
        return await call(node)
