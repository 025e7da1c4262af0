"""Common parts of HTTP and WebSocket handlers: authentication, queries and responses."""

from __future__ import annotations

from typing import Final

from tornado.httputil import HTTPServerRequest
from tornado.web import RequestHandler

from ..api.router import RouterResponse
from ..auth.authentication import Authenticator
from ..auth.identity import Identity
from ..auth.rate_limits import TokenBuckets
from ..server import SchedulerServer

__all__ = ["PROBES", "authenticated", "query_of", "write_response"]

PROBES: Final = frozenset({"/healthz", "/readyz"})
"""Not rate-limited: a flood of calls must not make the service look dead."""


async def authenticated(
    server: SchedulerServer, buckets: TokenBuckets, request: HTTPServerRequest, path: str
) -> Identity | None:
    """Authenticates the caller (None: unknown) and applies the rate limit. Raises TooMany,
    Unavailable.
    """
    caller = await server.authenticator.identify(request)
    if path not in PROBES:
        buckets.take(Authenticator.key(caller, request))
    return caller


def query_of(handler: RequestHandler) -> dict[str, str]:
    return {
        name: handler.get_query_argument(name, strip=False)
        for name in handler.request.query_arguments
    }


def write_response(handler: RequestHandler, answer: RouterResponse) -> None:
    handler.set_status(answer.status)
    handler.set_header("Content-Type", answer.content_type)
    handler.set_header("Cache-Control", "no-store")
    handler.set_header("X-Content-Type-Options", "nosniff")
    for name, value in answer.headers.items():
        handler.set_header(name, value)
    if handler.request.method != "HEAD":
        handler.write(answer.body)
