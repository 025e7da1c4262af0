"""WebSocket handlers: the stream of changes, and agents' connections."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Hashable
from contextlib import aclosing, suppress
from typing import Any, Final

from tornado.websocket import WebSocketClosedError, WebSocketHandler

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput, NotAllowed, Unavailable
from jupyter_gpushare.routes import ROUTES

from ..api.agent_sessions import AgentSession
from ..api.event_stream import revision_in
from ..api.router import error_answer
from ..auth.authentication import Authenticator, certificate_names, is_local
from ..auth.rate_limits import ConnectionCounts, TokenBucket, TokenBuckets
from ..server import SchedulerServer
from .calls import authenticated, query_of, write_response

__all__ = ["AgentSocketHandler", "SchedulerStreamHandler"]

log = logging.getLogger("gpushare.scheduler")

SLOW_WRITE_S: Final = 30.0
"""A listener that takes no frame for this long is disconnected."""
LONGEST_REASON: Final = 120
"""Bytes of a close reason: a control frame of a WebSocket has at most 125."""
TRY_AGAIN: Final = 1013
"""Close code: the peer may reconnect."""
TOO_MUCH: Final = 1008
"""Close code: the peer broke a rule."""
RECHECK_S = 30.0
"""How long a connection outlives its token, at most."""

_ROUTES: Final = {route.name: route for route in ROUTES}


class _WebSocketBase(WebSocketHandler):
    """Common parts of both WebSockets: permissions, and how a task writes to them."""

    route: str

    def initialize(
        self,
        server: SchedulerServer,
        buckets: TokenBuckets,
        prefix: str,
        links: ConnectionCounts,
        certified: bool = False,
    ) -> None:
        del prefix  # used by the router only
        self._server, self._buckets, self._links, self._certified = (
            server,
            buckets,
            links,
            certified,
        )
        self._counted: Hashable | None = None
        self._tasks = BackgroundTasks(log)
        self._frames = TokenBucket(
            server.limits.frames_per_s, server.limits.frames_at_once, time.monotonic()
        )

    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Refuses callers before the upgrade, with an error body like every other."""
        try:
            caller = await authenticated(
                self._server, self._buckets, self.request, _ROUTES[self.route].path
            )
            self.caller = self._server.router.permitted(_ROUTES[self.route], caller)
            self.check()
            if self.request.headers.get("Upgrade", "").lower() != "websocket":
                raise InvalidInput("this is a WebSocket: send `Upgrade: websocket`")
            if "Origin" in self.request.headers:
                raise NotAllowed("web pages may not open WebSockets here: send no `Origin`")
            self.since = revision_in(query_of(self).get("since"))
            self._links.take(key := Authenticator.key(caller, self.request))
            self._counted = key
        except GpuShareError as error:
            write_response(self, error_answer(error))
            await self.finish()
            return
        try:
            await super().get(*args, **kwargs)
        finally:
            if self.ws_connection is None:
                self._forget_link()

    def check(self) -> None:
        """Additional checks of a route. Raises GpuShareError."""

    def has_too_many_frames(self) -> bool:
        """Counts a frame; True: there were too many, and the connection is being closed."""
        if self._frames.take(time.monotonic()) == 0:
            return False
        self.close(TOO_MUCH, "too many frames")
        return True

    def check_origin(self, origin: str) -> bool:
        """Only programs have tokens; web pages are refused."""
        del origin
        return False

    def open(self, *_: str, **__: str) -> None:
        self.set_nodelay(True)  # a small frame would wait up to 40 ms for an acknowledgement
        self._tasks.spawn(self._run())
        if "Authorization" in self.request.headers:  # the identity on a unix socket does not change
            self._tasks.spawn(self._watch_token())

    async def _watch_token(self) -> None:
        """Closes the connection soon after its token is revoked, expires, or gets other
        permissions.
        """
        while True:
            await asyncio.sleep(RECHECK_S)
            try:
                caller = await self._server.authenticator.identify(self.request)
                if caller is not None and caller == self.caller:
                    continue
            except Unavailable:
                continue  # unavailable is not refused
            except GpuShareError as error:
                log.info("connection closed: %s", error.message)
            self.close(TOO_MUCH, "the token is no longer valid")
            return

    async def _run(self) -> None:
        raise NotImplementedError

    async def _write_all(self, frames: AsyncGenerator[bytes, None]) -> None:
        """Writes frames until they end, the peer does not take them, or a commit could not be
        written to disk.
        """
        with suppress(Unavailable):
            async with aclosing(frames):
                async for frame in frames:
                    if not await self._write_frame(frame):
                        break

    async def _write_frame(self, frame: bytes) -> bool:
        """False: the peer has gone or does not read. Waits only if the peer has not taken earlier
        frames: one loop iteration per frame would let a busy service fall behind its listeners.
        """
        try:
            written = self.write_message(frame)
            stream = None if self.ws_connection is None else self.ws_connection.stream
            if stream is not None and not stream.writing():
                written.add_done_callback(_consume_exception)
                return True
            await asyncio.wait_for(written, SLOW_WRITE_S)
        except (WebSocketClosedError, TimeoutError):
            return False
        return True

    def _forget_link(self) -> None:
        counted, self._counted = self._counted, None
        if counted is not None:
            self._links.release(counted)

    def on_close(self) -> None:
        self._forget_link()
        self._tasks.cancel()


def _consume_exception(written: asyncio.Future[None]) -> None:
    """Retrieves the exception of a frame that nothing awaits; the connection ends anyway."""
    if not written.cancelled():
        written.exception()


class SchedulerStreamHandler(_WebSocketBase):
    """The stream of committed changes."""

    route = "stream"

    def on_message(self, message: str | bytes) -> None:
        """Incoming messages are ignored."""
        del message
        self.has_too_many_frames()

    async def _run(self) -> None:
        await self._write_all(self._server.events.subscribe(self.caller, self.since))
        self.close(TRY_AGAIN, "reconnect and resume")


class AgentSocketHandler(_WebSocketBase):
    """One agent's connection."""

    route = "agent"
    session: AgentSession | None = None
    """None: not open yet."""
    names: frozenset[str] | None = None

    def check(self) -> None:
        """On a network an agent needs a certificate if so configured; on a unix socket the
        operating system identifies it.
        """
        if self._certified and not is_local(self.request):
            self.names = certificate_names(self.request)
            if self.names is None:
                raise NotAllowed(
                    "a client certificate that names the node is required (--tls-cert, --tls-key)"
                )

    def open(self, *_: str, **__: str) -> None:
        self.session = self._server.agents.open(self.caller, self.names)
        super().open()

    def on_message(self, message: str | bytes) -> None:
        assert self.session is not None
        if self.has_too_many_frames():
            self.session.end("too many frames")
        else:
            self.session.hear(message)

    async def _run(self) -> None:
        assert self.session is not None
        await self._write_all(self.session.orders())
        self.session.end("the agent does not read its messages")
        self.close(
            TRY_AGAIN, (self.session.over or "").encode()[:LONGEST_REASON].decode(errors="ignore")
        )

    def on_close(self) -> None:
        if self.session is not None:
            self.session.end("the connection was closed")
        super().on_close()
