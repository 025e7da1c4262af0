"""What was done and used: GPU-hours by project, person and notebook, and what administrators did."""

from __future__ import annotations

from .common import Body, Stamp

__all__ = ["Audit", "AuditRow", "Usage", "UsageRow"]


class UsageRow(Body, frozen=True, kw_only=True):
    """GPU-hours of one project, person or notebook in a period. What it was not asked by is "".

    `held`: the share of a GPU x time that leases were in force; `used`: of that, time in which its
    processes ran on the GPU; `idle`: the rest of it. `borrowed`: memory above the share, as a part
    of the GPU, x time; `lent`: what others borrowed of its own unused share.
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
    usage: list[UsageRow]
    since: Stamp
    until: Stamp


class AuditRow(Body, frozen=True, kw_only=True):
    """One thing that an administrator did, or the scheduler did to somebody: who, what, to what,
    and details or the reason.
    """

    number: int
    time: Stamp
    actor: str
    action: str
    object: str
    detail: str


class Audit(Body, frozen=True, kw_only=True):
    """Oldest first."""

    audit: list[AuditRow]
