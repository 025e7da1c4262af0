"""REST and stream under `<base_url>gpushare/api/`: decode, ask `sharing`, encode.

Jupyter's own authentication, authorizer and XSRF rules hold for all of it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, cast

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.utils import url_path_join
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from jupyter_gpushare.core.estimates.time_series import minutes_in
from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput, NotFound
from jupyter_gpushare.messages import (
    ErrorBody,
    ErrorDetail,
    KernelHistory,
    KernelRequest,
    StreamState,
    Table,
    decode,
    encode,
    table_as_csv,
)

from ..services.broadcast import PageListener
from ..services.service import GpuShareService

__all__ = ["AUTH_RESOURCE", "SETTING", "handlers"]

AUTH_RESOURCE: Final = "gpushare"
SETTING: Final = "gpushare"
"""Where the server's settings keep the `GpuShareService`."""
ACTIONS: Final = ("suspend", "resume", "pin", "unpin")
TABLES: Final = ("queues", "nodes", "pools", "projects", "workloads", "evictions")

Verb = Callable[..., Awaitable[None]]


def answering(verb: Verb) -> Verb:
    """Errors of ours become their status and an error body."""

    @functools.wraps(verb)
    async def answer(self: GpuShareAPIHandler, *args: str, **kwargs: str) -> None:
        try:
            await verb(self, *args, **kwargs)
        except GpuShareError as error:
            self.refuse(error.status_hint, error.code, error.message, error.field)

    return answer


class GpuShareAPIHandler(APIHandler):
    """Base of every handler here."""

    auth_resource = AUTH_RESOURCE

    @property
    def sharing(self) -> GpuShareService:
        return cast(GpuShareService, self.settings[SETTING])

    def give(self, body: Any) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(encode(body))

    def refuse(self, status: int, code: str, message: str, field: str | None = None) -> None:
        self.set_status(status)
        self.give(
            ErrorBody(
                error=ErrorDetail(code=code, message=message, **({"field": field} if field else {}))
            )
        )

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Jupyter's and tornado's own errors, in the shape of ours."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        words = (error.log_message or error.reason) if isinstance(error, web.HTTPError) else None
        self.set_status(status_code)
        self.refuse(status_code, f"http-{status_code}", words or HTTPStatus(status_code).phrase)


class StatusHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @answering
    async def get(self) -> None:
        self.give(self.sharing.status())


class KernelHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @answering
    async def get(self, kernel_id: str) -> None:
        self.give(self.sharing.kernel(kernel_id))

    @web.authenticated
    @authorized
    @answering
    async def post(self, kernel_id: str) -> None:
        self.sharing.kernel(kernel_id)
        kernel, _ = await self.sharing.request(
            kernel_id, decode(KernelRequest, self.request.body or b"{}")
        )
        self.give(kernel)

    @web.authenticated
    @authorized
    @answering
    async def delete(self, kernel_id: str) -> None:
        self.give(await self.sharing.release(kernel_id))


class ActionHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @answering
    async def post(self, kernel_id: str, action: str) -> None:
        if action not in ACTIONS:
            raise NotFound(
                f"there is no action {action!r}; there are {', '.join(ACTIONS)}", field="action"
            )
        self.give(await self.sharing.act(kernel_id, action))  # type: ignore[arg-type]  # checked one line above


class TableHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @answering
    async def get(self, table: str) -> None:
        await self.give_table(lambda: self.sharing.rows(table))

    async def give_table(self, rows_of: Callable[[], Awaitable[Table]]) -> None:
        """As JSON or as CSV, as the query says; a query that cannot be answered is refused before
        anybody is asked.
        """
        shape = self.get_query_argument("format", "json")
        if shape not in ("json", "csv"):
            raise InvalidInput(f"format must be json or csv, got {shape!r}", field="format")
        columns = [
            name.strip()
            for name in self.get_query_argument("columns", "").split(",")
            if name.strip()
        ]
        rows = await rows_of()
        if shape == "json" and not columns:
            return self.give(rows)
        text = table_as_csv(
            rows, columns or None
        )  # also for JSON: a column that is not there is a mistake either way
        if shape == "json":
            return self.give(rows)
        await self.finish(
            text, set_content_type="text/csv; charset=utf-8"
        )  # Jupyter's own way: it overwrites a header
        return None


class QueueHistoryHandler(TableHandler):
    @web.authenticated
    @authorized
    @answering
    async def get(self) -> None:
        minutes = minutes_in(self.get_query_argument("minutes", ""))
        await self.give_table(
            lambda: self.sharing.queue_history(self.get_query_argument("pool", None), minutes)
        )


class KernelHistoryHandler(TableHandler):
    @web.authenticated
    @authorized
    @answering
    async def get(self, kernel_id: str) -> None:
        minutes = minutes_in(self.get_query_argument("minutes", ""))

        async def history() -> KernelHistory:
            return self.sharing.kernel_history(kernel_id, minutes)

        await self.give_table(history)


class WhatIfHandler(GpuShareAPIHandler):
    @web.authenticated
    @authorized
    @answering
    async def post(self) -> None:
        of = self.get_query_argument("kernel_id", "")
        if of:
            self.sharing.kernel(of)  # an unknown one is said to be
        self.give(await self.sharing.what_if(decode(KernelRequest, self.request.body or b"{}"), of))


class NotFoundHandler(GpuShareAPIHandler):
    """Any other path: the same shape of error as everywhere here."""

    @web.authenticated
    @authorized
    @answering
    async def get(self) -> None:
        raise NotFound(f"there is nothing at {self.request.path}")

    post = put = patch = delete = get


class PageStreamHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """First the whole state (or what was missed since `?since=`), then every change."""

    auth_resource = AUTH_RESOURCE
    _listener: PageListener | None = None
    _sending: asyncio.Task[None] | None = None

    async def _check_may_listen(self) -> None:
        user = self.current_user
        if user is None:
            raise web.HTTPError(403)
        if not await ensure_async(
            self.authorizer.is_authorized(self, user, "execute", AUTH_RESOURCE)
        ):
            raise web.HTTPError(403)

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        await self._check_may_listen()
        await super().get(*args, **kwargs)

    async def open(self, *_: str) -> None:
        """The handshake is done."""
        super().open()
        self.set_nodelay(
            True
        )  # or a small frame waits up to 40 ms for the page to have answered the one before
        sharing = cast(GpuShareService, self.settings[SETTING])
        self._listener = listener = sharing.broadcast.listen()
        since = self.get_query_argument("since", "")
        missed = sharing.broadcast.missed(int(since)) if since.isdecimal() else None
        if missed is None:
            status = (
                sharing.status()
            )  # first: looking may itself publish, and that is in the state then
            missed = [encode(StreamState(revision=sharing.broadcast.revision, status=status))]
            listener.forget()
        self._sending = asyncio.get_running_loop().create_task(self._send(listener, missed))

    async def _send(self, listener: PageListener, missed: list[bytes]) -> None:
        try:
            for frame in missed:
                await self.write_message(frame.decode())
            while (change := await listener.frames.get()) is not None:
                await self.write_message(change.decode())
            self.close(1013, "too slow: resume with since")
        except WebSocketClosedError:
            pass

    def on_message(self, message: str | bytes) -> None:
        """Pages have nothing to say here."""

    def on_close(self) -> None:
        """The page went away."""
        if self._listener is not None:
            cast(GpuShareService, self.settings[SETTING]).broadcast.leave(self._listener)
        if self._sending is not None:
            self._sending.cancel()


def handlers(base_url: str) -> list[tuple[str, type[JupyterHandler]]]:
    """The URL table; a test compares it with `routes.JUPYTER_ROUTES`."""
    kernel = r"kernels/(?P<kernel_id>[^/]+)"
    table = [
        (r"status", StatusHandler),
        (kernel, KernelHandler),
        (kernel + r"/actions/(?P<action>[^/]+)", ActionHandler),
        (rf"(?P<table>{'|'.join(TABLES)})", TableHandler),
        (r"history/queues", QueueHistoryHandler),
        (kernel + r"/history", KernelHistoryHandler),
        (r"what-if", WhatIfHandler),
        (r"stream", PageStreamHandler),
        (r".*", NotFoundHandler),
    ]
    return [(url_path_join(base_url, "gpushare/api/") + path, handler) for path, handler in table]
