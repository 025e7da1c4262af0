"""Handles one call: finds the route, checks permissions, decodes the body, calls the service,
encodes the response.

REST and the in-process transport both use it, so they cannot differ. Never blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from urllib.parse import unquote

from msgspec import Struct

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import (
    GpuShareError,
    InvalidInput,
    NotAllowed,
    NotFound,
    Unavailable,
)
from jupyter_gpushare.kernel.documentation import help_link
from jupyter_gpushare.routes import ROUTES, Route, openapi
from jupyter_gpushare.version import __version__

from ..auth.identity import Identity, NotAuthenticated, TokenService
from ..auth.permissions import opens
from ..auth.rate_limits import RateLimited
from ..service.service import SchedulerService

__all__ = [
    "LONGEST_BODY",
    "RouterResponse",
    "Router",
    "MethodNotAllowed",
    "BodyTooLarge",
    "error_answer",
]

log = logging.getLogger("gpushare.scheduler")
LONGEST_BODY: Final = 1 << 20
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
ICALENDAR: Final = "text/calendar; charset=utf-8"
CSV: Final = "text/csv; charset=utf-8"

_TABLES: Final[dict[str, type[Struct]]] = {
    "queues": m.QueueRow,
    "nodes": m.NodeRow,
    "pools": m.PoolRow,
    "projects": m.ProjectRow,
    "evictions": m.EvictionRow,
    "people": m.PersonRow,
    "bookings": m.BookingRow,
    "queue_history": m.QueueSample,
    "waiting": m.WaitingRow,
    "usage": m.UsageRow,
    "audit": m.AuditRow,
}
"""Responses that are a list of flat rows, which can also be CSV."""


class BodyTooLarge(InvalidInput):
    """Raised when a body is larger than the limit."""

    code, status_hint = "too-large", 413

    def __init__(self, longest: int) -> None:
        super().__init__(f"the body is larger than {longest} bytes")


class MethodNotAllowed(GpuShareError):
    """Raised when the path exists, but not with this verb."""

    code, status_hint = "no-such-method", 405


@dataclass(frozen=True, slots=True)
class RouterResponse:
    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@cache
def _document() -> bytes:
    """Rendered on first use: it takes a tenth of a second, which must not delay the start."""
    return m.encode(openapi(__version__))


@dataclass(frozen=True, slots=True)
class _RouterCall:
    identity: Identity
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any


def _unauthenticated() -> NotAuthenticated:
    return NotAuthenticated("a valid token is needed: `Authorization: Bearer <token>`")


def error_answer(error: GpuShareError, headers: Mapping[str, str] | None = None) -> RouterResponse:
    """The one format of errors."""
    detail = m.error_detail(error)
    known = {"Link": help_link(error.code)}
    if error.status_hint == NotAuthenticated.status_hint:
        known["WWW-Authenticate"] = "Bearer"
    if isinstance(error, RateLimited):
        known["Retry-After"] = str(error.after)
    return RouterResponse(
        error.status_hint, JSON, m.encode(m.ErrorBody(error=detail)), {**known, **(headers or {})}
    )


class Router:
    """`metrics` gives the Prometheus text; `is_ready` whether decisions are being made;
    `open_metrics`: metrics need no token.
    """

    def __init__(
        self,
        service: SchedulerService,
        tokens: TokenService,
        *,
        metrics: Callable[[], bytes] = bytes,
        is_ready: Callable[[], bool] = lambda: True,
        open_metrics: bool = True,
        longest_body: int = LONGEST_BODY,
    ) -> None:
        self.service, self.tokens, self.longest_body = service, tokens, longest_body
        self._metrics, self._is_ready, self._open_metrics = metrics, is_ready, open_metrics

    def handle(
        self,
        identity: Identity | None,
        verb: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
    ) -> RouterResponse:
        """Handles a call; `identity` None: without a valid token. Raises nothing."""
        headers: dict[str, str] = {}
        try:
            route, values = self._route(verb, path, headers, known=identity is not None)
            caller = self.permitted(route, identity)
            return self._answer(route, _RouterCall(caller, values, query, self._body(route, body)))
        except GpuShareError as error:
            return error_answer(error, headers)
        except Exception:
            log.exception("%s %s failed", verb, path)
            return error_answer(GpuShareError("internal error; see the scheduler's log"))

    def permitted(self, route: Route, identity: Identity | None) -> Identity:
        """Raises NotKnown, NotAllowed."""
        if (
            route.scope == "secret"
            or route.scope == "open"
            and (route.name != "metrics" or self._open_metrics)
        ):
            return identity or Identity.nobody()
        if identity is None:
            raise _unauthenticated()
        if not opens(route, self.service.visibility.caller(identity)):
            raise NotAllowed(f"a token of scope {identity.scope} may not do this")
        return identity

    def _route(
        self, verb: str, path: str, headers: dict[str, str], *, known: bool
    ) -> tuple[Route, dict[str, str]]:
        """Unauthenticated callers do not learn which paths and verbs exist."""
        found = list(_matches(path))
        for route, values in found:
            if route.verb == verb:
                return route, values
        if not known and not any(route.scope == "open" for route, _ in found):
            raise _unauthenticated()
        if not found:
            raise NotFound(f"unknown path {path}")
        verbs = [route.verb for route, _ in found]
        if verbs == ["WS"]:
            raise MethodNotAllowed(f"{path} is a WebSocket")
        headers["Allow"] = ", ".join(verbs)
        raise MethodNotAllowed(f"{verb} is not allowed on {path}; allowed: {', '.join(verbs)}")

    def _body(self, route: Route, body: bytes | None) -> Any:
        """Decodes the body; a body of a route without one is ignored, as in HTTP."""
        if route.body is None or route.verb == "WS":
            return None
        if body is not None and len(body) > self.longest_body:
            raise BodyTooLarge(self.longest_body)
        if not body:
            raise InvalidInput("a JSON body is required")
        return m.decode(route.body, body)

    def _answer(self, route: Route, call: _RouterCall) -> RouterResponse:
        if route.name == "metrics":
            return RouterResponse(200, "text/plain; version=0.0.4; charset=utf-8", self._metrics())
        if route.name == "openapi":
            return RouterResponse(200, JSON, _document())
        if route.name == "healthz":
            return RouterResponse(200, TEXT, b"ok\n")
        if route.name == "booking_feed":
            found = self.service.booking_feeds.read(call.query.get("key"))
            return RouterResponse(200, ICALENDAR, found)
        if route.name == "readyz":
            return self._readiness()
        result = self._result(route.name, call)
        if (kind := _TABLES.get(route.name)) is not None and _form(call) == "csv":
            rows = getattr(result, result.__struct_fields__[0])
            return RouterResponse(200, CSV, m.rows_as_csv(rows, kind, _columns(call)).encode())
        return RouterResponse(200, JSON, m.encode(result))

    def _readiness(self) -> RouterResponse:
        if not self._is_ready():
            raise Unavailable("not ready: no cycle has run yet")
        if (problem := self.service.unit_of_work.store.problem) is not None:
            raise Unavailable(f"not ready: changes cannot be stored: {problem}")
        return RouterResponse(200, TEXT, b"ok\n")

    def _result(self, name: str, call: _RouterCall) -> Any:
        service, queries, who = self.service, self.service.queries, call.identity
        match name:
            case "submit":
                return service.submit(who, call.body)
            case "what_if":
                return service.what_if(who, call.body, call.query.get("instead_of"))
            case "rename":
                return service.rename(who, call.path["id"], call.body)
            case "end":
                return service.end(who, call.path["id"])
            case "workload":
                return queries.workload(who, call.path["id"])
            case "workloads":
                return queries.workloads(
                    who,
                    call.query.get("project"),
                    call.query.get("kernel_id"),
                    call.query.get("ended") == "true",
                )
            case "people":
                return service.people.people(who)
            case "book":
                return service.bookings.book(who, call.body)
            case "bookings":
                return service.bookings.bookings(who)
            case "booking_calendar":
                return service.bookings.calendar(
                    who, call.query.get("pool"), call.query.get("from"), call.query.get("to")
                )
            case "renew_booking_feed":
                return service.booking_feeds.renew(who)
            case "revoke_booking_feed":
                return service.booking_feeds.revoke(who)
            case "cancel_booking":
                return service.bookings.cancel(who, call.path["id"])
            case "limit_person":
                return service.people.limit_person(who, call.body)
            case "next_turn":
                return service.people.next_turn(who, call.path["id"])
            case "usage":
                return queries.usage(
                    who, call.query.get("by"), call.query.get("since"), call.query.get("until")
                )
            case "audit":
                return queries.audit(
                    call.query.get("since"), call.query.get("until"), call.query.get("action")
                )
            case "logs":
                return queries.logs(
                    who, call.path["id"], call.query.get("pod"), call.query.get("cursor")
                )
            case "queue_history":
                return queries.queue_history(who, call.query.get("pool"), call.query.get("minutes"))
            case "node_history":
                return queries.node_history(
                    call.query.get("minutes"), call.query.get("since"), call.query.get("node")
                )
            case (
                "status"
                | "whoami"
                | "waiting"
                | "queues"
                | "nodes"
                | "pools"
                | "projects"
                | "evictions"
                | "snapshot"
            ):
                return getattr(queries, name)(who)
            case "check_policy":
                return service.check_policy(call.body)
            case "cordon" | "uncordon" | "drain":
                return getattr(service.cordons, name)(who.user, call.path["name"])
            case "tokens":
                return self.tokens.list()
            case "create_token":
                return self.tokens.create(call.body, who.user)
            case "revoke_token":
                return self.tokens.revoke(call.path["id"], who.user)
        raise AssertionError(f"route {name} is not handled")


def _columns(call: _RouterCall) -> list[str]:
    return [name.strip() for name in call.query.get("columns", "").split(",") if name.strip()]


def _form(call: _RouterCall) -> str:
    form = call.query.get("format", "json")
    if form not in ("json", "csv"):
        raise InvalidInput(f"format must be json or csv, got {form!r}", field="format")
    return form


def _by_length() -> dict[int, list[tuple[Route, list[str]]]]:
    """All routes by the number of parts of their path, with these parts."""
    found: dict[int, list[tuple[Route, list[str]]]] = {}
    for route in ROUTES:
        pattern = route.path.split("/")
        found.setdefault(len(pattern), []).append((route, pattern))
    return found


_ROUTES_BY_LENGTH: Final = _by_length()


def _matches(path: str) -> Iterator[tuple[Route, dict[str, str]]]:
    """Routes that match this path, with the values of their parameters."""
    parts = path.split("/")
    for route, pattern in _ROUTES_BY_LENGTH.get(len(parts), ()):
        pairs = list(zip(pattern, parts, strict=True))
        if all(p == q or (p.startswith("{") and q) for p, q in pairs):
            yield route, {p[1:-1]: unquote(q) for p, q in pairs if p.startswith("{")}
