"""Who may do what, as two tables: which tokens open which routes, and how far each caller reaches
through them.

The code asks these tables (`opens`, `reach`), the reference page is rendered from them, and a test
tries every cell over HTTP.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from jupyter_gpushare.routes import Route

__all__ = ["CALLERS", "OPENS", "REACH", "WORDS", "Caller", "Reach", "opens", "reach"]

Caller = Literal["nobody", "person", "server", "agent", "admin"]
Reach = Literal["nothing", "own", "projects", "everything"]
"""`own`: the caller's own, and of a server those of the users on whose behalf it may ask.
`projects`: also those of the projects that they are members of. An agent's own is its node.
"""

CALLERS: Final[tuple[Caller, ...]] = get_args(Caller)

OPENS: Final[dict[str, frozenset[Caller]]] = {
    "open": frozenset(CALLERS),
    "known": frozenset({"person", "server", "agent", "admin"}),
    "person": frozenset({"person", "server", "admin"}),
    "agent": frozenset({"agent", "admin"}),
    "admin": frozenset({"admin"}),
}
"""A route's scope word -> whose token opens it. A person whom the policy lists under `admins`
counts as an admin. An agent's token lies on every node, so it opens the agent's door and nothing
else.
"""

_LOOK: Final[dict[Caller, Reach]] = {
    "person": "projects",
    "server": "projects",
    "admin": "everything",
}
_OWN: Final[dict[Caller, Reach]] = {"person": "own", "server": "own", "admin": "everything"}

REACH: Final[dict[str, dict[Caller, Reach]]] = {
    "workload": _LOOK,
    "workloads": _LOOK,
    "stream": _LOOK,
    "evictions": _LOOK,
    "waiting": _LOOK,
    "nodes": _LOOK,
    "usage": _LOOK,
    "submit": _OWN,
    "what_if": _OWN,
    "end": _OWN,
    "rename": _OWN,
    "logs": _OWN,
    "notebook names": _OWN,
    "agent": {"agent": "own", "admin": "everything"},
}
"""Route (or thing) -> how far each caller reaches. A caller who is not named reaches nothing.
Routes that are not here show or change nobody's workloads: whom they open for gets all of them. In
`waiting` and `nodes` everybody is counted; the reach says who is named.
"""

WORDS: Final[dict[Reach, str]] = {
    "nothing": "–",
    "own": "own",
    "projects": "own and their projects'",
    "everything": "all",
}


def opens(route: Route, caller: Caller) -> bool:
    """Whether this caller may use the route at all."""
    return caller in OPENS[route.scope]


def reach(thing: str, caller: Caller) -> Reach:
    """How far this caller reaches through a route of the table."""
    return REACH[thing].get(caller, "nothing")
