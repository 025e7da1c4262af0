"""Talks to the scheduler service: typed calls, its stream of changes, and an agent's link, over HTTP or inside one process.

A `Transport` carries bytes; `SchedulerClient` gives them types and turns error bodies back into the errors of `core.errors`. A
scheduler that cannot be reached is `Unavailable`; nothing here waits for ever.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

from . import messages as m
from .core.errors import Conflict, GpuShareError, InvalidInput, NotAllowed, NotFound, OutOfTurn, Unavailable
from .routes import API_ROOT, ROUTES

__all__ = ["AgentLink", "HttpTransport", "Lost", "SchedulerClient", "Transport", "Wire", "error_from", "token_in"]

T = TypeVar("T")

CONNECT_S: Final = 5.0
CALL_S: Final = 20.0
PING_S: Final = 20.0
GOODBYE_S: Final = 1.0
FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 15.0
LONGEST_FRAME: Final = 64 << 20
"""A first state of a large cluster is one frame."""

_PATHS: Final = {route.name: route.path for route in ROUTES}
_KINDS: Final = {kind.code: kind for kind in (InvalidInput, NotFound, NotAllowed, Conflict, OutOfTurn, Unavailable)}
_KINDS_BY_STATUS: Final = {400: InvalidInput, 401: NotAllowed, 403: NotAllowed, 404: NotFound, 409: Conflict, 413: InvalidInput}


# -- transports -----------------------------------------------------------------------------------------------------------------


class Wire(Protocol):
    """An open connection in both directions. Iteration ends when the peer closes it, and raises `Unavailable` when it said why."""

    async def send(self, data: bytes) -> None: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Transport(Protocol):
    """Carries calls and connections to one scheduler, on behalf of one caller. Raises `Unavailable` when it cannot."""

    async def call(self, verb: str, path: str, query: Mapping[str, str], body: bytes | None) -> tuple[int, str, bytes]:
        """(HTTP status, content type, body)."""

    def connect(self, path: str, query: Mapping[str, str]) -> AbstractAsyncContextManager[Wire]:
        """A WebSocket, or what stands for one."""


def token_in(file: str | Path) -> Callable[[], str]:
    """Reads a token from a file at every call, so that a new one is used without a restart. Raises `Unavailable`."""

    def read() -> str:
        try:
            return Path(file).read_text().strip()
        except OSError as error:
            raise Unavailable(f"the token file cannot be read: {error.strerror or error}", field=str(file)) from None

    return read


class HttpTransport:
    """Over HTTP(S) with a bearer token. `token` is the token or what gives it; `ca_file` holds the certificates to trust."""

    def __init__(self, url: str, token: str | Callable[[], str], *, ca_file: str | None = None, call_s: float = CALL_S) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInput(f"the scheduler's address must begin with http:// or https://, got {url!r}", field="scheduler")
        self.url = url.rstrip("/")
        self._token, self._ca_file, self._call_s = token, ca_file or None, call_s
        self._http: SimpleAsyncHTTPClient | None = None

    async def call(self, verb: str, path: str, query: Mapping[str, str], body: bytes | None) -> tuple[int, str, bytes]:
        if self._http is None:  # made inside the loop that it belongs to
            self._http = SimpleAsyncHTTPClient(force_instance=True, max_clients=100)
        request = self._request(self.url + _with_query(path, query), method=verb, body=body, request_timeout=self._call_s)
        with _reaching(self.url):
            response = await self._http.fetch(request, raise_error=False)
            return response.code, response.headers.get("Content-Type", ""), response.body

    @asynccontextmanager
    async def connect(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Wire]:
        request = self._request("ws" + self.url.removeprefix("http") + _with_query(path, query), request_timeout=CONNECT_S)
        with _reaching(self.url):
            socket = await websocket_connect(request, ping_interval=PING_S, max_message_size=LONGEST_FRAME)
        wire = _Socket(socket, self.url)
        try:
            yield wire
        finally:
            await wire.close()

    def _request(self, url: str, **more: Any) -> HTTPRequest:
        token = self._token if isinstance(self._token, str) else self._token()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        # no redirects: a token goes to nobody else
        careful: dict[str, Any] = {"connect_timeout": CONNECT_S, "follow_redirects": False, "allow_nonstandard_methods": True}
        return HTTPRequest(url, headers=headers, ca_certs=self._ca_file, **careful, **more)

    def close(self) -> None:
        """Lets go of its connections. May be called twice."""
        if self._http is not None:
            self._http.close()
            self._http = None


class _Socket:
    def __init__(self, socket: WebSocketClientConnection, url: str) -> None:
        self._socket, self._url, self._is_over = socket, url, False

    async def send(self, data: bytes) -> None:
        with _reaching(self._url):
            await self._socket.write_message(data)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (data := await self._socket.read_message()) is not None:
            yield data.encode() if isinstance(data, str) else data
        self._is_over = True
        if self._socket.close_reason:
            raise Unavailable(f"the scheduler ended the link: {self._socket.close_reason}")

    async def close(self) -> None:
        """Says goodbye, and waits a moment for the peer's."""
        self._socket.close()
        with suppress(TimeoutError, WebSocketClosedError, OSError):
            async with asyncio.timeout(GOODBYE_S):
                while not self._is_over and await self._socket.read_message() is not None:
                    pass


class _reaching:  # noqa: N801 - reads as a phrase: `with _reaching(url):`
    """Turns what a socket can do to us into `Unavailable`, or into what the scheduler said while it refused a WebSocket."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, HTTPClientError) and error.response is not None and error.code != 599:
            raise error_from(error.code, error.response.body or b"") from None
        if isinstance(error, (HTTPClientError, WebSocketClosedError, OSError, ssl.SSLError, TimeoutError)):
            said = error.message if isinstance(error, HTTPClientError) else getattr(error, "strerror", None) or str(error)
            raise Unavailable(f"the scheduler at {self._url} cannot be reached: {said or type(error).__name__}") from error


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def error_from(status: int, body: bytes) -> GpuShareError:
    """The error that such an answer stands for; its code and status are kept even where no class of ours has them."""
    try:
        detail = m.decode(m.ErrorBody, body).error
    except InvalidInput:
        detail = m.ErrorDetail(code="unavailable", message=f"the scheduler answered {status} in a form that nobody here understands")
        status = 503
    kind = _KINDS.get(detail.code) or _KINDS_BY_STATUS.get(status) or (Unavailable if status >= 500 else GpuShareError)
    error = kind(detail.message, field=detail.field if isinstance(detail.field, str) else None)
    error.code, error.status_hint = detail.code, status
    return error


# -- the client -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lost:
    """Stands in a stream of changes where the link broke. It is made anew by itself; nothing that happened meanwhile is missed."""

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
    """Every call raises `GpuShareError`: `Unavailable` when the scheduler cannot be reached, else what it answered."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.reachable = False
        """Whether the stream of changes is up, or else the last call got through."""

    async def submit(self, request: m.WorkloadRequest) -> m.WorkloadView:
        """Asks for GPUs; the same request may be sent again."""
        return await self._call("submit", m.WorkloadView, body=request)

    async def end(self, workload: str) -> m.Ended:
        """Gives everything back; also right when it has ended before."""
        return await self._call("end", m.Ended, id=workload)

    async def workload(self, workload: str) -> m.WorkloadView:
        """One workload, with why it waits."""
        return await self._call("workload", m.WorkloadView, id=workload)

    async def workloads(self, *, project: str | None = None, kernel_id: str | None = None) -> m.Workloads:
        """All that the caller may see, of this project or kernel when one is given."""
        query = {name: value for name, value in (("project", project), ("kernel_id", kernel_id)) if value is not None}
        return await self._call("workloads", m.Workloads, query=query)

    async def what_if(self, request: m.WorkloadRequest) -> m.WhatIfAnswer:
        """Would it start now? Changes nothing."""
        return await self._call("what_if", m.WhatIfAnswer, body=request)

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

    async def queue_history(self, pool: str | None = None, minutes: int | None = None) -> m.QueueHistory:
        """What the queues held and wanted, oldest first; of the last hour unless told otherwise."""
        query = {name: str(value) for name, value in (("pool", pool), ("minutes", minutes)) if value is not None}
        return await self._call("queue_history", m.QueueHistory, query=query)

    async def evictions(self) -> m.Evictions:
        """Whose place was taken away, oldest first."""
        return await self._call("evictions", m.Evictions)

    async def status(self) -> m.ServiceStatus:
        """The service, its policy, and who is asking."""
        return await self._call("status", m.ServiceStatus)

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

    async def changes(self, since: int | None = None) -> AsyncGenerator[m.SchedulerFrame | Lost, None]:
        """First the state (or, with `since`, what came after that revision), then changes, for ever.

        A broken link shows as `Lost`, is made anew with back-off and jitter, and goes on where it broke. A few frames may come twice.
        """
        pauses = _pauses()
        while True:
            try:
                async with aclosing(self._frames(since)) as frames:
                    async for frame in frames:
                        since, pauses = frame.revision, _pauses()
                        self.reachable = True
                        yield frame
                lost = Lost("the scheduler closed the stream")
            except GpuShareError as error:
                lost = Lost(error.message)
            self.reachable = False
            yield lost
            await asyncio.sleep(next(pauses))

    async def _frames(self, since: int | None) -> AsyncGenerator[m.SchedulerFrame, None]:
        query = {} if since is None else {"since": str(since)}
        async with self.transport.connect(_PATHS["stream"], query) as wire:
            async for data in wire:
                if (frame := _frame(data)) is not None:
                    yield frame

    @asynccontextmanager
    async def agent_link(self) -> AsyncIterator[AgentLink]:
        """An agent's link; the first thing to send is its `AgentHello`. Not made anew by itself: the hello is the agent's to make."""
        async with self.transport.connect(f"{API_ROOT}/agent", {}) as wire:
            yield AgentLink(wire)

    async def _call(
        self, route: str, kind: type[T], *, body: object = None, query: Mapping[str, str] | None = None, **path: str
    ) -> T:  # fmt: skip
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
            raise error_from(status, answer)
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


def _pauses() -> Iterator[float]:
    """Doubling, each spread over half its length, so that a thousand clients do not come back at once."""
    pause = FIRST_PAUSE_S
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(pause * 2, LONGEST_PAUSE_S)
