"""What administrators do over REST: policy checks, cordons, and tokens."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from .common import Body, Stamp

__all__ = [
    "CordonStatus",
    "PolicyAffected",
    "PolicyChange",
    "PolicyCheck",
    "PolicyText",
    "TokenRequest",
    "TokenView",
    "Tokens",
]


class PolicyText(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST policy/check`: the text of a policy file. `source` is its name in problems."""

    text: str
    source: str = "policy"


class PolicyChange(Body, frozen=True, kw_only=True):
    """One difference: the field (`projects.vision.pools.a100.gpu.quota`) and its values as text;
    null: not set.
    """

    field: str
    before: str | None
    after: str | None
    message: str


class PolicyAffected(Body, frozen=True, kw_only=True):
    """A project, department, node pool or node that a change affects now, and its workloads."""

    kind: Literal["project", "department", "node_pool", "node", "priority_class"]
    name: str
    message: str
    workloads: list[str] = field(default_factory=list)


class PolicyCheck(Body, frozen=True, kw_only=True):
    """What a policy file would change; nothing was changed. A file with problems would be
    refused.
    """

    problems: list[str] = field(default_factory=list)
    changes: list[PolicyChange] = field(default_factory=list)
    affected: list[PolicyAffected] = field(default_factory=list)


class CordonStatus(Body, frozen=True, kw_only=True):
    """Whether a node is cordoned or draining; `leases` is the number of leases left on it."""

    node: str
    cordoned: bool
    draining: bool = False
    leases: int = 0
    message: str = ""


class TokenRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST tokens`."""

    scope: Literal["person", "server", "agent", "admin"]
    name: str
    expires: str | None = None
    """A duration such as `30d`; null: never."""
    users: list[str] = field(default_factory=list)
    """Users on whose behalf a server may act; empty: all. Only for tokens of servers."""
    groups: list[str] = field(default_factory=list)
    """Groups of a person, in addition to those in the scheduler's configuration. Only for tokens of
    persons.
    """


class TokenView(Body, frozen=True, kw_only=True):
    """One token."""

    id: str
    scope: str
    name: str
    created: Stamp
    expires: Stamp | None = None
    revoked: bool = False
    """Whether it is not valid any more: revoked or expired."""
    state: Literal["good", "revoked", "expired"] = "good"
    users: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    token: str | UnsetType = UNSET
    """The secret; only in the answer of `POST tokens`."""


class Tokens(Body, frozen=True, kw_only=True):
    """Answer of `GET tokens`."""

    tokens: list[TokenView]
