"""Budgets of pods per workload and per user: every cycle decides about all pending pods, and every
lease is sent, reported and stored, so one user's submissions must not slow down the others'.

Running pods with GPUs are not counted: there are no more than the GPUs have room for.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import Conflict, InvalidInput

from ..state.admission import MAX_PODS
from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord

__all__ = ["PodBudget", "TooManyPending", "TooManyPods"]


class TooManyPods(InvalidInput):
    """Raised when a workload has more pods than one submission may have."""

    code = "too-many-pods"


class TooManyPending(Conflict):
    """Raised when a user's pending pods would exceed the budget."""

    code = "too-many-pending"


@dataclass(frozen=True, slots=True)
class PodBudget:
    """0: unlimited (a workload has at most `MAX_PODS` pods in any case)."""

    per_user: int = 0
    """Pods that are pending, and running ones without a GPU."""
    per_workload: int = 0
    without_gpu: int = 0
    """Pods of one user that ask for no GPU: nothing else limits how many run, and agents handle
    each of them.
    """

    def check_workload(self, pods: int) -> None:
        """Raises TooManyPods."""
        most = min(self.per_workload or MAX_PODS, MAX_PODS)
        if pods > most:
            text = f"a workload has at most {most} pods, got {pods}: submit several workloads"
            raise TooManyPods(text, field="pods")

    def check_user(self, unit_of_work: UnitOfWork, user: str, pods: int) -> None:
        """Whether the user may have so many more pods. Raises TooManyPending."""
        if not self.per_user or unit_of_work.pods_of(user) + pods <= self.per_user:
            return
        counted = sum(map(_counted, unit_of_work.records_of(user)))
        if counted + pods > self.per_user:
            raise TooManyPending(
                f"too many pods: {counted} of user {user!r} are pending or run without a GPU,"
                f" {pods} more are requested, and at most {self.per_user} are allowed",
                field="pods",
            )

    def check_without_gpu(
        self, unit_of_work: UnitOfWork, user: str, request: m.WorkloadRequest
    ) -> None:
        """Whether the user may have so many more pods without a GPU. Raises TooManyPending."""
        asked = _without_gpu(request)
        if not self.without_gpu or not asked:
            return
        known = sum(_without_gpu(record.request) for record in unit_of_work.records_of(user))
        if known + asked > self.without_gpu:
            raise TooManyPending(
                f"too many pods without a GPU: user {user!r} has {known}, {asked} more are"
                f" requested, and at most {self.without_gpu} are allowed",
                field="pods",
            )


def _without_gpu(request: m.WorkloadRequest) -> int:
    return sum(1 for pod in request.pods if not pod.gpu and not pod.gpu_memory)


def _counted(record: WorkloadRecord) -> int:
    with_gpus = sum(1 for lease in record.leases.values() if lease.planned_gpus)
    return len(record.workload.pods) - len(record.exits) - with_gpus
