"""Requests of kernels that are gone, left behind by a server that was killed before it could say
so. Pure.

A grant of such a request is let go by the agent, which sees that there is no process; one that
waits has no lease to let go. Only requests for kernels of this machine and this person are judged,
and only after nobody here has known their kernel for a while.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from jupyter_gpushare.messages import (
    SchedulerFrame,
    SchedulerState,
    WorkloadChanged,
    WorkloadGone,
    WorkloadView,
)

__all__ = ["GRACE_MS", "OrphanedRequests"]

GRACE_MS: Final = 6_000
"""Longer than it takes another server of this machine to register a kernel whose request is on its
way.
"""


class OrphanedRequests:
    """Follows the scheduler's stream; `since` is when a request first looked abandoned."""

    def __init__(self) -> None:
        self._waiting: dict[str, WorkloadView] = {}
        self._since: dict[str, int] = {}

    def scheduler_said(self, frame: SchedulerFrame) -> None:
        """Keep the kernels' requests that wait."""
        match frame:
            case SchedulerState(workloads=workloads):
                self._waiting = {one.id: one for one in workloads if _waits(one)}
            case WorkloadChanged(workload=workload) if _waits(workload):
                self._waiting[workload.id] = workload
            case WorkloadChanged(workload=workload):
                self._waiting.pop(workload.id, None)
            case WorkloadGone(id=workload_id):
                self._waiting.pop(workload_id, None)

    def suspects(
        self, now: int, *, node: str, user: str, living: Collection[str]
    ) -> dict[str, str]:
        """Workload id -> kernel id of what looked abandoned for the whole grace time; whether the
        agent knows the kernel is still to be asked.
        """
        mine = {
            one.id: one.kernel_id or ""
            for one in self._waiting.values()
            if one.user == user and f".{node}." in one.id
        }
        abandoned = {
            workload_id: kernel_id
            for workload_id, kernel_id in mine.items()
            if kernel_id not in living
        }
        self._since = {workload_id: self._since.get(workload_id, now) for workload_id in abandoned}
        return {
            workload_id: kernel_id
            for workload_id, kernel_id in abandoned.items()
            if now - self._since[workload_id] >= GRACE_MS
        }


def _waits(workload: WorkloadView) -> bool:
    return (
        workload.kernel_id is not None
        and workload.state == "pending"
        and all(pod.lease is None for pod in workload.pods)
    )
