"""HTTP and WebSocket handlers around the router: authentication and limits, nothing else. Tokens
are only in headers, so they appear in no log.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any, Final

from tornado.web import Application, RequestHandler, stream_request_body

from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput, Unavailable
from jupyter_gpushare.routes import ROUTES

from ..api.router import BodyTooLarge, MethodNotAllowed, RouterResponse, error_answer
from ..auth.authentication import Authenticator
from ..auth.identity import Identity
from ..auth.rate_limits import CallTurns, ConnectionCounts, TokenBuckets
from ..server import SchedulerServer
from .calls import PROBES, authenticated, query_of, write_response
from .websockets import AgentSocketHandler, SchedulerStreamHandler

__all__ = ["application"]

log = logging.getLogger("gpushare.scheduler")

PING_S: Final = 20.0
BYTES_PER_CALL: Final = 512
"""A longer body counts as so many more calls: its cost grows with its length (a workload of 1000
pods has 10 kB at least).
"""
S_PER_CALL: Final = 0.001
"""Processor time that counts as one more call, beyond `S_FREE`: with 500 calls per second, calls
that take long get half of the event loop at most, after a burst.
"""
S_FREE: Final = 0.003
"""Ordinary calls take less; they count as one."""


def application(
    server: SchedulerServer, *, agents_show_certificates: bool = False, prefix: str = ""
) -> Application:
    """All routes of the service, and again under `prefix` (for a proxy that keeps its path).

    `agents_show_certificates`: an agent needs a client certificate, besides its token, and speaks
    for the node in it.
    """
    prefix = prefix.rstrip("/")
    start = f"(?:{re.escape(prefix)})?"
    paths = {route.name: start + re.escape(route.path) for route in ROUTES if route.verb == "WS"}
    handler_args = {
        "server": server,
        "buckets": TokenBuckets(server.limits.calls_per_s, server.limits.calls_at_once),
        "prefix": prefix,
    }
    linked = {**handler_args, "links": ConnectionCounts(server.limits.links)}
    return Application(
        [
            (paths["stream"], SchedulerStreamHandler, linked),
            (paths["agent"], AgentSocketHandler, {**linked, "certified": agents_show_certificates}),
            (r".*", SchedulerAPIHandler, {**handler_args, "turns": CallTurns()}),
        ],
        log_function=_log_call,
        websocket_ping_interval=PING_S,
        websocket_max_message_size=server.limits.frame_bytes,
    )


def _log_call(handler: RequestHandler) -> None:
    """Calls are many; only those that failed on our side are worth a warning."""
    request, status = handler.request, handler.get_status()
    level = logging.WARNING if status >= 500 else logging.DEBUG
    log.log(
        level,
        "%s %s from %s: %d in %.0f ms",
        request.method,
        request.path,
        request.remote_ip,
        status,
        1000 * request.request_time(),
    )


@stream_request_body
class SchedulerAPIHandler(RequestHandler):
    """All REST calls. The body is read in chunks, so that one of an unauthenticated caller, or an
    endless one, is refused before it is in memory.
    """

    def initialize(
        self, server: SchedulerServer, buckets: TokenBuckets, turns: CallTurns, prefix: str
    ) -> None:
        self._server, self._buckets, self._turns = server, buckets, turns
        self._path = self.request.path.removeprefix(prefix)
        self._caller: Identity | None = None
        self._body = bytearray()

    async def prepare(self) -> None:
        try:
            self._caller = await authenticated(
                self._server, self._buckets, self.request, self._path
            )
            if (
                int(self.request.headers.get("Content-Length") or 0)
                > self._server.limits.body_bytes
            ):
                raise BodyTooLarge(self._server.limits.body_bytes)
        except GpuShareError as error:
            self._refuse(error)

    def data_received(self, chunk: bytes) -> None:
        if self._caller is None:
            return  # the response is 401 in any case
        if len(self._body) + len(chunk) > self._server.limits.body_bytes:
            self._refuse(BodyTooLarge(self._server.limits.body_bytes))
        elif not self._finished:
            self._body += chunk

    def _refuse(self, error: GpuShareError) -> None:
        if not self._finished:
            self.set_header("Connection", "close")
            write_response(self, error_answer(error))
            self.finish()

    async def _serve(self) -> None:
        if self._finished:
            return
        verb = "GET" if self.request.method == "HEAD" else self.request.method or "GET"
        try:
            query = query_of(self)
        except Exception:  # raised by tornado for invalid UTF-8
            write_response(self, error_answer(InvalidInput("the query is not valid UTF-8")))
            return
        key = Authenticator.key(self._caller, self.request)
        self._buckets.charge(key, len(self._body) // BYTES_PER_CALL)
        await self._turns.take(key)
        begun = time.thread_time()
        answer = self._server.router.handle(
            self._caller, verb, self._path, query, bytes(self._body)
        )
        took = time.thread_time() - begun
        self._buckets.charge(key, int(max(0.0, took - S_FREE) / S_PER_CALL))
        if (
            self._path not in PROBES
        ):  # they report that the service is alive, whatever the state of the disk
            answer = await self._when_on_disk(answer)
        write_response(self, answer)

    async def _when_on_disk(self, answer: RouterResponse) -> RouterResponse:
        """Waits until everything that the response contains is on disk."""
        disk = self._server.store.disk
        try:
            await disk.reached(disk.written)
        except Unavailable as error:
            return error_answer(error)
        return answer

    SUPPORTED_METHODS = (*RequestHandler.SUPPORTED_METHODS, "TRACE")
    get = post = delete = put = patch = options = head = trace = _serve

    def write_error(self, status_code: int, **_: Any) -> None:
        """Errors that tornado itself responds with, in our format: unknown verbs, for example."""
        error = GpuShareError("the request cannot be handled")
        error.status_hint = status_code
        write_response(
            self,
            error_answer(
                error,
                {"Allow": "GET, POST, PATCH, DELETE"}
                if status_code == MethodNotAllowed.status_hint
                else None,
            ),
        )
