"""The budget of pending pods per user: every cycle decides about all pending pods, so one user's
submissions must not slow down the others'.
"""

from __future__ import annotations

from jupyter_gpushare.core.model.errors import Conflict

from ..state.unit_of_work import UnitOfWork

__all__ = ["TooManyPending", "check_pending_pods"]


class TooManyPending(Conflict):
    """Raised when a user's pending pods would exceed the budget."""

    code = "too-many-pending"


def check_pending_pods(unit_of_work: UnitOfWork, user: str, pods: int, most: int) -> None:
    """`pods` more of this user; `most` 0: unlimited. Raises TooManyPending."""
    if not most:
        return
    pending = sum(
        len(record.workload.pods) - len(record.leases) - len(record.exits)
        for record in map(unit_of_work.records.__getitem__, unit_of_work.by_user.get(user, ()))
    )
    if pending + pods > most:
        raise TooManyPending(
            f"too many pending pods: {pending} of user {user!r} are pending, {pods} more are"
            f" requested, and at most {most} are allowed",
            field="pods",
        )
