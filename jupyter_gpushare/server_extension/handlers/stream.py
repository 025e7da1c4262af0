"""The WebSocket `stream`: the complete state, or what was missed since `?since=`, then changes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado import web
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketHandler

from jupyter_gpushare.messages import StreamState, encode

from ..services.gateway_names import with_names
from ..services.page_stream import PageListener
from ..services.service import SETTING, GpuShareService
from .base import AUTH_RESOURCE

__all__ = ["PageStreamHandler"]

TRY_AGAIN_LATER = 1013
"""WebSocket close code, RFC 6455 registry."""
RETRY_S = 10.0
"""A page is disconnected so long after its gateway could not be reached, and tries again."""


class PageStreamHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """One open page."""

    auth_resource = AUTH_RESOURCE
    _listener: PageListener | None = None
    _sending: asyncio.Task[None] | None = None

    @property
    def service(self) -> GpuShareService:
        """The services of this server."""
        return cast(GpuShareService, self.settings[SETTING])

    async def _check_authorized(self) -> None:
        user = self.current_user
        if user is None:
            raise web.HTTPError(403)
        if not await ensure_async(
            self.authorizer.is_authorized(self, user, "execute", AUTH_RESOURCE)
        ):
            raise web.HTTPError(403)

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Authorize, then upgrade the connection."""
        await self._check_authorized()
        await super().get(*args, **kwargs)

    async def open(self, *_: str) -> None:
        """The handshake is done."""
        super().open()
        # Otherwise a small frame waits up to 40 ms for the acknowledgement of the previous one.
        self.set_nodelay(True)
        relay = self.service.relay
        if relay is None:
            self._send_own()
        elif (upstream := await relay.stream(self.request.query)) is not None:
            self._begin(self._send_relayed(upstream)).add_done_callback(lambda _: upstream.close())
        else:
            self._send_own()
            if not relay.is_missing:
                asyncio.get_running_loop().call_later(RETRY_S, self._close_for_retry)

    def _send_own(self) -> None:
        self._listener = listener = self.service.pages.listen()
        self._begin(self._send(listener, self._first_frames(listener)))

    def _begin(self, sending: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._sending = sending_task = asyncio.get_running_loop().create_task(sending)
        if self.ws_connection is None:  # the page has gone meanwhile
            self.on_close()
        return sending_task

    def _first_frames(self, listener: PageListener) -> list[bytes]:
        pages = self.service.pages
        since = self.get_query_argument("since", "")
        missed = pages.missed(int(since)) if since.isdecimal() else None
        if missed is not None:
            return missed
        # status() may publish changes, which are part of the state then.
        status = self.service.status()
        listener.clear()
        return [encode(StreamState(revision=pages.revision, status=status))]

    async def _send(self, listener: PageListener, first: list[bytes]) -> None:
        try:
            for frame in first:
                await self.write_message(frame.decode())
            while (change := await listener.frames.get()) is not None:
                await self.write_message(change.decode())
            self.close(TRY_AGAIN_LATER, "too slow: resume with since")
        except WebSocketClosedError:
            pass

    async def _send_relayed(self, upstream: WebSocketClientConnection) -> None:
        """The frames of the gateway's server, until it or the page disconnects."""
        try:
            while (frame := await upstream.read_message()) is not None:
                await self.write_message(with_names(frame, self.service.kernels.names()))
            self._close_for_retry()
        except WebSocketClosedError:
            pass

    def _close_for_retry(self) -> None:
        self.close(TRY_AGAIN_LATER, "the gateway may be back: resume with since")

    def on_message(self, message: str | bytes) -> None:
        """Messages of pages are ignored."""

    def on_close(self) -> None:
        """The page has disconnected."""
        if self._listener is not None:
            self.service.pages.leave(self._listener)
        if self._sending is not None:
            self._sending.cancel()
