"""The API and stream of the gateway's server, where the kernels of this server run."""

from __future__ import annotations

import json
from logging import Logger
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode

from jupyter_server.utils import url_path_join
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse
from tornado.websocket import WebSocketClientConnection, websocket_connect

from jupyter_gpushare.core.model.errors import NotFound, Unavailable

__all__ = ["API", "GatewayRelay"]

API: Final = "gpushare/api"
READS: Final = ("GET", "HEAD")
LOGIN: Final = ("token", "_xsrf")
"""Parameters that log a page in at this server, and are nobody else's business."""
OUR_TYPES: Final = ("application/json", "text/csv")
PING_S: Final = 30


class GatewayRelay:
    """Sends requests with the address, token and certificates of the server's `GatewayClient`."""

    def __init__(self, gateway: Any, log: Logger) -> None:
        """`gateway`: jupyter_server's `GatewayClient`."""
        self._gateway, self._log = gateway, log
        self.is_missing = False
        """The gateway's server answered last that it does not have our extension, or does not
        accept our token.
        """

    async def fetch(self, method: str, path: str, query: str, body: bytes) -> HTTPResponse | None:
        """The answer of the gateway's server, errors of our extension included; None: it does not
        have it, or, for a read, is not reachable.

        Raises:
            Unavailable: it is not reachable; the request may have been carried out.
        """
        arguments = self._gateway.load_connection_args(
            method=method,
            headers={"Content-Type": "application/json"},
            body=None if method in READS else body,
        )
        url = self._url(self._gateway.url, path, query)
        # a redirect could take the token elsewhere
        request = HTTPRequest(
            url, allow_nonstandard_methods=True, follow_redirects=False, **arguments
        )
        try:
            response = await AsyncHTTPClient().fetch(request, raise_error=False)
            problem = str(response.error) if response.code == 599 else ""
        except OSError as error:
            problem = str(error)
        if not problem:
            self._set_missing(not _is_ours(response))
            return None if self.is_missing else response
        if method in READS:
            self._log.debug("gpushare: gateway %s: %s", self._gateway.url, problem)
            return None
        raise Unavailable(f"the gateway {self._gateway.url} cannot be reached: {problem}")

    async def stream(self, query: str) -> WebSocketClientConnection | None:
        """The page stream of the gateway's server; None: there is none."""
        arguments = self._gateway.load_connection_args()
        url = self._url(self._gateway.ws_url, "stream", query)
        request = HTTPRequest(url, follow_redirects=False, **arguments)
        try:
            connection = await websocket_connect(request, ping_interval=PING_S)
        except HTTPClientError as error:
            self._set_missing(300 <= error.code < 500)
        except OSError as error:
            self._log.debug("gpushare: gateway %s: %s", self._gateway.ws_url, error)
        else:
            self._set_missing(False)
            return connection
        return None

    def _url(self, base: str, path: str, query: str) -> str:
        # the token must not reach other parts of the gateway, whatever proxies make of the path
        if ".." in unquote(unquote(path)).replace("\\", "/").split("/"):
            raise NotFound(f"{path} does not exist")
        ours = [(name, value) for name, value in parse_qsl(query) if name not in LOGIN]
        return url_path_join(base, API, path) + (f"?{urlencode(ours)}" if ours else "")

    def _set_missing(self, is_missing: bool) -> None:
        if is_missing and not self.is_missing:
            self._log.warning("gpushare: no jupyter-gpushare on the gateway %s", self._gateway.url)
        self.is_missing = is_missing


def _is_ours(response: HTTPResponse) -> bool:
    """Whether our extension has answered; an error that a login would end is not for our pages."""
    if response.code < 300:
        return response.headers.get("Content-Type", "").startswith(OUR_TYPES)
    try:
        error = json.loads(response.body)["error"]
        return bool(error["code"] != "logged-out")
    except (ValueError, TypeError, KeyError):
        return False
