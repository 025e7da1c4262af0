"""What the agent remembers of every kernel and lease, and how that looks to the pure files and to
people. Changes nothing by itself.

A book is kept per kernel; a lease of a workload that is no kernel gets a book under the lease's own
id, with no process. Times are monotonic ms; only events carry wall-clock stamps, because people
read them.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

from jupyter_gpushare.messages import (
    Event,
    EventKind,
    Kernel,
    KernelDevice,
    KernelRequestState,
    KernelState,
    LeaseBody,
    LeaseReport,
    MemoryMib,
    Share,
    stamp,
)

from ..devices.base.model import TenantMemory
from ..policy.idleness import Step
from ..policy.placement import PlacedTenant
from ..policy.snapshot import Tenant
from ..system.processes import ProcessId, WatchedProcess

__all__ = [
    "EVENTS_KEPT",
    "UNGATED_MS",
    "KernelRecord",
    "GateRequest",
    "IdleState",
    "about",
    "event",
    "is_stranded",
    "lodger",
    "occupant",
    "report",
    "state_of",
    "view",
    "wall_ms",
]

EVENTS_KEPT: Final = 100
UNGATED_MS: Final = 15_000
"""A kernel of our language that has not connected after this time has no gate: it counts as always
running.
"""


@dataclass(frozen=True, slots=True)
class GateRequest:
    """A cell that waits at the gate: its number, since when, and the last sentence it was told."""

    n: int
    since: int
    told: str = ""


@dataclass(slots=True)
class IdleState:
    """Where the idle rule is with one kernel. `since`: its last work; `done`, `told`, `deadline`:
    as in `idleness.Idle`.

    `holder`: the lease that was seen last; `busy_ms`: the GPU time that was seen last; `lease`:
    what the rule gave back.
    """

    since: int = 0
    done: Step | Literal[""] = ""
    told: Step | Literal[""] = ""
    deadline: int | None = None
    stamp: str | None = None
    giving_back: bool = False
    holder: str = ""
    busy_ms: int = 0
    lease: LeaseBody | None = None
    asked: int = -1_000_000


@dataclass(slots=True)
class KernelRecord:
    """One kernel. Which of its facts belong together: who it is, its process, its gate, its lease,
    its memory, what people were told.
    """

    kernel_id: str
    name: str = ""
    user: str = ""
    language: str = "python"
    wants_gpu: bool = False
    registered: bool = False

    uid: int | None = None
    """Whose it is: the unix user whose Jupyter server registered it. None: nobody has, so far."""
    server: str = ""
    token: str = ""
    """SHA-256 of the kernel's token; the token itself is only in its file."""
    launch: str = ""
    """Marks the processes of one launch: what is left of an older one must not be mixed up with the
    new kernel.
    """
    leaf: str = ""
    """The cgroup of this launch, where kernels have one."""
    main: ProcessId | None = None
    watch: WatchedProcess | None = None
    launched_at: int = 0
    gone_at: int | None = None
    """Since when it has no process (or its lease has no kernel); None while it lives or was never
    launched by anyone.
    """
    ending: bool = False
    starting: bool = False
    """Its server said that it is about to launch it."""

    connected: bool = False
    ever_connected: bool = False
    cells: set[int] = field(default_factory=set)
    """Numbers of the questions that were let go and have not ended."""
    unsure_until: int = 0
    """After an agent's restart: until then a cell may be running of which we do not know."""
    question: GateRequest | None = None
    gave_up: bool = False
    idle_since: int = 0
    outlook: KernelRequestState | None = None

    lease: LeaseBody | None = None
    home: tuple[int, ...] = ()
    site: tuple[int, ...] = ()
    """Where it is attached: its home, or its old place while it still holds memory there."""
    attached: bool = False
    bound: tuple[int, ...] = ()
    """The GPUs that its process has settled on, where the driver cannot move memory to others:
    until it is restarted it knows no other.
    """
    entering: int | None = None
    entered: bool = False
    """Its place was made free for it once: all that a kernel without a gate ever gets."""
    stalled: int | None = None
    unwanted: bool = False
    pinned: bool = False
    held_back: bool = False
    """Suspended by its owner's word: comes back at its next cell, not by itself."""

    holding: TenantMemory = field(default_factory=TenantMemory)
    utilization: float | None = None
    """Share of the last second in which its processes ran on the GPU; None: not known, or without a
    GPU.
    """
    transit: Literal["out", "in"] | None = None
    copying_since: int = 0
    """When the copy under way began."""
    promised: int = 0
    """Host memory (MiB) that its copy under way was granted; 0 as soon as the image itself is
    counted.
    """
    no_suspend_until: int = 0
    no_suspend_why: str = ""
    no_resume_until: int = 0
    heard: int = 0
    """When its interpreter last said that it is alive; 0: never (an older kernel, or a simulated
    GPU).
    """
    quiet_since: int | None = None
    frozen: int | None = None
    """Since when its interpreter stands still, because its memory is away."""
    caches: int | None = None
    notice: int | None = None
    notice_stamp: str | None = None
    burst: bool = False
    unrestorable: str = ""
    resumed: str = ""
    """What the last resume was, for the cell that it let go."""
    killing: bool = False
    relaunched: bool = False
    """Its next attachment is that of a new process that follows an old one."""

    rest: IdleState = field(default_factory=IdleState)

    generation: int = 0
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    told: list[str] = field(default_factory=list)
    last_key: tuple[object, ...] | None = None
    last_sent: int = 0
    reported_at: int = 0
    last_report: LeaseReport | None = None
    last_caps: tuple[tuple[int, int], ...] | None = None
    last_devices: tuple[KernelDevice, ...] = ()
    """What its frameworks were told to hold at most."""

    @property
    def is_command(self) -> bool:
        """Whether it is batch work: the agent itself runs it."""
        return self.lease is not None and self.lease.command is not None

    @property
    def is_here(self) -> bool:
        """Whether somebody is here to be attached: a process, or a command that has yet to begin."""
        return self.main is not None or (self.is_command and self.gone_at is None)

    def has_gate(self, now: int) -> bool:
        """Whether its cells ask before they run; a kernel that is still starting is believed to."""
        if self.language.lower() != "python":
            return False
        return self.ever_connected or now - self.launched_at < UNGATED_MS

    def computes(self, now: int) -> bool:
        """Whether a cell runs that we know of; a kernel without a gate may compute at any time."""
        return bool(self.cells) or (self.main is not None and not self.has_gate(now))

    def is_running(self, now: int) -> bool:
        """Whether a cell runs, or may run for all we know."""
        return self.computes(now) or now < self.unsure_until

    def asks(self) -> bool:
        """Whether it asked for a GPU: its cells wait for the lease, also while the scheduler's
        grant is on its way to us.
        """
        if self.outlook is None:
            return self.wants_gpu
        return self.outlook.pending or self.outlook.request != Share()

    def held(self) -> int:
        """MiB on GPUs."""
        return sum(self.holding.held.values())

    def image(self) -> int:
        """MiB in host memory."""
        return sum(self.holding.image)


def wall_ms() -> int:
    """Wall-clock ms, for stamps only."""
    return time.time_ns() // 1_000_000


def event(kind: EventKind, message: str) -> Event:
    """An event of now."""
    return Event(time=stamp(wall_ms()), kind=kind, message=message)


def about(book: KernelRecord) -> dict[str, str]:
    """Whose this is, for a line of the log."""
    if book.lease is None:
        return {"kernel": book.kernel_id}
    lease = book.lease
    return {
        "kernel": book.kernel_id,
        "lease": lease.id,
        "workload": lease.workload,
        "project": lease.project,
        "user": lease.user,
    }


def occupant(book: KernelRecord, now: int, notice_ms: int, least_ms: int) -> Tenant:
    """A book as the ladder sees it. Nobody is warned for less than `least_ms`."""
    lease, away = book.lease, not book.home
    return Tenant(
        id=book.kernel_id,
        guarantee=lease.request_mib if lease else 0,
        limit=lease.limit_mib if lease else 0,
        home=() if book.unwanted or lease is None else book.home,
        held=book.holding.held,
        image=book.holding.image,
        running=book.is_running(now) and not book.killing,
        suspended=book.holding.suspended,
        suspendable=now >= book.no_suspend_until and not is_stranded(book),
        pinned=book.pinned,
        transit="out" if book.killing else book.transit,
        wants_since=None if away else _wants_since(book),
        evict=lease is not None and lease.wanted == "evict",
        gives_up=book.unwanted or (lease is None and bool(book.holding.held)),
        caches=book.caches,
        has_caches=book.connected,
        notice=book.notice,
        notice_ms=max(least_ms, lease.notice_ms)
        if lease and lease.wanted == "evict"
        else max(least_ms, notice_ms),
        idle_since=book.idle_since,
    )


def is_stranded(book: KernelRecord) -> bool:
    """Whether it has to leave its GPU for another and its memory cannot: saving it would only put
    off the end of its process.
    """
    return bool(book.bound and book.home and set(book.bound) != set(book.home) and book.held())


def _wants_since(book: KernelRecord) -> int | None:
    """Since when it asks for its place: the earliest of the cell at the gate, the cell that stands
    still, the lease that moves in, the interpreter that stands still.
    """
    since = [
        t
        for t in (
            book.question.since if book.question else None,
            book.stalled,
            book.entering,
            book.frozen,
        )
        if t is not None
    ]
    return min(since, default=None)


def lodger(book: KernelRecord, now: int) -> PlacedTenant:
    """A book as placement sees it."""
    assert book.lease is not None
    share = book.lease.request_mib * len(book.home)
    return PlacedTenant(
        book.kernel_id,
        book.lease.request_mib,
        book.home,
        tuple(book.lease.planned_gpus),
        book.held(),
        book.is_running(now),
        book.held() > share,
        now >= book.no_suspend_until and not book.bound,
    )


def state_of(book: KernelRecord) -> KernelState:
    """The state that people see."""
    if book.lease is None or book.unwanted:
        return "pending" if book.asks() else "detached"
    if book.lease.wanted == "evict" or book.killing:
        return "reclaiming"
    if book.holding.suspended or (book.transit == "out" and not book.holding.held):
        return "suspended"
    return "attached" if book.attached and book.main is not None else "granted"


def memory(book: KernelRecord) -> MemoryMib:
    """Guaranteed, used and borrowed, over all its devices."""
    guaranteed = (
        book.lease.request_mib * max(1, len(book.lease.planned_gpus))
        if book.lease and not book.unwanted
        else 0
    )
    used = book.held()
    return MemoryMib(guaranteed=guaranteed, used=used, borrowed=max(0, used - guaranteed))


def view(
    book: KernelRecord, node: str, uuids: list[str], totals: dict[int, int], simulated: bool
) -> Kernel:
    """The kernel as its owner sees it: the agent's part."""
    lease = None if book.unwanted else book.lease
    outlook = book.outlook
    gpu = (book.site or book.home) if lease and (book.attached or book.holding.suspended) else ()
    waits = lease is None and outlook is not None and outlook.pending
    return Kernel(
        kernel_id=book.kernel_id,
        name=book.name,
        state=state_of(book),
        project=lease.project if lease else outlook.project if outlook else None,
        request=lease.request if lease else outlook.request if outlook else Share(),
        limit=lease.limit if lease else outlook.limit if outlook else Share(),
        node=node,
        planned_gpu=", ".join(_called(uuids, node, index) for index in lease.planned_gpus)
        if lease
        else None,
        gpu_uuid=uuids[gpu[0]] if gpu else None,
        simulated=simulated,
        pinned=book.pinned,
        busy=bool(book.cells),
        cell_waits=(book.question.told or None) if book.question else None,
        memory_mib=memory(book),
        gpu_memory_total_mib=totals[gpu[0]] if gpu else 0,
        saved_mib=book.image(),
        reason=outlook.reason if waits and outlook else None,
        queue_position=outlook.position if waits and outlook else None,
        expected_wait=outlook.expected_wait if waits and outlook else None,
        notice_deadline=min(
            filter(
                None,
                (book.notice_stamp, book.rest.stamp, book.lease.ends_at if book.lease else None),
            ),
            default=None,
        ),
        generation=book.generation,
        workload=lease.workload if lease else None,
        utilization=book.utilization,
        events=list(book.events),
    )


def _called(uuids: list[str], node: str, index: int) -> str:
    """A plan may name a GPU that this node has lost."""
    return uuids[index] if index < len(uuids) else f"{node}/{index}"


def report(book: KernelRecord, uuids: list[str], now: int) -> LeaseReport:
    """The lease as the scheduler hears of it."""
    assert book.lease is not None
    gpu = book.site or book.home
    return LeaseReport(
        lease=book.lease.id,
        state=state_of(book),
        gpu_uuids=[uuids[g] for g in gpu] if book.attached or book.holding.suspended else [],
        memory_mib=memory(book),
        generation=book.generation,
        busy=book.is_running(now),
        utilization=book.utilization,
    )
