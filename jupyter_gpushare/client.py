"""Talks to the scheduler service: typed calls, its stream of changes, and an agent's link, over
HTTP or inside one process.

A `Transport` (`transports`) carries bytes; `SchedulerClient` gives them types and turns error
bodies back into the errors of `core.errors`. A scheduler that cannot be reached is `Unavailable`;
nothing here waits for ever.
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
    """Stands in a stream of changes where the link broke. It is made anew by itself; nothing that
    happened meanwhile is missed.
    """

    message: str


class AgentLink:
    """An agent's side of its link: send reports, iterate over orders."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def send(self, body: m.FromAgent) -> None:
        await self._wire.send(m.encode(body))

    async def __aiter__(self) -> AsyncIterator[m.ToAgent]:
        async for data in self._wire:
            order: m.ToAgent = m.decode(m.ToAgent, data)  # type: ignore[arg-type]  # a union is a type to msgspec
            yield order


class SchedulerClient:
    """Every call raises `GpuShareError`: `Unavailable` when the scheduler cannot be reached, else
    what it answered.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.reachable = False
        """Whether the stream of changes is up, or else the last call got through."""

    async def whoami(self) -> m.WhoAmI:
        """Who the caller is to the scheduler."""
        return await self._call("whoami", m.WhoAmI)

    async def waiting(self) -> m.Waiting:
        """Everybody's place in the queue."""
        return await self._call("waiting", m.Waiting)

    async def submit(self, request: m.WorkloadRequest) -> m.WorkloadView:
        """Asks for GPUs; the same request may be sent again."""
        return await self._call("submit", m.WorkloadView, body=request)

    async def end(self, workload: str) -> m.Ended:
        """Gives everything back; also right when it has ended before."""
        return await self._call("end", m.Ended, id=workload)

    async def rename(self, workload: str, name: str) -> m.WorkloadView:
        """What its owner calls it from now on."""
        return await self._call(
            "rename", m.WorkloadView, body=m.WorkloadName(name=name), id=workload
        )

    async def workload(self, workload: str) -> m.WorkloadView:
        """One workload, with why it waits."""
        return await self._call("workload", m.WorkloadView, id=workload)

    async def logs(self, workload: str, *, pod: str | None = None, cursor: int = 0) -> m.Logs:
        """What its pods have printed after the cursor."""
        query = {"cursor": str(cursor)} | ({"pod": pod} if pod is not None else {})
        return await self._call("logs", m.Logs, query=query, id=workload)

    async def workloads(
        self, *, project: str | None = None, kernel_id: str | None = None, ended: bool = False
    ) -> m.Workloads:
        """All that the caller may see, of this project or kernel when one is given; `ended`: batch
        work that is over.
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
        """Would it start now, perhaps in place of another workload? Changes nothing."""
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
        """What the queues held and wanted, oldest first; of the last hour unless told otherwise."""
        query = {
            name: str(value)
            for name, value in (("pool", pool), ("minutes", minutes))
            if value is not None
        }
        return await self._call("queue_history", m.QueueHistory, query=query)

    async def usage(
        self, *, by: str = "project", since: str | None = None, until: str | None = None
    ) -> m.Usage:
        """GPU-hours of a period: the last seven days unless told otherwise."""
        query = {"by": by} | {
            name: value for name, value in (("since", since), ("until", until)) if value is not None
        }
        return await self._call("usage", m.Usage, query=query)

    async def audit(
        self, *, since: str | None = None, until: str | None = None, action: str | None = None
    ) -> m.Audit:
        """What administrators did, and who was evicted; admins only."""
        query = {
            name: value
            for name, value in (("since", since), ("until", until), ("action", action))
            if value is not None
        }
        return await self._call("audit", m.Audit, query=query)

    async def evictions(self) -> m.Evictions:
        """Whose place was taken away, oldest first."""
        return await self._call("evictions", m.Evictions)

    async def status(self) -> m.ServiceStatus:
        """The service, its policy, and who is asking."""
        return await self._call("status", m.ServiceStatus)

    async def cordon(self, node: str) -> m.CordonStatus:
        """Nothing new on it."""
        return await self._call("cordon", m.CordonStatus, name=node)

    async def uncordon(self, node: str) -> m.CordonStatus:
        """It takes work again."""
        return await self._call("uncordon", m.CordonStatus, name=node)

    async def drain(self, node: str) -> m.CordonStatus:
        """Everything on it is to leave; again: how far that is."""
        return await self._call("drain", m.CordonStatus, name=node)

    async def check_policy(self, body: m.PolicyText) -> m.PolicyCheck:
        """What it would change."""
        return await self._call("check_policy", m.PolicyCheck, body=body)

    async def snapshot(self) -> dict[str, Any]:
        """Everything as a scenario; admins only."""
        return await self._call("snapshot", dict[str, Any])

    async def tokens(self) -> m.Tokens:
        """All tokens, without their secrets; admins only."""
        return await self._call("tokens", m.Tokens)

    async def create_token(self, request: m.TokenRequest) -> m.TokenView:
        """A new token, with its secret; admins only."""
        return await self._call("create_token", m.TokenView, body=request)

    async def revoke_token(self, token: str) -> m.TokenView:
        """Ends a token by its id; admins only."""
        return await self._call("revoke_token", m.TokenView, id=token)

    async def changes(
        self, since: int | None = None
    ) -> AsyncGenerator[m.SchedulerFrame | ConnectionLost, None]:
        """First the state (or, with `since`, what came after that revision), then changes, for
        ever.

        A broken link shows as `ConnectionLost`, is made anew with back-off and jitter, and goes on
        where it broke. A few frames may come twice.
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
        """An agent's link; the first thing to send is its `AgentHello`. Not made anew by itself:
        the hello is the agent's to make.
        """
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
    """An answer that is not what it should be is the scheduler's fault, not the caller's."""
    try:
        return m.decode(kind, answer)
    except InvalidInput as error:
        raise Unavailable(f"the scheduler's answer cannot be read: {error.message}") from error


def _frame(data: bytes) -> m.SchedulerFrame | None:
    """None for a kind of frame that a newer scheduler sends and we do not know."""
    try:
        frame: m.SchedulerFrame = msgspec.json.decode(data, type=m.SchedulerFrame)
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError as error:
        raise Unavailable(f"the scheduler's stream cannot be read: {error}") from error
    return frame
