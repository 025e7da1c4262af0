"""What this Jupyter server knows of its kernels' shares: the scheduler's part and the agent's part,
folded into one `Kernel` each. Pure.

The scheduler says what was asked and granted; the agent says what runs where. Neither part is
believed about the other's matters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from jupyter_gpushare.messages import (
    Event,
    ExpectedWait,
    Kernel,
    KernelRequest,
    KernelRequestState,
    KernelState,
    LeaseBody,
    MemoryMib,
    ReasonBody,
    SchedulerFrame,
    SchedulerState,
    Share,
    WorkloadChanged,
    WorkloadEvent,
    WorkloadGone,
    WorkloadView,
)

from .request import shares

__all__ = ["KernelRegistry", "KernelEntry"]

LONGEST_STORY: Final = 100
MOST_EARLY: Final = 2
AGENT_STATES: Final = ("attached", "suspended", "reclaiming", "lost")


@dataclass(slots=True)
class KernelEntry:
    """One kernel. `workload_id` is what it asks for now (None: nothing); `workload` what the
    scheduler said of it last.
    """

    kernel_id: str
    name: str = ""
    asked: KernelRequest | None = None
    workload_id: str | None = None
    workload: WorkloadView | None = None
    problem: ReasonBody | None = None
    """Why the request did not even reach the scheduler, or was refused."""
    given_up: bool = False
    """The scheduler ended what it waited for, by a rule; `problem` says which."""
    agent: Kernel | None = None
    events: tuple[Event, ...] = ()
    early: dict[str, WorkloadView | WorkloadGone] = field(default_factory=dict)
    """The last news of requests that are not this kernel's, or not yet: the stream may be quicker
    than the answer to the submission.
    """

    def put_by(self, workload_id: str, news: WorkloadView | WorkloadGone) -> None:
        """For when it is known to be this kernel's."""
        self.early.pop(workload_id, None)
        self.early[workload_id] = news
        while len(self.early) > MOST_EARLY:
            del self.early[next(iter(self.early))]

    @property
    def lease(self) -> LeaseBody | None:
        """The allocation in force, when the scheduler granted one."""
        if self.workload is None or self.workload_id is None:
            return None
        return next((pod.lease for pod in self.workload.pods if pod.lease is not None), None)

    @property
    def state(self) -> KernelState:
        """One word for both parts."""
        if self.workload_id is None:
            return "detached"
        if self.is_here:
            assert self.agent is not None
            return self.agent.state
        if self.lease is None:
            return "pending"
        return "reclaiming" if self.lease.wanted == "evict" else "granted"

    @property
    def is_here(self) -> bool:
        """Whether the agent realises this very request: the word may reach it before it reaches us,
        so the scheduler's is not needed.
        """
        return (
            self.agent is not None
            and self.agent.workload == self.workload_id
            and self.agent.state in AGENT_STATES
        )


class KernelRegistry:
    """Every method that takes news returns the ids of the kernels whose view may have changed."""

    def __init__(self) -> None:
        self._entries: dict[str, KernelEntry] = {}

    def __contains__(self, kernel_id: str) -> bool:
        return kernel_id in self._entries

    def ids(self) -> list[str]:
        """Kernel ids in the order in which they were first seen."""
        return list(self._entries)

    def entry(self, kernel_id: str) -> KernelEntry:
        """The entry of a known kernel.

        Raises:
            KeyError: it is not known.
        """
        return self._entries[kernel_id]

    # ---- news from Jupyter and from the desk

    def appeared(self, kernel_id: str, name: str = "") -> set[str]:
        entry = self._entries.setdefault(kernel_id, KernelEntry(kernel_id))
        entry.name = name or entry.name
        return {kernel_id}

    def left(self, kernel_id: str) -> set[str]:
        self._entries.pop(kernel_id, None)
        return {kernel_id}

    def asks(
        self,
        kernel_id: str,
        request: KernelRequest,
        workload_id: str,
        problem: ReasonBody | None = None,
    ) -> set[str]:
        entry = self._entries[kernel_id]
        entry.asked, entry.problem, entry.given_up = request, problem, False
        if entry.workload_id != workload_id:
            entry.workload_id, entry.workload = workload_id, None
            early = entry.early.pop(workload_id, None)
            if isinstance(early, WorkloadView):
                self._workload(early)
            elif early is not None:
                self._workload_gone(workload_id, kernel_id, early.reason)
        return {kernel_id}

    def asks_nothing(self, kernel_id: str, problem: ReasonBody | None = None) -> set[str]:
        entry = self._entries.get(kernel_id)
        if entry is None:
            return set()
        entry.asked, entry.workload_id, entry.workload, entry.problem = None, None, None, problem
        return {kernel_id}

    # ---- news from the scheduler

    def scheduler_said(self, frame: SchedulerFrame) -> set[str]:
        match frame:
            case SchedulerState(revision=revision, workloads=workloads):
                return self._scheduler_state(revision, workloads)
            case WorkloadChanged(workload=workload):
                return self._workload(workload)
            case WorkloadGone(id=workload_id, kernel_id=kernel_id, reason=reason):
                if (
                    entry := self._entries.get(kernel_id or "")
                ) is not None and entry.workload_id != workload_id:
                    entry.put_by(workload_id, frame)
                return self._workload_gone(workload_id, kernel_id, reason)
            case WorkloadEvent(kernel_id=kernel_id, event=event):
                return self.happened(kernel_id or "", event)
            case _:
                return set()

    def workload_answered(self, workload: WorkloadView) -> set[str]:
        """The answer to a submission: as good as a frame."""
        return self._workload(workload)

    def _scheduler_state(self, revision: int, workloads: list[WorkloadView]) -> set[str]:
        """Everything the scheduler knows; what it does not list is over, except what was answered
        after this frame was made.
        """
        listed = {workload.id for workload in workloads}
        known = [
            entry
            for entry in self._entries.values()
            if entry.workload is not None and entry.workload.revision <= revision
        ]
        over = [entry.kernel_id for entry in known if entry.workload_id not in listed]
        changed = {kernel_id for gone in over for kernel_id in self.asks_nothing(gone)}
        for workload in workloads:
            changed |= self._workload(workload)
        return changed

    def _workload(self, workload: WorkloadView) -> set[str]:
        entry = self._entries.get(workload.kernel_id or "")
        if entry is None:
            return set()
        if entry.workload_id != workload.id:
            entry.put_by(workload.id, workload)
            return set()
        if entry.workload is not None and workload.revision < entry.workload.revision:
            return set()
        if workload.state == "ended":
            return self.asks_nothing(entry.kernel_id)
        entry.workload, entry.problem = workload, None
        return {entry.kernel_id}

    def _workload_gone(
        self, workload_id: str, kernel_id: str | None, reason: ReasonBody | None
    ) -> set[str]:
        entry = self._entries.get(kernel_id or "")
        if entry is None or entry.workload_id != workload_id:
            return set()
        entry.given_up = reason is not None
        return self.asks_nothing(entry.kernel_id, reason)

    # ---- news from the agent

    def agent_said(self, kernel: Kernel) -> set[str]:
        entry = self._entries.get(kernel.kernel_id)
        if entry is None:
            return set()
        entry.agent = kernel
        for event in kernel.events:
            self.happened(kernel.kernel_id, event)
        return {kernel.kernel_id}

    def happened(self, kernel_id: str, event: Event) -> set[str]:
        """One event, from either side; told twice it is one."""
        entry = self._entries.get(kernel_id)
        if entry is None or event in entry.events:
            return set()
        # Sorting is stable: events of one millisecond stay in the order in which they came.
        entry.events = tuple(sorted((*entry.events, event), key=lambda e: e.time))[-LONGEST_STORY:]
        return {kernel_id}

    # ---- what others see

    def view(self, kernel_id: str) -> Kernel:
        """The whole of one kernel."""
        entry = self._entries[kernel_id]
        agent, lease, workload = (
            entry.agent or Kernel(kernel_id=kernel_id),
            entry.lease,
            entry.workload,
        )
        request, limit = self._shares(entry)
        return Kernel(
            kernel_id=kernel_id,
            name=entry.name,
            state=entry.state,
            project=workload.project
            if workload
            else (entry.asked.project if entry.asked else None),
            request=request,
            limit=limit,
            node=lease.node if lease else agent.node,
            planned_gpu=_planned(entry),
            gpu_uuid=agent.gpu_uuid if entry.is_here else None,
            simulated=agent.simulated,
            pinned=agent.pinned,
            busy=agent.busy,
            cell_waits=agent.cell_waits,
            memory_mib=_memory(entry, agent),
            gpu_memory_total_mib=agent.gpu_memory_total_mib,
            saved_mib=agent.saved_mib,
            reason=_reason(entry),
            queue_position=workload.queue_position
            if workload and entry.state == "pending"
            else None,
            expected_wait=_expected(entry),
            notice_deadline=agent.notice_deadline,
            generation=agent.generation,
            workload=entry.workload_id,
            preset=entry.asked.preset if entry.asked else None,
            events=list(entry.events),
        )

    def outlook(self, kernel_id: str) -> KernelRequestState:
        """What the agent needs to know of the request."""
        entry = self._entries[kernel_id]
        request, limit = self._shares(entry)
        return KernelRequestState(
            kernel_id=kernel_id,
            pending=entry.state == "pending",
            project=entry.workload.project if entry.workload else None,
            request=request,
            limit=limit,
            reason=_reason(entry),
            refuses=entry.problem.message if entry.given_up and entry.problem else "",
            position=entry.workload.queue_position
            if entry.workload and entry.lease is None
            else None,
            expected_wait=_expected(entry),
        )

    @staticmethod
    def _shares(entry: KernelEntry) -> tuple[Share, Share]:
        if entry.workload is not None:
            return entry.workload.request, entry.workload.limit
        return shares(entry.asked) if entry.asked is not None else (Share(), Share())


def _planned(entry: KernelEntry) -> str | None:
    """The agent knows what its GPUs are called; before it has heard of the lease, node and number
    must do.
    """
    if (
        entry.agent is not None
        and entry.agent.workload == entry.workload_id
        and entry.agent.planned_gpu
    ):
        return entry.agent.planned_gpu
    lease = entry.lease
    return ", ".join(f"{lease.node}/{index}" for index in lease.planned_gpus) if lease else None


def _guaranteed(lease: LeaseBody) -> int:
    return lease.request_mib * len(lease.planned_gpus)


def _memory(entry: KernelEntry, agent: Kernel) -> MemoryMib:
    """As the agent measures it; of a share that it does not realise (yet, or any more) only what
    the scheduler guarantees is true.
    """
    if entry.is_here:
        return agent.memory_mib
    if entry.lease is not None:
        return MemoryMib(guaranteed=_guaranteed(entry.lease))
    # An agent that still says attached speaks of a share that was given back.
    return MemoryMib() if agent.state in AGENT_STATES else agent.memory_mib


def _expected(entry: KernelEntry) -> ExpectedWait | None:
    """Only of a kernel that waits for the scheduler's word, as that said it last."""
    if (
        entry.lease is not None
        or entry.is_here
        or entry.problem is not None
        or entry.workload is None
    ):
        return None
    return entry.workload.expected_wait


def _reason(entry: KernelEntry) -> ReasonBody | None:
    """Only of a kernel that waits, or whose request was refused."""
    if entry.lease is not None or entry.is_here:
        return None
    return entry.problem or (entry.workload.reason if entry.workload else None)
