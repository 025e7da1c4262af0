"""A standby scheduler: listens on its address, reports itself and the leader, and tries to lead
twice a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from jupyter_gpushare.aio import Backoff
from jupyter_gpushare.core.model.errors import GpuShareError, Unavailable

from ..api.router import error_answer
from ..auth.identity import NotAuthenticated
from ..store.leadership import Leadership, LeadershipLost
from .listeners import ListenAddress, certificate_of, unix_socket

__all__ = ["StandbyServer", "keep_leading"]

log = logging.getLogger("gpushare.scheduler")
TRY_S: Final = 0.5
FIRST_TRY_S: Final = 0.02
"""The first pause, which doubles: the lock of a scheduler that has just been killed is soon
released.
"""
SOON: Final = 5
"""Failed tries before the standby announces itself."""
LONGEST_BODY: Final = 1 << 16
"""Bodies of calls are not read."""


class NotLeading(Unavailable):
    """Raised while another scheduler leads: nothing is read or written here."""

    code = "standby"


class StandbyServer:
    """Serves this address from its construction until `stop`. `address` then contains the actual
    port.
    """

    def __init__(self, leadership: Leadership, address: ListenAddress, public_url: str) -> None:
        """Raises Unavailable: the port is in use, a file is unreadable."""
        self._leadership = leadership
        self._socket, self._trouble = address.socket, ""
        sockets: list[socket.socket] = []
        try:
            secure = certificate_of(address) if address.port is not None else None
            if address.port is not None:
                sockets = bind_sockets(address.port, address.host or None)
                address = replace(address, port=sockets[0].getsockname()[1])
            local = (
                [unix_socket(address.socket, address.socket_mode)]
                if address.socket is not None
                else []
            )
        except OSError as error:
            for one in sockets:
                one.close()
            raise Unavailable(
                f"cannot listen: {error.strerror or error}", field=f"{address.host}:{address.port}"
            ) from error
        handler_args = Application(
            [(r".*", _StandbyHandler, {"leadership": leadership})], log_function=lambda _: None
        )
        self._servers = [
            HTTPServer(handler_args, ssl_options=secure, max_body_size=LONGEST_BODY),
            HTTPServer(handler_args),
        ]
        self._servers[0].add_sockets(sockets)
        self._servers[1].add_sockets(local)
        self.address = address
        host = f"[{address.host}]" if ":" in address.host else address.host or "localhost"
        tcp = (
            f"{'https' if secure else 'http'}://{host}:{address.port}"
            if address.port is not None
            else ""
        )
        self.url = public_url or tcp or f"unix://{address.socket}"

    async def turn(self, say: Callable[[str], None]) -> None:
        """Returns when this process leads. `say` is called if that takes a while."""
        backoff = Backoff(FIRST_TRY_S, TRY_S)
        for count in itertools.count():
            if await self._leads():
                return
            if count == SOON:
                say(f"standing by at {self.url}: {self._leadership.leader} leads")
            await backoff.sleep()

    async def _leads(self) -> bool:
        try:
            return await asyncio.to_thread(self._leadership.try_to_lead, self.url)
        except GpuShareError as error:
            if error.message != self._trouble:  # not twice a second
                log.warning("cannot try to lead: %s", error.message)
            self._trouble = error.message
            return False

    async def stop(self) -> None:
        """Frees the address."""
        for server in self._servers:
            server.stop()
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)
        for server in self._servers:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.close_all_connections(), 1)


class _StandbyHandler(RequestHandler):
    """All calls."""

    def initialize(self, leadership: Leadership) -> None:
        self._leadership = leadership

    def _serve(self) -> None:
        if self.request.path == "/healthz":
            self.set_header("Content-Type", "text/plain; charset=utf-8")
            self.write(b"ok\n")
            return
        unauthenticated = (
            self.request.path != "/readyz" and "Authorization" not in self.request.headers
        )
        error: GpuShareError = NotLeading(
            f"this scheduler is a standby; {self._leadership.leader} leads"
        )
        answer = error_answer(
            NotAuthenticated("a valid token is needed: `Authorization: Bearer <token>`")
            if unauthenticated
            else error
        )
        self.set_status(answer.status)
        self.set_header("Content-Type", answer.content_type)
        self.set_header("Cache-Control", "no-store")
        for name, value in answer.headers.items():
            self.set_header(name, value)
        if self.request.method != "HEAD":
            self.write(answer.body)

    get = post = delete = put = patch = options = head = _serve


async def keep_leading(leadership: Leadership) -> str:
    """Renews the leadership until another scheduler leads, or may lead because renewing failed for
    too long; returns the reason.

    A leader without its database would go on answering from memory, and keep clients and agents
    from the next leader.
    """
    alive = time.monotonic()
    while True:
        await asyncio.sleep(leadership.silent_s / 5)
        try:
            await asyncio.to_thread(leadership.renew)
            alive = time.monotonic()
        except LeadershipLost as error:
            return error.message
        except GpuShareError as error:
            log.warning("the leadership could not be renewed: %s", error.message)
            if time.monotonic() - alive >= leadership.silent_s:
                return (
                    f"the leadership could not be renewed for {leadership.silent_s:g} s: "
                    "another scheduler may lead now"
                )
