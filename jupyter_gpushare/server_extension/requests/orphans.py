"""Finds pending requests that a killed Jupyter server left behind. Pure.

The agent releases a granted lease without a process; a pending request has no lease. Only requests
for kernels of this node and this user count, and only after their kernel was unknown for a while.
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
"""Longer than another server of this machine takes to register the kernel of a new request."""


class OrphanedRequests:
    """Follows the scheduler's stream."""

    def __init__(self) -> None:
        self._pending: dict[str, WorkloadView] = {}
        self._orphaned_since: dict[str, int] = {}

    def apply_frame(self, frame: SchedulerFrame) -> None:
        """Keep the pending requests of kernels."""
        match frame:
            case SchedulerState(workloads=workloads):
                self._pending = {one.id: one for one in workloads if _is_pending_kernel(one)}
            case WorkloadChanged(workload=workload) if _is_pending_kernel(workload):
                self._pending[workload.id] = workload
            case WorkloadChanged(workload=workload):
                self._pending.pop(workload.id, None)
            case WorkloadGone(id=workload_id):
                self._pending.pop(workload_id, None)

    def suspects(
        self, now: int, *, node: str, user: str, living: Collection[str]
    ) -> dict[str, str]:
        """Workload id -> kernel id of requests that were orphaned for the whole grace time.

        The caller must still ask the agent whether it knows the kernel. `now` is in ms.
        """
        orphaned = {
            one.id: one.kernel_id or ""
            for one in self._pending.values()
            if one.user == user and f".{node}." in one.id and (one.kernel_id or "") not in living
        }
        self._orphaned_since = {
            workload_id: self._orphaned_since.get(workload_id, now) for workload_id in orphaned
        }
        return {
            workload_id: kernel_id
            for workload_id, kernel_id in orphaned.items()
            if now - self._orphaned_since[workload_id] >= GRACE_MS
        }


def _is_pending_kernel(workload: WorkloadView) -> bool:
    return (
        workload.kernel_id is not None
        and workload.state == "pending"
        and all(pod.lease is None for pod in workload.pods)
    )
