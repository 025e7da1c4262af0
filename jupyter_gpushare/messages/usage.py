"""GPU-hours by project, person and notebook, and the audit log."""

from __future__ import annotations

from .common import Body, Stamp

__all__ = ["Audit", "AuditRow", "Usage", "UsageRow"]


class UsageRow(Body, frozen=True, kw_only=True):
    """GPU-hours of one project, person or notebook in a period. Columns that were not grouped by
    are "".

    `held`: allocated share x time; `used`: the part of it in which processes ran on the GPU;
    `idle`: the rest. `borrowed`: memory above the share, as a part of the GPU, x time; `lent`: its
    own unused share that others borrowed.
    """

    project: str
    user: str
    notebook: str
    held: float
    used: float
    idle: float
    borrowed: float
    lent: float


class Usage(Body, frozen=True, kw_only=True):
    """Answer of `GET usage`."""

    usage: list[UsageRow]
    since: Stamp
    until: Stamp


class AuditRow(Body, frozen=True, kw_only=True):
    """One action of an administrator or of the scheduler: actor, action, object, and details."""

    number: int
    time: Stamp
    actor: str
    action: str
    object: str
    detail: str


class Audit(Body, frozen=True, kw_only=True):
    """Oldest first."""

    audit: list[AuditRow]
