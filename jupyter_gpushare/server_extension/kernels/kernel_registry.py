"""All kernels of this Jupyter server with their requests and reports. Pure."""

from __future__ import annotations

from jupyter_gpushare.messages import (
    Event,
    Kernel,
    KernelRequest,
    KernelRequestState,
    KernelRuntime,
    ReasonBody,
    SchedulerFrame,
    SchedulerState,
    WorkloadChanged,
    WorkloadEvent,
    WorkloadGone,
    WorkloadView,
)

from .kernel_entry import KernelEntry, RequestedChange, lease_of
from .kernel_view import kernel_request_state, kernel_view
from .own_shares import ReleasableShare, releasable_shares

__all__ = ["KernelRegistry"]


class KernelRegistry:
    """Every method that changes something returns the ids of the kernels that may have changed."""

    def __init__(self) -> None:
        self._entries: dict[str, KernelEntry] = {}
        self._releasable: tuple[ReleasableShare, ...] = ()

    def __contains__(self, kernel_id: object) -> bool:
        return kernel_id in self._entries

    def ids(self) -> list[str]:
        """Kernel ids in the order of their first appearance."""
        return list(self._entries)

    def entry(self, kernel_id: str) -> KernelEntry:
        """The entry of a known kernel.

        Raises:
            KeyError: the kernel is not known.
        """
        return self._entries[kernel_id]

    def has_workload(self, kernel_id: str, workload_id: str) -> bool:
        """Whether this is the workload of the kernel's request or requested change."""
        entry = self._entries.get(kernel_id)
        return entry is not None and entry.has_workload(workload_id)

    def view(self, kernel_id: str) -> Kernel:
        """The whole of one kernel."""
        return kernel_view(self._entries[kernel_id], self._releasable)

    def request_state(self, kernel_id: str) -> KernelRequestState:
        """The scheduler's part of one kernel, for the agent."""
        return kernel_request_state(self._entries[kernel_id], self._releasable)

    def refresh_suggestions(self) -> set[str]:
        """Find the shares that waiting kernels suggest to release."""
        waiting = {entry.kernel_id for entry in self._entries.values() if entry.is_waiting}
        if not waiting:
            self._releasable = ()
            return set()
        found = releasable_shares(kernel_view(entry) for entry in self._entries.values())
        if found == self._releasable:
            return set()
        self._releasable = found
        return waiting

    # ---- kernels and requests

    def add(self, kernel_id: str, name: str = "") -> set[str]:
        """Add a kernel, or give a known one its new name ("": unchanged)."""
        entry = self._entries.setdefault(kernel_id, KernelEntry(kernel_id))
        entry.name = name or entry.name
        return {kernel_id}

    def remove(self, kernel_id: str) -> set[str]:
        """Remove a kernel that has ended."""
        self._entries.pop(kernel_id, None)
        return {kernel_id}

    def set_request(
        self,
        kernel_id: str,
        request: KernelRequest,
        workload_id: str,
        problem: ReasonBody | None = None,
    ) -> set[str]:
        """The kernel's request is now this workload."""
        entry = self._entries[kernel_id]
        entry.request, entry.problem = request, problem
        if entry.workload_id != workload_id:
            entry.workload_id, entry.workload = workload_id, None
            self._apply_early(entry, workload_id)
        return {kernel_id}

    def clear_request(self, kernel_id: str, problem: ReasonBody | None = None) -> set[str]:
        """The kernel has no request any more; `problem`: because it was refused or cancelled."""
        entry = self._entries.get(kernel_id)
        if entry is None:
            return set()
        entry.request, entry.workload_id, entry.workload = None, None, None
        entry.problem, entry.change = problem, None
        return {kernel_id}

    def set_change(self, kernel_id: str, change: RequestedChange | None) -> set[str]:
        """This request replaces the current one when it is granted; None: no request does."""
        entry = self._entries[kernel_id]
        entry.change = change
        if change is not None:
            self._apply_early(entry, change.workload_id)
        return {kernel_id}

    def _apply_early(self, entry: KernelEntry, workload_id: str) -> None:
        early = entry.early.pop(workload_id, None)
        if isinstance(early, WorkloadView):
            self.apply_workload(early)
        elif early is not None:
            self._workload_gone(workload_id, entry.kernel_id, early.reason)

    def add_event(self, kernel_id: str, event: Event) -> set[str]:
        """Add an event of either side; a repeated one is ignored."""
        entry = self._entries.get(kernel_id)
        return {kernel_id} if entry is not None and entry.add_event(event) else set()

    # ---- reports of the scheduler

    def apply_frame(self, frame: SchedulerFrame) -> set[str]:
        """One frame of the scheduler's stream."""
        match frame:
            case SchedulerState(revision=revision, workloads=workloads):
                return self._scheduler_state(revision, workloads)
            case WorkloadChanged(workload=workload):
                return self.apply_workload(workload)
            case WorkloadGone(id=workload_id, kernel_id=kernel_id, reason=reason):
                entry = self._entries.get(kernel_id or "")
                if entry is not None and not entry.has_workload(workload_id):
                    entry.keep_early(workload_id, frame)
                return self._workload_gone(workload_id, kernel_id, reason)
            case WorkloadEvent(kernel_id=kernel_id, event=event):
                return self.add_event(kernel_id or "", event)
            case _:
                return set()

    def apply_workload(self, workload: WorkloadView) -> set[str]:
        """A workload as the stream or the answer to a submission reports it."""
        entry = self._entries.get(workload.kernel_id or "")
        if entry is None:
            return set()
        if entry.change is not None and entry.change.workload_id == workload.id:
            return self._apply_change(entry, entry.change, workload)
        if entry.workload_id != workload.id:
            entry.keep_early(workload.id, workload)
            return set()
        if entry.workload is not None and workload.revision < entry.workload.revision:
            return set()
        if workload.state == "ended":
            return self._request_ended(entry)
        entry.workload, entry.problem = workload, None
        return {entry.kernel_id}

    def _apply_change(
        self, entry: KernelEntry, change: RequestedChange, workload: WorkloadView
    ) -> set[str]:
        """A report of the requested change: it replaces the current request when it is granted, or
        at once if that has no lease.
        """
        if change.workload is not None and workload.revision < change.workload.revision:
            return set()
        if workload.state == "ended":
            entry.change = None
            return {entry.kernel_id}
        change.workload = workload
        if lease_of(workload) is not None or entry.lease is None:
            entry.take_change()
        return {entry.kernel_id}

    def _request_ended(self, entry: KernelEntry, reason: ReasonBody | None = None) -> set[str]:
        """The current workload has ended: the requested change, if any, is the request now."""
        if entry.change is not None:
            entry.take_change()
            return {entry.kernel_id}
        return self.clear_request(entry.kernel_id, reason)

    def _scheduler_state(self, revision: int, workloads: list[WorkloadView]) -> set[str]:
        """The complete state: an unlisted workload has ended, unless its report is newer."""
        listed = {workload.id for workload in workloads}
        changed: set[str] = set()
        for entry in self._entries.values():
            change = entry.change
            if change is not None and _has_ended(change.workload, revision, listed):
                changed |= self.set_change(entry.kernel_id, None)
            if _has_ended(entry.workload, revision, listed):
                changed |= self._request_ended(entry)
        for workload in workloads:
            changed |= self.apply_workload(workload)
        return changed

    def _workload_gone(
        self, workload_id: str, kernel_id: str | None, reason: ReasonBody | None
    ) -> set[str]:
        entry = self._entries.get(kernel_id or "")
        if entry is None:
            return set()
        if entry.change is not None and entry.change.workload_id == workload_id:
            return self.set_change(entry.kernel_id, None)
        if entry.workload_id != workload_id:
            return set()
        return self._request_ended(entry, reason)

    # ---- reports of the agent

    def apply_runtime(self, runtime: KernelRuntime) -> set[str]:
        """The agent's report of one kernel."""
        entry = self._entries.get(runtime.kernel_id)
        if entry is None:
            return set()
        entry.runtime = runtime
        for event in runtime.events:
            entry.add_event(event)
        return {runtime.kernel_id}


def _has_ended(workload: WorkloadView | None, revision: int, listed: set[str]) -> bool:
    """Whether a reported workload is missing in the complete state of this revision."""
    if workload is None or workload.revision > revision:
        return False
    return workload.id not in listed
