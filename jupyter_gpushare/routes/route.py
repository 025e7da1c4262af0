"""What a route is: a name, a verb, a path, who may call it, and the types of body and answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = ["API_ROOT", "Route"]

API_ROOT: Final = "/api/v1"
Scope = Literal["open", "secret", "known", "person", "agent", "admin"]
"""The token that a route requires: "open" none, "secret" none but a key in its
query, "known" any valid one, "person" a person's or a
server's, the others a token of that scope. Admins may call everything. What a caller can see and
change is in `scheduler/auth/permissions.py`.
"""


@dataclass(frozen=True, slots=True)
class Route:
    """One verb on one path."""

    name: str
    verb: Literal["GET", "POST", "PATCH", "DELETE", "WS"]
    path: str
    """Parameters are in braces: `/workloads/{id}`."""
    scope: Scope
    summary: str
    answer: Any = None
    """The type of the JSON answer; None: text."""
    body: Any = None
    """The type of the JSON body; None: no body."""
    query: tuple[str, ...] = ()


TABLE_QUERY: Final = ("format", "columns")
HISTORY_QUERY: Final = ("pool", "minutes", *TABLE_QUERY)
