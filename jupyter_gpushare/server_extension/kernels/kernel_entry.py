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

__all__ = ["KernelEntry"]

MAX_EVENTS: Final = 100
MAX_EARLY_REPORTS: Final = 2


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
    """Why the request was refused or has not reached the scheduler."""
    was_cancelled: bool = False
    """The scheduler ended the pending workload by a rule; `problem` says which."""
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

    def add_event(self, event: Event) -> bool:
        """Insert by time; False: the event is already there."""
        if event in self.events:
            return False
        # Sorting is stable: events of the same millisecond keep their order of arrival.
        self.events = tuple(sorted((*self.events, event), key=lambda e: e.time))[-MAX_EVENTS:]
        return True

    @property
    def lease(self) -> LeaseBody | None:
        """The lease that the scheduler granted, if any."""
        if self.workload is None or self.workload_id is None:
            return None
        return next((pod.lease for pod in self.workload.pods if pod.lease is not None), None)
