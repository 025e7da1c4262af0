"""How many workloads one person may have, or have waiting, in a project: checked when another one
is submitted, and by what-if requests. GPUs are limited by the core.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from jupyter_gpushare.core.model.reason import Reason, ReasonCode, Suggestion, counted

from ..state.admission import AdmittedRequest
from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord
from .feasibility import Impossible

__all__ = ["PersonLimits"]

NAMED: Final = 3
"""Notebooks that a message names."""


class PersonLimits:
    """Of one unit of work."""

    def __init__(self, unit_of_work: UnitOfWork) -> None:
        self._unit_of_work = unit_of_work

    def check(self, admitted: AdmittedRequest, leaving: Collection[str]) -> None:
        """Raises Impossible. `leaving`: workloads that end for this one."""
        reason = self.reason(admitted, leaving)
        if reason is not None:
            raise Impossible(reason, "project")

    def reason(self, admitted: AdmittedRequest, leaving: Collection[str] = ()) -> Reason | None:
        """Why the person may not submit another workload now; None: they may."""
        project, user = admitted.workload.project, admitted.user
        limit = self._unit_of_work.cluster.people.limit(project, user)
        if limit.notebooks is None and limit.pending is None:
            return None  # without a look at all that the person has
        own = [
            record
            for record in self._unit_of_work.records_of(user)
            if record.project == project and record.id not in leaving
        ]
        waiting = [record for record in own if record.pending_since is not None]
        if limit.notebooks is not None and len(own) >= limit.notebooks:
            return _refusal(project, own, limit.notebooks, "notebook")
        if limit.pending is not None and len(waiting) >= limit.pending:
            return _refusal(project, waiting, limit.pending, "waiting request")
        return None


def _refusal(project: str, own: list[WorkloadRecord], limit: int, noun: str) -> Reason:
    names = [record.request.name for record in own if record.request.name][:NAMED]
    which = f" ({', '.join(names)}{', …' if len(names) < len(own) else ''})" if names else ""
    message = (
        f'Over your limit in project "{project}": you have {len(own)} of {counted(limit, noun)}'
        f"{which}. Release one first."
    )
    numbers = {"requested": 1.0, "allocated": float(len(own)), "limit": float(limit)}
    release = Suggestion("release", "", "Release one of your other notebooks in this project.")
    return Reason(ReasonCode.OVER_PERSON_LIMIT, message, numbers, (release,) if own else ())
