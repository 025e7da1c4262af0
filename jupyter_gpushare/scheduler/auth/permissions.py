"""Permissions as two tables: which callers may use a route, and which objects they can access.

The code reads these tables (`opens`, `reach`), the reference page is generated from them, and a
test checks every cell over HTTP.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from jupyter_gpushare.routes import Route

__all__ = ["CALLERS", "OPENS", "REACH", "WORDS", "Caller", "Reach", "opens", "reach"]

Caller = Literal["nobody", "person", "server", "agent", "admin"]
Reach = Literal["nothing", "own", "projects", "managed", "manages", "everything"]
"""`own`: the caller's objects, and for a server those of its users. `projects`: also those of the
caller's projects. `managed`: own ones and those of projects that the caller manages; `manages`:
only the latter. An agent's own object is its node.
"""

CALLERS: Final[tuple[Caller, ...]] = get_args(Caller)

OPENS: Final[dict[str, frozenset[Caller]]] = {
    "open": frozenset(CALLERS),
    "secret": frozenset(CALLERS),
    "known": frozenset({"person", "server", "agent", "admin"}),
    "person": frozenset({"person", "server", "admin"}),
    "agent": frozenset({"agent", "admin"}),
    "admin": frozenset({"admin"}),
}
"""Scope of a route -> callers that may use it. A person whom the policy lists under `admins` is an
admin. An agent's token is on every node, so it permits only the agent route.
"""

_READ: Final[dict[Caller, Reach]] = {
    "person": "projects",
    "server": "projects",
    "admin": "everything",
}
_OWN: Final[dict[Caller, Reach]] = {"person": "own", "server": "own", "admin": "everything"}
_MANAGED: Final[dict[Caller, Reach]] = {
    "person": "managed",
    "server": "managed",
    "admin": "everything",
}
_MANAGES: Final[dict[Caller, Reach]] = {
    "person": "manages",
    "server": "manages",
    "admin": "everything",
}

REACH: Final[dict[str, dict[Caller, Reach]]] = {
    "workload": _READ,
    "workloads": _READ,
    "stream": _READ,
    "evictions": _READ,
    "waiting": _READ,
    "nodes": _READ,
    "usage": _READ,
    "submit": _OWN,
    "what_if": _OWN,
    "end": _MANAGED,
    "bookings": _READ,
    "cancel_booking": _MANAGED,
    "people": _MANAGED,
    "limit_person": _MANAGES,
    "next_turn": _MANAGES,
    "rename": _OWN,
    "logs": _OWN,
    "notebook names": _MANAGED,
    "agent": {"agent": "own", "admin": "everything"},
}
"""Route (or thing) -> objects that each caller can access. Callers that are not listed can access
nothing. Routes that are not listed concern no workloads. `waiting` and `nodes` count all workloads;
the entry decides which are named.
"""

WORDS: Final[dict[Reach, str]] = {
    "nothing": "–",
    "own": "own",
    "projects": "own and their projects'",
    "managed": "own and of projects they manage",
    "manages": "of projects they manage",
    "everything": "all",
}


def opens(route: Route, caller: Caller) -> bool:
    """Whether this caller may use the route."""
    return caller in OPENS[route.scope]


def reach(thing: str, caller: Caller) -> Reach:
    """The objects that this caller can access through a route of the table."""
    return REACH[thing].get(caller, "nothing")
