"""Client of the scheduler service: typed calls, its stream of changes, and an agent's connection,
over HTTP or inside one process.

A `Transport` carries bytes; `SchedulerClient` converts them to bodies and errors. A scheduler that
cannot be reached is `Unavailable`; every call has a timeout.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from jupyter_gpushare.aio import Backoff
from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput, Unavailable

from . import messages as m
from .routes import API_ROOT, ROUTES
from .transports import HttpTransport, Transport, Wire, token_in

__all__ = [
    "AgentLink",
    "HttpTransport",
    "ConnectionLost",
    "SchedulerClient",
    "Transport",
    "Wire",
    "token_in",
]

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 15.0

_PATHS: Final = {route.name: route.path for route in ROUTES}


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """Marks a lost connection in a stream of changes. The stream reconnects and resumes without
    loss.
    """

    message: str


class AgentLink:
    """The agent's side of its connection: send reports, iterate over orders."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def send(self, body: m.FromAgent) -> None:
        await self._wire.send(m.encode(body))

    async def __aiter__(self) -> AsyncIterator[m.ToAgent]:
        async for data in self._wire:
            order: m.ToAgent = m.decode(
                m.ToAgent,  # type: ignore[arg-type]  # msgspec takes a union
                data,
            )
            yield order


class SchedulerClient:
    """Every call raises `GpuShareError`: `Unavailable` if the scheduler cannot be reached, else the
    error of the answer.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.reachable = False
        """Whether the stream of changes is connected, or the last call succeeded."""

    async def whoami(self) -> m.WhoAmI:
        """The caller's identity and permissions."""
        return await self._call("whoami", m.WhoAmI)

    async def waiting(self) -> m.Waiting:
        """The queue of pending workloads."""
        return await self._call("waiting", m.Waiting)

    async def submit(self, request: m.WorkloadRequest) -> m.WorkloadView:
        """Submits a workload; idempotent."""
        return await self._call("submit", m.WorkloadView, body=request)

    async def end(self, workload: str) -> m.Ended:
        """Ends a workload; idempotent."""
        return await self._call("end", m.Ended, id=workload)

    async def rename(self, workload: str, name: str) -> m.WorkloadView:
        """Renames a workload."""
        return await self._call(
            "rename", m.WorkloadView, body=m.WorkloadName(name=name), id=workload
        )

    async def workload(self, workload: str) -> m.WorkloadView:
        """One workload with its reason."""
        return await self._call("workload", m.WorkloadView, id=workload)

    async def logs(self, workload: str, *, pod: str | None = None, cursor: int = 0) -> m.Logs:
        """Output of its pods after the cursor."""
        query = {"cursor": str(cursor)} | ({"pod": pod} if pod is not None else {})
        return await self._call("logs", m.Logs, query=query, id=workload)

    async def workloads(
        self, *, project: str | None = None, kernel_id: str | None = None, ended: bool = False
    ) -> m.Workloads:
        """The workloads that the caller may see, filtered by project or kernel; with `ended`, ended
        batch workloads.
        """
        query = {
            name: value
            for name, value in (("project", project), ("kernel_id", kernel_id))
            if value is not None
        }
        query |= {"ended": "true"} if ended else {}
        return await self._call("workloads", m.Workloads, query=query)

    async def what_if(
        self, request: m.WorkloadRequest, instead_of: str | None = None
    ) -> m.WhatIfAnswer:
        """Would it start now, perhaps instead of another workload? Changes nothing."""
        return await self._call(
            "what_if",
            m.WhatIfAnswer,
            body=request,
            query={"instead_of": instead_of} if instead_of else None,
        )

    async def queues(self) -> m.Queues:
        """Departments and projects per pool and resource."""
        return await self._call("queues", m.Queues)

    async def nodes(self) -> m.Nodes:
        """Nodes and their GPUs."""
        return await self._call("nodes", m.Nodes)

    async def pools(self) -> m.Pools:
        """Node pools."""
        return await self._call("pools", m.Pools)

    async def projects(self) -> m.Projects:
        """Projects per pool."""
        return await self._call("projects", m.Projects)

    async def queue_history(
        self, pool: str | None = None, minutes: int | None = None
    ) -> m.QueueHistory:
        """Samples of the queues, oldest first; default: the last hour."""
        query = {
            name: str(value)
            for name, value in (("pool", pool), ("minutes", minutes))
            if value is not None
        }
        return await self._call("queue_history", m.QueueHistory, query=query)

    async def node_history(self, query: Mapping[str, str]) -> m.NodeHistory:
        """What agents measured in the last hour; `query`: minutes, since, node."""
        return await self._call("node_history", m.NodeHistory, query=query)

    async def people(self) -> m.People:
        """The caller, and the people of projects that the caller manages."""
        return await self._call("people", m.People)

    async def limit_person(self, limit: m.MemberLimit) -> m.People:
        """Limits one person in a project; its managers only."""
        return await self._call("limit_person", m.People, body=limit)

    async def bookings(self) -> m.Bookings:
        """Bookings of the caller's projects."""
        return await self._call("bookings", m.Bookings)

    async def book(self, request: m.BookingRequest) -> m.BookingFit:
        """Books GPUs; with `dry_run` only tells whether they could be booked."""
        return await self._call("book", m.BookingFit, body=request)

    async def booking_calendar(self, query: Mapping[str, str]) -> m.BookingCalendar:
        """What is booked and free; `query`: pool, from, to."""
        return await self._call("booking_calendar", m.BookingCalendar, query=query)

    async def renew_booking_feed(self) -> m.BookingFeed:
        """A new address for calendar programs."""
        return await self._call("renew_booking_feed", m.BookingFeed)

    async def revoke_booking_feed(self) -> m.BookingFeed:
        """Ends the address for calendar programs."""
        return await self._call("revoke_booking_feed", m.BookingFeed)

    async def cancel_booking(self, booking: str) -> m.Ended:
        """Cancels a booking."""
        return await self._call("cancel_booking", m.Ended, id=booking)

    async def next_turn(self, workload: str) -> m.WorkloadView:
        """Puts a pending workload first in its project, once; its managers only."""
        return await self._call("next_turn", m.WorkloadView, id=workload)

    async def usage(
        self, *, by: str = "project", since: str | None = None, until: str | None = None
    ) -> m.Usage:
        """GPU-hours of a period; default: the last seven days."""
        query = {"by": by} | {
            name: value for name, value in (("since", since), ("until", until)) if value is not None
        }
        return await self._call("usage", m.Usage, query=query)

    async def audit(
        self, *, since: str | None = None, until: str | None = None, action: str | None = None
    ) -> m.Audit:
        """The audit log; admins only."""
        query = {
            name: value
            for name, value in (("since", since), ("until", until), ("action", action))
            if value is not None
        }
        return await self._call("audit", m.Audit, query=query)

    async def evictions(self) -> m.Evictions:
        """Evictions, oldest first."""
        return await self._call("evictions", m.Evictions)

    async def status(self) -> m.ServiceStatus:
        """The service, its policy, and the caller."""
        return await self._call("status", m.ServiceStatus)

    async def cordon(self, node: str) -> m.CordonStatus:
        """Cordons a node; admins only."""
        return await self._call("cordon", m.CordonStatus, name=node)

    async def uncordon(self, node: str) -> m.CordonStatus:
        """Uncordons a node; admins only."""
        return await self._call("uncordon", m.CordonStatus, name=node)

    async def drain(self, node: str) -> m.CordonStatus:
        """Drains a node; repeat to see the progress; admins only."""
        return await self._call("drain", m.CordonStatus, name=node)

    async def check_policy(self, body: m.PolicyText) -> m.PolicyCheck:
        """What a policy file would change; admins only."""
        return await self._call("check_policy", m.PolicyCheck, body=body)

    async def snapshot(self) -> dict[str, Any]:
        """The cluster as a scenario; admins only."""
        return await self._call("snapshot", dict[str, Any])

    async def tokens(self) -> m.Tokens:
        """All tokens, without their secrets; admins only."""
        return await self._call("tokens", m.Tokens)

    async def create_token(self, request: m.TokenRequest) -> m.TokenView:
        """Creates a token and returns its secret; admins only."""
        return await self._call("create_token", m.TokenView, body=request)

    async def revoke_token(self, token: str) -> m.TokenView:
        """Revokes a token; admins only."""
        return await self._call("revoke_token", m.TokenView, id=token)

    async def changes(
        self, since: int | None = None
    ) -> AsyncGenerator[m.SchedulerFrame | ConnectionLost, None]:
        """First the state (or, with `since`, changes after that revision), then changes, without
        end.

        A lost connection yields `ConnectionLost`; the stream reconnects with back-off and resumes.
        A few frames may be repeated.
        """
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            try:
                async with aclosing(self._frames(since)) as frames:
                    async for frame in frames:
                        since = frame.revision
                        backoff.reset()
                        self.reachable = True
                        yield frame
                lost = ConnectionLost("the scheduler closed the stream")
            except GpuShareError as error:
                lost = ConnectionLost(error.message)
            self.reachable = False
            yield lost
            await backoff.sleep()

    async def _frames(self, since: int | None) -> AsyncGenerator[m.SchedulerFrame, None]:
        query = {} if since is None else {"since": str(since)}
        async with self.transport.connect(_PATHS["stream"], query) as wire:
            async for data in wire:
                if (frame := _frame(data)) is not None:
                    yield frame

    @asynccontextmanager
    async def agent_link(self) -> AsyncIterator[AgentLink]:
        """An agent's connection; the agent sends `AgentHello` first. It does not reconnect."""
        async with self.transport.connect(f"{API_ROOT}/agent", {}) as wire:
            yield AgentLink(wire)

    async def _call(
        self,
        route: str,
        kind: type[T],
        *,
        body: object = None,
        query: Mapping[str, str] | None = None,
        **path: str,
    ) -> T:
        known = next(one for one in ROUTES if one.name == route)
        url = known.path.format(**{name: quote(value, safe="") for name, value in path.items()})
        sent = None if body is None else m.encode(body)
        try:
            status, _, answer = await self.transport.call(known.verb, url, query or {}, sent)
        except Unavailable:
            self.reachable = False
            raise
        self.reachable = status < 500
        if status != 200:
            raise m.error_from(status, answer)
        return _read(kind, answer)


def _read(kind: type[T], answer: bytes) -> T:
    """Decodes an answer. One that cannot be read is `Unavailable`, not the caller's mistake."""
    try:
        return m.decode(kind, answer)
    except InvalidInput as error:
        raise Unavailable(f"the scheduler's answer cannot be read: {error.message}") from error


def _frame(data: bytes) -> m.SchedulerFrame | None:
    """None for an unknown kind of frame, which a newer scheduler may send."""
    try:
        frame: m.SchedulerFrame = msgspec.json.decode(data, type=m.SchedulerFrame)
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError as error:
        raise Unavailable(f"the scheduler's stream cannot be read: {error}") from error
    return frame
