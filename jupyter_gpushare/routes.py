"""One table of every address, on both sides; OpenAPI 3.1 and the front end's TypeScript are
rendered from it.

Side "scheduler" is the service under `/api/v1`, side "jupyter" the Jupyter server extension under
`<base_url>gpushare/api`. What a route does stands elsewhere: here stand its name, its verb, its
path, who may call it, and the shapes of body and answer.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import msgspec

from . import messages as m

__all__ = ["API_ROOT", "JUPYTER_ROUTES", "ROUTES", "Route", "openapi", "typescript"]

API_ROOT: Final = "/api/v1"
Scope = Literal["open", "known", "person", "agent", "admin"]
"""Who may call: "open" needs no token, "known" any valid one; "person" is a person or a server; the
others need a token of that scope (an admin may do all). What they reach with it is in
`scheduler/callers/access.py`.
"""


@dataclass(frozen=True, slots=True)
class Route:
    """One verb on one path. `path` has `{name}` for its parameters; `body` None takes none;
    `answer` None answers with text.
    """

    name: str
    verb: Literal["GET", "POST", "PATCH", "DELETE", "WS"]
    path: str
    scope: Scope
    summary: str
    answer: Any = None
    body: Any = None
    query: tuple[str, ...] = ()


_TABLE_QUERY: Final = ("format", "columns")
_HISTORY_QUERY: Final = ("pool", "minutes", *_TABLE_QUERY)

ROUTES: Final = (
    Route("healthz", "GET", "/healthz", "open", "The process answers."),
    Route(
        "readyz", "GET", "/readyz", "open", "It has read its store and decides; 503 before that."
    ),
    Route("metrics", "GET", "/metrics", "open", "Prometheus metrics."),
    Route("openapi", "GET", f"{API_ROOT}/openapi.json", "open", "This document."),
    Route(
        "status",
        "GET",
        f"{API_ROOT}/status",
        "person",
        "The service, its policy, and who is asking.",
        m.ServiceStatus,
    ),
    Route(
        "whoami",
        "GET",
        f"{API_ROOT}/whoami",
        "known",
        "Who the caller is, and what they may do.",
        m.WhoAmI,
    ),
    Route(
        "submit",
        "POST",
        f"{API_ROOT}/workloads",
        "person",
        "Ask for GPUs; idempotent by the client's id.",
        m.WorkloadView,
        m.WorkloadRequest,
    ),
    Route(
        "workloads",
        "GET",
        f"{API_ROOT}/workloads",
        "person",
        "Workloads that the caller may see.",
        m.Workloads,
        query=("project", "kernel_id", "ended"),
    ),
    Route(
        "workload",
        "GET",
        f"{API_ROOT}/workloads/{{id}}",
        "person",
        "One workload with its reason and place in the queue.",
        m.WorkloadView,
    ),
    Route(
        "logs",
        "GET",
        f"{API_ROOT}/workloads/{{id}}/logs",
        "person",
        "What the pods of batch work have printed.",
        m.Logs,
        query=("pod", "cursor"),
    ),
    Route(
        "rename",
        "PATCH",
        f"{API_ROOT}/workloads/{{id}}",
        "person",
        "What its owner calls it from now on; its share stays as it is.",
        m.WorkloadView,
        m.WorkloadName,
    ),
    Route(
        "end",
        "DELETE",
        f"{API_ROOT}/workloads/{{id}}",
        "person",
        "Give everything back; also when it has ended before.",
        m.Ended,
    ),
    Route(
        "what_if",
        "POST",
        f"{API_ROOT}/what-if",
        "person",
        "Would it start, where, whom would it displace? Changes nothing.",
        m.WhatIfAnswer,
        m.WorkloadRequest,
        query=("instead_of",),
    ),
    Route(
        "waiting",
        "GET",
        f"{API_ROOT}/waiting",
        "person",
        "Everybody's place in the queue; whose it is as far as the caller may see it.",
        m.Waiting,
        query=_TABLE_QUERY,
    ),
    Route(
        "queues",
        "GET",
        f"{API_ROOT}/queues",
        "person",
        "Departments and projects per node pool and resource.",
        m.Queues,
        query=_TABLE_QUERY,
    ),
    Route(
        "nodes",
        "GET",
        f"{API_ROOT}/nodes",
        "person",
        "Nodes and their GPUs: who is planned, who runs.",
        m.Nodes,
        query=_TABLE_QUERY,
    ),
    Route(
        "pools", "GET", f"{API_ROOT}/pools", "person", "Node pools.", m.Pools, query=_TABLE_QUERY
    ),
    Route(
        "projects",
        "GET",
        f"{API_ROOT}/projects",
        "person",
        "Projects per node pool.",
        m.Projects,
        query=_TABLE_QUERY,
    ),
    Route(
        "queue_history",
        "GET",
        f"{API_ROOT}/history/queues",
        "person",
        "What the queues held and wanted over time.",
        m.QueueHistory,
        query=_HISTORY_QUERY,
    ),
    Route(
        "evictions",
        "GET",
        f"{API_ROOT}/evictions",
        "person",
        "Whose place was taken away, by which action, for whom, and why.",
        m.Evictions,
        query=_TABLE_QUERY,
    ),
    Route(
        "usage",
        "GET",
        f"{API_ROOT}/usage",
        "person",
        "GPU-hours held, used, idle, borrowed and lent.",
        m.Usage,
        query=("by", "since", "until", *_TABLE_QUERY),
    ),
    Route(
        "audit",
        "GET",
        f"{API_ROOT}/audit",
        "admin",
        "What administrators did, and who was evicted, why and for whom.",
        m.Audit,
        query=("since", "until", "action", *_TABLE_QUERY),
    ),
    Route(
        "cordon",
        "POST",
        f"{API_ROOT}/nodes/{{name}}/cordon",
        "admin",
        "Place nothing new on this node; what runs there stays.",
        m.CordonStatus,
    ),
    Route(
        "uncordon",
        "POST",
        f"{API_ROOT}/nodes/{{name}}/uncordon",
        "admin",
        "It takes work again.",
        m.CordonStatus,
    ),
    Route(
        "drain",
        "POST",
        f"{API_ROOT}/nodes/{{name}}/drain",
        "admin",
        "Cordon it, and ask what runs there to leave, after a notice; again: how far that is.",
        m.CordonStatus,
    ),
    Route(
        "check_policy",
        "POST",
        f"{API_ROOT}/policy/check",
        "admin",
        "What a policy file would change, and for whom; changes nothing.",
        m.PolicyCheck,
        m.PolicyText,
    ),
    Route(
        "snapshot",
        "GET",
        f"{API_ROOT}/snapshot",
        "admin",
        "Everything as a scenario file for `jupyter gpushare simulate`.",
    ),
    Route(
        "tokens", "GET", f"{API_ROOT}/tokens", "admin", "Tokens, without their secrets.", m.Tokens
    ),
    Route(
        "create_token",
        "POST",
        f"{API_ROOT}/tokens",
        "admin",
        "A new token; its secret is shown once.",
        m.TokenView,
        m.TokenRequest,
    ),
    Route(
        "revoke_token",
        "DELETE",
        f"{API_ROOT}/tokens/{{id}}",
        "admin",
        "Revoke a token.",
        m.TokenView,
    ),
    Route(
        "stream",
        "WS",
        f"{API_ROOT}/stream",
        "person",
        "State, then changes; `since` resumes.",
        m.SchedulerFrame,
        query=("since",),
    ),
    Route(
        "agent", "WS", f"{API_ROOT}/agent", "agent", "A node agent's link.", m.ToAgent, m.FromAgent
    ),
)

_J: Final = "/gpushare/api"
JUPYTER_ROUTES: Final = (
    Route("status", "GET", f"{_J}/status", "person", "Mode, scheduler, and my kernels.", m.Status),
    Route("kernel", "GET", f"{_J}/kernels/{{kernel_id}}", "person", "One kernel.", m.Kernel),
    Route(
        "request",
        "POST",
        f"{_J}/kernels/{{kernel_id}}",
        "person",
        "Ask for a share, or for another one.",
        m.Kernel,
        m.KernelRequest,
    ),
    Route(
        "release", "DELETE", f"{_J}/kernels/{{kernel_id}}", "person", "Give the GPU back.", m.Kernel
    ),
    Route(
        "act",
        "POST",
        f"{_J}/kernels/{{kernel_id}}/actions/{{action}}",
        "person",
        "suspend, resume, pin or unpin.",
        m.Kernel,
    ),
    Route(
        "what_if",
        "POST",
        f"{_J}/what-if",
        "person",
        "Would it start now? Changes nothing.",
        m.WhatIfAnswer,
        m.KernelRequest,
        query=("kernel_id",),
    ),
    Route(
        "queues",
        "GET",
        f"{_J}/queues",
        "person",
        "Departments and projects per node pool and resource.",
        m.Queues,
        query=_TABLE_QUERY,
    ),
    Route(
        "nodes",
        "GET",
        f"{_J}/nodes",
        "person",
        "Nodes and their GPUs.",
        m.Nodes,
        query=_TABLE_QUERY,
    ),
    Route("pools", "GET", f"{_J}/pools", "person", "Node pools.", m.Pools, query=_TABLE_QUERY),
    Route(
        "projects",
        "GET",
        f"{_J}/projects",
        "person",
        "Projects per node pool.",
        m.Projects,
        query=_TABLE_QUERY,
    ),
    Route(
        "workloads",
        "GET",
        f"{_J}/workloads",
        "person",
        "Workloads that the caller may see, with the reasons of those that wait.",
        m.Workloads,
        query=_TABLE_QUERY,
    ),
    Route(
        "evictions",
        "GET",
        f"{_J}/evictions",
        "person",
        "Whose place was taken away, by which action, for whom, and why.",
        m.Evictions,
        query=_TABLE_QUERY,
    ),
    Route(
        "queue_history",
        "GET",
        f"{_J}/history/queues",
        "person",
        "What the queues held and wanted over time.",
        m.QueueHistory,
        query=_HISTORY_QUERY,
    ),
    Route(
        "kernel_history",
        "GET",
        f"{_J}/kernels/{{kernel_id}}/history",
        "person",
        "One kernel's share and memory over time.",
        m.KernelHistory,
        query=("minutes", *_TABLE_QUERY),
    ),
    Route(
        "stream",
        "WS",
        f"{_J}/stream",
        "person",
        "State, then changes; `since` resumes.",
        m.StreamFrame,
        query=("since",),
    ),
)

_QUERY_WORDS: Final = {
    "format": "`json` (default) or `csv`",
    "columns": "for CSV: names of columns, separated by commas, in the wanted order",
    "project": "only this project's",
    "kernel_id": "only this kernel's; of a what-if: in place of the share that this kernel has",
    "pool": "only this node pool's",
    "minutes": "how far back, in whole minutes: 1 to 1440; 60 when it is not given",
    "ended": "`true`: batch work that is over, the last first, in place of what lives",
    "pod": "only this pod's",
    "cursor": "what an earlier answer gave: only what came after it",
    "since": "the beginning: a time, or how long ago (`7d`, the default); of a stream: a revision that was seen before",
    "until": "the end: a time, or how long ago; now when it is not given",
    "by": "`project` (default), `person` or `notebook`",
    "action": "only this action",
    "instead_of": "a workload of the caller's that would give up its place for this one",
}

_QUERY_SHAPES: Final[dict[str, dict[str, Any]]] = {
    "format": {"type": "string", "enum": ["json", "csv"]},
    "minutes": {"type": "integer", "minimum": 1, "maximum": 1440},
}


# -- OpenAPI 3.1
# ----------------------------------------------------------------------------------------------------------------


def openapi(version: str) -> dict[str, Any]:
    """The scheduler's document. WebSockets stand under `x-websockets`: OpenAPI has no word for
    them.
    """
    rest = [route for route in ROUTES if route.verb != "WS"]
    kinds = [
        kind for route in ROUTES for kind in (route.answer, route.body) if kind is not None
    ] + [m.ErrorBody]
    refs, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    schema = dict(zip(map(id, kinds), refs, strict=True))
    paths: dict[str, Any] = {}
    for route in rest:
        paths.setdefault(route.path, {})[route.verb.lower()] = _operation(route, schema)
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
        "x-websockets": [
            {
                "path": r.path,
                "scope": r.scope,
                "summary": r.summary,
                "receives": schema[id(r.answer)],
                "sends": schema.get(id(r.body)),
            }
            for r in ROUTES
            if r.verb == "WS"
        ],
    }


def _operation(route: Route, schema: dict[int, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "x-scope": route.scope,
    }
    if parameters := _path_parameters(route) + _query_parameters(route):
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema[id(route.body)]}},
        }
    answer = (
        {"application/json": {"schema": schema[id(route.answer)]}}
        if route.answer is not None
        else _free_form(route)
    )
    if "format" in route.query:
        answer["text/csv"] = {"schema": {"type": "string"}}
    error = {"content": {"application/json": {"schema": schema[id(m.ErrorBody)]}}}
    operation["responses"] = {"200": {"description": route.summary, "content": answer}}
    operation["responses"] |= {
        str(code): {"description": words, **error} for code, words in _error_codes(route).items()
    }
    operation["security"] = [] if route.scope == "open" else [{"token": []}]
    return operation


def _free_form(route: Route) -> dict[str, Any]:
    """Answers that have no body type: probes and metrics are text, documents are JSON of a shape of
    their own.
    """
    if route.name in ("openapi", "snapshot"):
        return {"application/json": {"schema": {"type": "object"}}}
    return {"text/plain": {"schema": {"type": "string"}}}


def _error_codes(route: Route) -> dict[int, str]:
    codes = (
        {}
        if route.scope == "open"
        else {401: "No valid token.", 403: "The token does not permit this."}
    )
    if route.body is not None or route.query:
        codes[400] = "What was sent cannot be read; `field` names the part."
    if "{" in route.path:
        codes[404] = "There is no such thing, or it is not the caller's to see."
    if route.verb == "POST":
        codes |= {409: "The id is taken by something else.", 413: "The body is too large."}
    if route.scope != "open":
        codes[429] = (
            "Too many calls by this caller; `Retry-After` says for how many seconds to wait."
        )
    if route.name not in ("healthz", "openapi", "metrics"):
        codes[503] = "Not now: the store does not answer, or the service is not ready."
    return dict(sorted(codes.items()))


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
            "description": _QUERY_WORDS[name],
            "schema": _QUERY_SHAPES.get(name, {"type": "string"}),
        }
        for name in route.query
    ]


# -- TypeScript
# -----------------------------------------------------------------------------------------------------------------


def typescript() -> str:
    """`labextension/src/schema.ts`: an interface per body of the Jupyter side, and its routes."""
    kinds = [
        kind for route in JUPYTER_ROUTES for kind in (route.answer, route.body) if kind is not None
    ] + [m.ErrorBody]
    _, components = msgspec.json.schema_components(kinds, ref_template="{name}")
    lines = [
        "// Generated from jupyter_gpushare/routes.py and jupyter_gpushare/messages: `make schema`. Do not edit.",
        "",
    ]
    for alias, values in (
        ("KernelState", get_args(m.KernelState)),
        ("EventKind", get_args(m.EventKind)),
    ):
        lines += [f"export type {alias} =", *(f"  | {_ts_literal(v)}" for v in values), ""]
        lines[-2] += ";"
    for name in sorted(components):
        lines += [*_interface(name, components[name]), ""]
    frames = [kind.__name__ for kind in get_args(m.StreamFrame)]
    lines += ["export type StreamFrame =", *(f"  | {name}" for name in frames)]
    lines[-1] += ";"
    lines += ["", "/** Paths under the server's base URL. */", "export const ROUTES = {"]
    lines += [
        f"  {_ts_name(r.name)}: {{ verb: {_ts_literal(r.verb)}, path: {_ts_literal(r.path.lstrip('/'))} }},"
        for r in JUPYTER_ROUTES
    ]
    lines[-1] = lines[-1].rstrip(",")
    return "\n".join([*lines, "} as const;", ""])


def _ts_name(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _ts_literal(value: object) -> str:
    return "'" + str(value).replace("'", "\\'") + "'"


def _interface(name: str, schema: dict[str, Any]) -> list[str]:
    words = schema.get("description", "").strip()
    lines = [f"/** {' '.join(words.split())} */"] if words else []
    lines.append(f"export interface {name} {{")
    required = set(schema.get("required", ()))
    for field, kind in schema.get("properties", {}).items():
        # a field with a default is always sent; only requests (unknown fields forbidden) and unset
        # fields may lack it
        optional = field not in required and (
            "default" not in kind or schema.get("additionalProperties") is False
        )
        lines.append(f"  {field}{'?' if optional else ''}: {_ts_field(name, field, kind)};")
    return [*lines, "}"]


def _ts_field(owner: str, field: str, kind: dict[str, Any]) -> str:
    """The states and kinds have names of their own; everything else is spelled out."""
    if owner == "Kernel" and field == "state":
        return "KernelState"
    if owner == "Event" and field == "kind":
        return "EventKind"
    return _ts_type(kind)


def _ts_type(kind: dict[str, Any]) -> str:
    if "$ref" in kind:
        return str(kind["$ref"])
    if "anyOf" in kind:
        return " | ".join(dict.fromkeys(_ts_type(part) for part in kind["anyOf"]))
    if "allOf" in kind:
        return _ts_type(kind["allOf"][0])
    if "const" in kind:
        return _ts_literal(kind["const"])
    if "enum" in kind:
        return " | ".join("null" if v is None else _ts_literal(v) for v in kind["enum"])
    simple = {
        "string": "string",
        "integer": "number",
        "number": "number",
        "boolean": "boolean",
        "null": "null",
    }
    name = kind.get("type", "")
    if name == "array":
        inner = _ts_type(kind.get("items", {}))
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if name == "object":
        values = kind.get("additionalProperties")
        return f"{{ [key: string]: {_ts_type(values) if isinstance(values, dict) and values else 'unknown'} }}"
    return simple.get(name, "unknown")


# -- python -m jupyter_gpushare.routes
# ------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Writes the generated files, or with `--check` says which of them are stale (exit 1)."""
    from jupyter_gpushare.version import __version__

    parser = argparse.ArgumentParser(
        prog="python -m jupyter_gpushare.routes", description=main.__doc__
    )
    parser.add_argument("--openapi", type=Path, metavar="FILE")
    parser.add_argument("--typescript", type=Path, metavar="FILE")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when a file is stale"
    )
    options = parser.parse_args(argv)
    wanted = {
        options.openapi: json.dumps(openapi(__version__), indent=1) + "\n",
        options.typescript: typescript(),
    }
    stale = [
        path
        for path, text in wanted.items()
        if path is not None and not (path.exists() and path.read_text() == text)
    ]
    for path in stale:
        if options.check:
            print(f"error: {path} is stale; run `make schema`", file=sys.stderr)
        else:
            path.write_text(wanted[path])
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
