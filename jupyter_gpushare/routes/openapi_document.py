"""The OpenAPI 3.1 document of the scheduler."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from jupyter_gpushare import messages as m

from .route import Route
from .scheduler import ROUTES

__all__ = ["openapi"]

_QUERY_TEXTS: Final = {
    "format": "`json` (default) or `csv`",
    "columns": "for CSV: column names in the wanted order, separated by commas",
    "project": "only this project",
    "kernel_id": "only this kernel; of a what-if: the kernel whose share would be replaced",
    "pool": "only this node pool",
    "key": "the secret of an address that `POST booking-feed` has made",
    "node": "only these nodes: names, separated by commas",
    "minutes": "the period in whole minutes, 1 to 1440; default 60",
    "ended": "`true`: ended batch workloads, newest first, instead of current workloads",
    "pod": "only this pod",
    "cursor": "the cursor of an earlier answer: only later output",
    "since": (
        "start of the period: a time, or an age such as `7d` (default); of a stream: the last"
        " revision that was received"
    ),
    "until": "end of the period: a time, or an age; default now",
    "by": "`project` (default), `person` or `notebook`",
    "action": "only this action",
    "from": "start of the period: an ISO 8601 time; default now",
    "to": "end of the period: an ISO 8601 time; default a week after its start",
    "instead_of": "a workload of the caller that this one would replace",
}

_QUERY_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "format": {"type": "string", "enum": ["json", "csv"]},
    "minutes": {"type": "integer", "minimum": 1, "maximum": 1440},
}


def openapi(version: str) -> dict[str, Any]:
    """The document of the scheduler's API. WebSockets are under `x-websockets`, since OpenAPI does
    not describe them.
    """
    types = _types()
    refs, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    schemas = dict(zip(map(id, types), refs, strict=True))
    paths: dict[str, Any] = {}
    for route in ROUTES:
        if route.verb != "WS":
            paths.setdefault(route.path, {})[route.verb.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "jupyter-gpushare scheduler",
            "version": version,
            "license": {"name": "BSD-3-Clause", "identifier": "BSD-3-Clause"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "x-websockets": [_websocket(route, schemas) for route in ROUTES if route.verb == "WS"],
    }


def _types() -> list[Any]:
    """The types of all bodies and answers."""
    types: list[Any] = [m.ErrorBody]
    for route in ROUTES:
        types += [kind for kind in (route.answer, route.body) if kind is not None]
    return types


def _websocket(route: Route, schemas: dict[int, Any]) -> dict[str, Any]:
    return {
        "path": route.path,
        "scope": route.scope,
        "summary": route.summary,
        "receives": schemas[id(route.answer)],
        "sends": schemas.get(id(route.body)),
    }


def _operation(route: Route, schemas: dict[int, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "x-scope": route.scope,
    }
    if parameters := _path_parameters(route) + _query_parameters(route):
        operation["parameters"] = parameters
    if route.body is not None:
        content = {"application/json": {"schema": schemas[id(route.body)]}}
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = _responses(route, schemas)
    operation["security"] = [] if route.scope in ("open", "secret") else [{"token": []}]
    return operation


def _responses(route: Route, schemas: dict[int, Any]) -> dict[str, Any]:
    if route.answer is None:
        content = _free_form(route)
    else:
        content = {"application/json": {"schema": schemas[id(route.answer)]}}
    if "format" in route.query:
        content["text/csv"] = {"schema": {"type": "string"}}
    responses: dict[str, Any] = {"200": {"description": route.summary, "content": content}}
    error = {"application/json": {"schema": schemas[id(m.ErrorBody)]}}
    for status, description in _errors(route).items():
        responses[str(status)] = {"description": description, "content": error}
    return responses


def _free_form(route: Route) -> dict[str, Any]:
    """Answers without a body type: documents are JSON objects, probes and metrics are text."""
    if route.name in ("openapi", "snapshot"):
        return {"application/json": {"schema": {"type": "object"}}}
    if route.name == "booking_feed":
        return {"text/calendar": {"schema": {"type": "string"}}}
    return {"text/plain": {"schema": {"type": "string"}}}


def _errors(route: Route) -> dict[int, str]:
    """The error statuses of a route, with their meaning."""
    errors: dict[int, str] = {}
    if route.body is not None or route.query:
        errors[400] = "The request cannot be read; `field` names the part."
    if route.scope != "open":
        errors[401] = "No valid token."
        errors[403] = "The token does not permit this."
    if "{" in route.path or "instead_of" in route.query:
        errors[404] = "Not found, or not visible to the caller."
    if route.verb == "POST":
        errors[409] = "The id belongs to another object."
        errors[413] = "The body is too large."
    if route.scope != "open":
        errors[429] = "Too many calls; `Retry-After` gives the seconds to wait."
    if route.name not in ("healthz", "openapi", "metrics"):
        errors[503] = "The database does not respond, or the service is not ready."
    return errors


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": _QUERY_TEXTS[name],
            "schema": _QUERY_SCHEMAS.get(name, {"type": "string"}),
        }
        for name in route.query
    ]
