"""One kernel of this server: its request and the last reports of the scheduler and the agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from jupyter_gpushare.messages import (
    Event,
    KernelRequest,
    KernelRuntime,
    LeaseBody,
    ReasonBody,
    WorkloadGone,
    WorkloadView,
)

__all__ = ["KernelEntry", "RequestedChange", "lease_of"]

MAX_EVENTS: Final = 100
MAX_EARLY_REPORTS: Final = 2


@dataclass(slots=True)
class RequestedChange:
    """A request that replaces the current one when it is granted."""

    request: KernelRequest
    workload_id: str
    workload: WorkloadView | None = None
    """The scheduler's last report; None: it has not answered yet."""


@dataclass(slots=True)
class KernelEntry:
    """`workload_id`: the workload of the current request (None: no request); `workload`: the
    scheduler's last report of it.
    """

    kernel_id: str
    name: str = ""
    request: KernelRequest | None = None
    workload_id: str | None = None
    workload: WorkloadView | None = None
    problem: ReasonBody | None = None
    """Why the request was refused, was cancelled by a rule, or has not reached the scheduler."""
    change: RequestedChange | None = None
    runtime: KernelRuntime | None = None
    """The agent's last report."""
    events: tuple[Event, ...] = ()
    early: dict[str, WorkloadView | WorkloadGone] = field(default_factory=dict)
    """Last reports of other workloads: the stream may be faster than the answer to a submission."""

    def keep_early(self, workload_id: str, report: WorkloadView | WorkloadGone) -> None:
        """Keep a report until it is known whether the workload is this kernel's."""
        self.early.pop(workload_id, None)
        self.early[workload_id] = report
        while len(self.early) > MAX_EARLY_REPORTS:
            del self.early[next(iter(self.early))]

    def has_workload(self, workload_id: str) -> bool:
        """Whether it is the workload of the current request or of the requested change."""
        changed = self.change is not None and self.change.workload_id == workload_id
        return changed or self.workload_id == workload_id

    def take_change(self) -> None:
        """The requested change is the current request from now on."""
        assert self.change is not None
        self.request, self.workload_id = self.change.request, self.change.workload_id
        self.workload, self.problem = self.change.workload, None
        self.change = None

    def add_event(self, event: Event) -> bool:
        """Insert by time; False: the event is already there."""
        if event in self.events:
            return False
        # Sorting is stable: events of the same millisecond keep their order of arrival.
        self.events = tuple(sorted((*self.events, event), key=lambda e: e.time))[-MAX_EVENTS:]
        return True

    @property
    def is_waiting(self) -> bool:
        """Whether its request, or a requested change, waits for the scheduler."""
        return self.change is not None or (self.workload_id is not None and self.lease is None)

    @property
    def lease(self) -> LeaseBody | None:
        """The lease that the scheduler granted, if any."""
        if self.workload is None or self.workload_id is None:
            return None
        return lease_of(self.workload)


def lease_of(workload: WorkloadView) -> LeaseBody | None:
    """The lease of a kernel's workload, which has one pod."""
    return next((pod.lease for pod in workload.pods if pod.lease is not None), None)
