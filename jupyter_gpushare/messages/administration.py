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
    """`POST policy/check`: a policy file as it stands. `source` is what problems call it."""

    text: str
    source: str = "policy"


class PolicyChange(Body, frozen=True, kw_only=True):
    """One difference: `field` as people write it (`projects.vision.pools.a100.gpu.quota`), the
    values as text; null: not there.
    """

    field: str
    before: str | None
    after: str | None
    message: str


class PolicyAffected(Body, frozen=True, kw_only=True):
    """Somebody for whom a change means something now: a project, department, node pool or node, and
    its workloads.
    """

    kind: Literal["project", "department", "node_pool", "node", "priority_class"]
    name: str
    message: str
    workloads: list[str] = field(default_factory=list)


class PolicyCheck(Body, frozen=True, kw_only=True):
    """What a policy file would change; nothing was changed. With problems it would be refused
    whole.
    """

    problems: list[str] = field(default_factory=list)
    changes: list[PolicyChange] = field(default_factory=list)
    affected: list[PolicyAffected] = field(default_factory=list)


class CordonStatus(Body, frozen=True, kw_only=True):
    """What an admin said about a node, and how far it is: `leases` are those that are still held on
    it.
    """

    node: str
    cordoned: bool
    draining: bool = False
    leases: int = 0
    message: str = ""


class TokenRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    scope: Literal["person", "server", "agent", "admin"]
    name: str
    expires: str | None = None
    """A duration such as `30d`; null: never."""
    users: list[str] = field(default_factory=list)
    """Only of a server's token: on whose behalf it may ask; empty: everybody's."""
    groups: list[str] = field(default_factory=list)
    """Only of a person's token: groups that the person is in, beside those that the administrator's
    configuration says.
    """


class TokenView(Body, frozen=True, kw_only=True):
    id: str
    scope: str
    name: str
    created: Stamp
    expires: Stamp | None = None
    revoked: bool = False
    """It opens nothing any more, whether it was revoked or has expired."""
    state: Literal["good", "revoked", "expired"] = "good"
    users: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    token: str | UnsetType = UNSET
    """Only in the answer that creates it; nobody can read it again."""


class Tokens(Body, frozen=True, kw_only=True):
    tokens: list[TokenView]
