"""What the agent knows of one kernel, in sub-records that each have an owner.

A lease of a workload that is no kernel (a command) has a record under the lease's id. Times are
monotonic ms; only events carry wall-clock stamps, because people read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from jupyter_gpushare.messages import GateKind, KernelRequestState, LeaseBody, Share

from .assignment import GpuAssignment
from .background_work import BackgroundWork
from .cell_requests import UNGATED_MS, CellRequests
from .kernel_memory import KernelMemory
from .kernel_process import KernelProcess, Registration
from .notices import IdleState, Publication, ReclaimNotice
from .rate_budget import RateBudget
from .residence import Residence
from .turn import Turn

__all__ = ["Heartbeat", "KernelRecord", "UserPreferences", "have_same_user"]

ACTIONS_AT_ONCE: Final = 60
ACTIONS_PER_S: Final = 0.5


@dataclass(slots=True)
class UserPreferences:
    """What its user asked for. Owner: `api.user_actions`."""

    pinned: bool = False
    suspended_by_user: bool = False
    """It is resumed by its next cell, not automatically."""
    actions: RateBudget = field(default_factory=lambda: RateBudget(ACTIONS_AT_ONCE, ACTIONS_PER_S))
    """Each is an event that the scheduler stores."""


@dataclass(slots=True)
class Heartbeat:
    """Whether the kernel's interpreter responds. Owner: `reconcile.watchdog`."""

    received_at: int = 0
    """0: never (an older kernel, or a simulated GPU)."""
    quiet_since: int | None = None
    frozen_since: int | None = None
    """The interpreter is blocked since then, because its memory is saved."""


@dataclass(slots=True)
class KernelRecord:
    """One kernel or command."""

    kernel_id: str
    registration: Registration = field(default_factory=Registration)
    process: KernelProcess = field(default_factory=KernelProcess)
    gate: CellRequests = field(default_factory=CellRequests)
    request_state: KernelRequestState | None = None
    """The state of its request at the scheduler, as its server reports it."""
    assignment: GpuAssignment = field(default_factory=GpuAssignment)
    memory: KernelMemory = field(default_factory=KernelMemory)
    background: BackgroundWork = field(default_factory=BackgroundWork)
    preferences: UserPreferences = field(default_factory=UserPreferences)
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    notice: ReclaimNotice = field(default_factory=ReclaimNotice)
    residence: Residence = field(default_factory=Residence)
    turn: Turn = field(default_factory=Turn)
    idle: IdleState = field(default_factory=IdleState)
    published: Publication = field(default_factory=Publication)

    # ---- questions that concern several sub-records ----------------------------------------------

    @property
    def lease(self) -> LeaseBody | None:
        """Its lease, also when it was revoked."""
        return self.assignment.lease

    @property
    def is_command(self) -> bool:
        """Whether it is batch work, started by the agent."""
        return self.lease is not None and self.lease.command is not None

    @property
    def can_attach(self) -> bool:
        """Whether there is a process to attach, or a command that has yet to start."""
        if self.process.main is not None:
            return True
        return self.is_command and self.process.gone_at is None

    @property
    def planned_gate(self) -> GateKind:
        """What its server prepared to make its cells ask."""
        registration = self.registration
        if registration.gate is not None:
            return registration.gate
        return "bootstrap" if registration.language.lower() == "python" else "none"

    def has_gate(self, now: int) -> bool:
        """Whether its cells ask before they run; a kernel that is starting is assumed to."""
        if self.gate.ever_connected:
            return True
        process = self.process
        is_starting = process.main is None or now - process.launched_at < UNGATED_MS
        return self.planned_gate != "none" and is_starting

    def computes(self, now: int) -> bool:
        """Whether a known cell runs; a kernel without a gate may compute at any time."""
        ungated = self.process.main is not None and not self.has_gate(now)
        return bool(self.gate.running) or ungated

    def is_running(self, now: int) -> bool:
        """Whether a cell runs, or may be running, or has left work behind."""
        return self.computes(now) or now < max(self.gate.unsure_until, self.background.until)

    @property
    def name(self) -> str:
        """The notebook's path, as its server reported it last; "": not known."""
        reported = self.request_state.name if self.request_state is not None else ""
        return reported or self.registration.name

    def wants_gpu(self) -> bool:
        """Whether it asked for a GPU: its cells wait for the lease, also while the scheduler's
        grant is on its way.
        """
        if self.request_state is None:
            return False
        return self.request_state.pending or self.request_state.request != Share()

    @property
    def has_pending_request(self) -> bool:
        """Whether its request waits at the scheduler."""
        is_pending = self.request_state is not None and self.request_state.pending
        return is_pending and self.assignment.active_lease is None

    def is_stranded(self) -> bool:
        """Whether it has to move to other GPUs and its memory cannot: saving it would only delay
        the end of its process.
        """
        return self.assignment.must_change_gpus and bool(self.memory.used_mib)

    def log_fields(self) -> dict[str, str]:
        """Identifies it in a line of the log."""
        if self.lease is None:
            return {"kernel": self.kernel_id}
        return {
            "kernel": self.kernel_id,
            "lease": self.lease.id,
            "workload": self.lease.workload,
            "project": self.lease.project,
            "user": self.lease.user,
        }

    # ---- changes that concern several sub-records ------------------------------------------------

    def process_started(self, now: int, *, relaunched: bool) -> None:
        """A new process: nothing that happened to an older one counts for it."""
        self.process.started(now, relaunched=relaunched and self.lease is not None)
        self.gate = self.gate.process_started(now)
        self.assignment.process_started()
        self.memory = self.memory.process_started()
        self.background = BackgroundWork()
        self.preferences.suspended_by_user = False
        self.notice = ReclaimNotice()

    def process_exited(self, now: int) -> None:
        """The process is gone."""
        self.process.exited(now)
        self.gate.process_exited()
        self.assignment.process_exited()
        self.memory.process_exited()
        self.notice = ReclaimNotice()

    def park(self) -> None:
        """The lease is over, others have their turn: the memory stays until the room is needed."""
        parked = self.assignment.parks()
        self.drop_lease()
        self.assignment = parked

    @property
    def is_parked(self) -> bool:
        """Whether it gave way to others, and its memory may still be on its GPU."""
        return self.assignment.parked and self.lease is None and self.wants_gpu()

    def drop_lease(self) -> None:
        """The lease is over; the kernel, and its saved memory, stay."""
        self.assignment = self.assignment.without_lease()
        self.turn.over()
        self.notice = ReclaimNotice()
        self.residence = Residence()
        self.memory.bursting = False


def have_same_user(one: KernelRecord, other: KernelRecord) -> bool:
    """Whether the scheduler knows both as workloads of one person."""
    if one.lease is None or other.lease is None:
        return False
    return bool(one.lease.user) and one.lease.user == other.lease.user
