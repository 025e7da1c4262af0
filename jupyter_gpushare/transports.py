"""Transports to one scheduler: HTTP(S) with a token, or a unix socket, which authenticates by the
peer's user.

They handle addresses, certificates, tokens and timeouts; `client` handles the bodies.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.netutil import Resolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

from jupyter_gpushare.core.model.errors import InvalidInput, Unavailable

from . import messages as m

__all__ = ["UNIX", "HttpTransport", "Transport", "Wire", "token_in"]

UNIX: Final = "unix://"
"""Prefix of the address of a unix socket: `unix:///run/gpushare/scheduler.sock`."""
CONNECT_S: Final = 5.0
CALL_S: Final = 20.0
PING_S: Final = 20.0
CLOSE_S: Final = 1.0
LONGEST_FRAME: Final = 64 << 20
"""The first state of a large cluster is one frame."""
TOO_MANY: Final = 429


class Wire(Protocol):
    """A bidirectional connection. Iteration ends when the peer closes it; `Unavailable` is raised
    if the peer gave a reason.
    """

    async def send(self, data: bytes) -> None: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Transport(Protocol):
    """Carries calls and connections of one caller to one scheduler. Raises `Unavailable`."""

    async def call(
        self, verb: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> tuple[int, str, bytes]:
        """(HTTP status, content type, body)."""

    def connect(self, path: str, query: Mapping[str, str]) -> AbstractAsyncContextManager[Wire]:
        """A WebSocket or an equivalent."""


def token_in(file: str | Path) -> Callable[[], str]:
    """Returns a function that reads a token from a file, so that a new token is used without a
    restart. It raises `Unavailable`.
    """

    def read() -> str:
        try:
            return Path(file).read_text().strip()
        except OSError as error:
            raise Unavailable(
                f"the token file cannot be read: {error.strerror or error}", field=str(file)
            ) from None

    return read


class HttpTransport:
    """HTTP(S) with a bearer token, or a unix socket, which needs none.

    `token` is the token or a function that returns it; `ca_file` has the trusted certificates,
    `cert_file` and `key_file` are the client's own.
    """

    def __init__(
        self,
        url: str,
        token: str | Callable[[], str] = "",
        *,
        ca_file: str | None = None,
        cert_file: str | None = None,
        key_file: str | None = None,
        call_s: float = CALL_S,
    ) -> None:
        if not url.startswith(("http://", "https://", f"{UNIX}/")):
            text = (
                "the scheduler's address must begin with http://, https:// or unix:///,"
                f" got {url!r}"
            )
            raise InvalidInput(text, field="scheduler")
        self.url = url.rstrip("/")
        self._token, self._call_s = token, call_s
        self._files: dict[str, Any] = {
            "ca_certs": ca_file or None,
            "client_cert": cert_file or None,
            "client_key": key_file or None,
        }
        is_local = url.startswith(UNIX)
        self._base = "http://localhost" if is_local else self.url
        self._resolver = _UnixSocketResolver(self.url.removeprefix(UNIX)) if is_local else None
        self._http: SimpleAsyncHTTPClient | None = None

    async def call(
        self, verb: str, path: str, query: Mapping[str, str], body: bytes | None
    ) -> tuple[int, str, bytes]:
        """Sends a request. Retries after 429 as `Retry-After` says, within the call timeout."""
        if self._http is None:  # created on the event loop that it belongs to
            self._http = SimpleAsyncHTTPClient(
                force_instance=True, max_clients=100, resolver=self._resolver
            )
        until = asyncio.get_running_loop().time() + self._call_s
        while True:
            request = self._request(
                self._base + _with_query(path, query),
                method=verb,
                body=body,
                request_timeout=self._call_s,
            )
            with _UnavailableErrors(self.url):
                response = await self._http.fetch(request, raise_error=False)
            pause = _retry_after(response.headers.get("Retry-After", ""))
            if response.code != TOO_MANY or asyncio.get_running_loop().time() + pause > until:
                return response.code, response.headers.get("Content-Type", ""), response.body
            await asyncio.sleep(pause)

    @asynccontextmanager
    async def connect(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Wire]:
        request = self._request(
            "ws" + self._base.removeprefix("http") + _with_query(path, query),
            request_timeout=CONNECT_S,
        )
        with _UnavailableErrors(self.url):
            link = await websocket_connect(
                request,
                ping_interval=PING_S,
                max_message_size=LONGEST_FRAME,
                resolver=self._resolver,
            )
        wire = _Socket(link, self.url)
        try:
            yield wire
        finally:
            await wire.close()

    def _request(self, url: str, **more: Any) -> HTTPRequest:
        token = self._token if isinstance(self._token, str) else self._token()
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )
        # no redirects: they would send the token elsewhere
        safety: dict[str, Any] = {
            "connect_timeout": CONNECT_S,
            "follow_redirects": False,
            "allow_nonstandard_methods": True,
        }
        return HTTPRequest(url, headers=headers, **self._files, **safety, **more)

    def close(self) -> None:
        """Closes its connections. May be called twice."""
        if self._http is not None:
            self._http.close()
            self._http = None


class _UnixSocketResolver(Resolver):
    """Resolves every name to this unix socket."""

    def initialize(self, path: str) -> None:
        self._path = path

    async def resolve(
        self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[tuple[int, Any]]:
        del host, port, family
        return [(socket.AF_UNIX, self._path)]

    def close(self) -> None:
        """Nothing to close."""


def _retry_after(seconds: str) -> float:
    return float(seconds) if seconds.isascii() and seconds.isdigit() else 1.0


class _Socket:
    def __init__(self, link: WebSocketClientConnection, url: str) -> None:
        self._socket, self._url, self._is_over = link, url, False

    async def send(self, data: bytes) -> None:
        with _UnavailableErrors(self._url):
            await self._socket.write_message(data)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (data := await self._socket.read_message()) is not None:
            yield data.encode() if isinstance(data, str) else data
        self._is_over = True
        if self._socket.close_reason:
            raise Unavailable(f"the scheduler closed the connection: {self._socket.close_reason}")

    async def close(self) -> None:
        """Closes the connection and waits briefly for the peer's close frame."""
        self._socket.close()
        with suppress(TimeoutError, WebSocketClosedError, OSError):
            async with asyncio.timeout(CLOSE_S):
                while not self._is_over and await self._socket.read_message() is not None:
                    pass


class _UnavailableErrors:
    """Converts errors of a connection to `Unavailable`, or to the error with which the scheduler
    refused a WebSocket.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, HTTPClientError) and error.response is not None and error.code != 599:
            raise m.error_from(error.code, error.response.body or b"") from None
        if isinstance(
            error, (HTTPClientError, WebSocketClosedError, OSError, ssl.SSLError, TimeoutError)
        ):
            reason = (
                error.message
                if isinstance(error, HTTPClientError)
                else getattr(error, "strerror", None) or str(error)
            )
            raise Unavailable(
                f"the scheduler at {self._url} cannot be reached: {reason or type(error).__name__}"
            ) from error


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
