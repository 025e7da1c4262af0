"""One node while its agent runs: the books, the rules, the devices, and the three ways out
(kernels, servers, scheduler).

Everything that decides or acts gets this object; it decides nothing itself. All of it lives in one
event loop.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from jupyter_gpushare.core.model.node_conditions import NodeCondition
from jupyter_gpushare.messages import (
    EventKind,
    FromAgent,
    KernelDevice,
    KernelEvent,
    KernelReported,
    KernelUpdate,
    LeaseChanged,
    LeaseEvent,
    LeaseReleased,
    NodeRules,
    NotebookMessage,
    TiersFound,
    ToKernel,
    ToServer,
)
from jupyter_gpushare.simnode import now_ms

from ..devices.base.protocols import Devices
from .draining import Draining
from .event_text import EventText
from .kernel_record import KernelRecord, about, event, is_stranded, report, view
from .usage_outbox import UsageOutbox

__all__ = ["AgentConfig", "NodeRuntime", "AgentPorts", "log"]

log = logging.getLogger("gpushare.agent")

Timed = Literal["gate_wait", "suspend", "resume"]
PUBLIC = Path("/run/gpushare")
"""Where the socket is when it is for everybody."""
MEMORY_EVERY_MS = 250
"""Changes of memory alone are told to people this often: a loop that allocates is not a flood of
messages.
"""
REPORT_EVERY_MS = 1000


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Of one agent. Times in ms. `host_memory_mib`: how much may be saved in host memory in all
    (None: no bound); `host_reserve_mib`: what that must leave of the machine's memory (None: a
    twentieth).
    """

    node: str
    state_dir: Path
    socket: Path | None = None
    grace_ms: int = 7_000
    kill_after_ms: int = 250
    drain_ms: int = 10_000
    notice_ms: int | None = None
    min_notice_ms: int = 5_000
    host_memory_mib: int | None = None
    host_reserve_mib: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_mib: int = 0
    users: Literal["own", "all"] = "own"
    """Whose kernels and Jupyter servers are served: those of the agent's own user, or of every unix
    user of the machine (needs root).
    """
    run_commands: Literal["own", "users", "off"] = "own"
    """Whose commands (batch work) run here: those of the agent's own user, as everybody's own unix
    user (needs root), or nobody's.
    """

    def socket_path(self) -> Path:
        """Where kernels and servers connect."""
        return self.socket or (PUBLIC if self.users == "all" else self.state_dir) / "agent.sock"

    def doors(self) -> Path:
        """The folder with what kernels and servers must reach: for all users beside the socket, for
        the state directory is closed to them.
        """
        return self.socket_path().parent if self.users == "all" else self.state_dir


class AgentPorts(Protocol):
    """The ways out. Sending never waits and never fails: what cannot be delivered is dropped, and
    said again when the peer is back.
    """

    def to_kernel(self, kernel_id: str, body: ToKernel) -> bool:
        """False when the kernel is not connected."""

    def to_server(self, server: str, body: ToServer) -> bool:
        """False when that server is not connected."""

    def to_servers(self, body: ToServer) -> None:
        """To every server that is connected, whoever's it is."""

    def to_scheduler(self, body: FromAgent) -> bool:
        """False when the link is down."""


class NodeRuntime:
    """The state of one agent."""

    def __init__(
        self,
        config: AgentConfig,
        devices: Devices,
        ports: AgentPorts,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.config, self.devices, self.ports, self.clock = config, devices, ports, clock
        reports = devices.reports()
        self.uuids = [device.uuid for device in reports]
        self.totals = {device.index: device.total_mib for device in reports}
        self.rules = NodeRules()
        self.books: dict[str, KernelRecord] = {}
        self.ends: dict[str, LeaseReleased] = {}
        """Let-go's that the scheduler has not acknowledged yet, by lease."""
        self.tally = UsageOutbox()
        """GPU time that the scheduler has not acknowledged yet."""
        self.planned = False
        """Whether the scheduler has told its plan since this agent started."""
        self.used: dict[int, int] = {}
        self.draining = Draining(config.drain_ms)
        self.foreign: dict[int, int] = {}
        """MiB per GPU that processes hold which are no kernel's of ours: not offered to anybody."""
        self.story = EventText(devices.traits.label)
        self._tiers = devices.capabilities()
        self.took: dict[Timed, list[int]] = {"gate_wait": [], "suspend": [], "resume": []}
        """How long (ms) these took since the last report of usage."""
        self.rungs: Counter[str] = Counter()
        """How often each rung of the ladder was used for somebody else since then. What a kernel's
        owner wanted themselves is none.
        """
        self.pressed: dict[NodeCondition, int] = {}
        """Why this machine takes nothing new, and when (ms) that was so last."""
        self.dirty = True
        """Something that the journal keeps has changed."""
        self.wake: Callable[[], None] = lambda: None

    def book(self, kernel_id: str) -> KernelRecord:
        """The book of a kernel, opened if there is none."""
        found = self.books.get(kernel_id)
        if found is None:
            found = self.books[kernel_id] = KernelRecord(
                kernel_id, idle_since=self.clock(), launched_at=self.clock()
            )
            self.dirty = True
        return found

    def offered(self) -> dict[int, int]:
        """MiB per GPU that kernels can have: all of it but what strangers hold."""
        return {gpu: max(0, total - self.foreign.get(gpu, 0)) for gpu, total in self.totals.items()}

    def binds(self) -> bool:
        """Whether a process stays on the GPUs that it chose first: the driver cannot move its
        memory to others.
        """
        return "relocate" not in self.devices.capabilities().tiers

    def caps_are_advice(self) -> bool:
        """Whether only the kernels themselves keep their caps: the driver does not enforce them."""
        return "limit" not in self.devices.capabilities().tiers

    def holder(self, lease: str) -> KernelRecord | None:
        """The book that has this lease."""
        return next(
            (
                book
                for book in self.books.values()
                if book.lease is not None and book.lease.id == lease
            ),
            None,
        )

    def notice_ms(self) -> int:
        """How long borrowers who run are warned."""
        return self.rules.notice_ms if self.config.notice_ms is None else self.config.notice_ms

    # ---- telling ---------------------------------------------------------------------------------

    def happened(
        self, book: KernelRecord, kind: EventKind, message: str, *, tell: bool = False
    ) -> None:
        """An event of one kernel: into its book, to its server, to the scheduler; `tell`: also into
        the notebook.
        """
        made = event(kind, message)
        book.events.append(made)
        log.info("kernel %s: %s: %s", book.kernel_id, kind, message, extra=about(book))
        self.ports.to_server(book.server, KernelEvent(kernel_id=book.kernel_id, event=made))
        if book.lease is not None:
            self.ports.to_scheduler(LeaseEvent(lease=book.lease.id, event=made))
        if tell:
            self.tell(book, message)

    def tell(self, book: KernelRecord, message: str) -> None:
        """Show it once in the notebook; kept until its kernel is connected."""
        if not self.ports.to_kernel(book.kernel_id, NotebookMessage(message=message)):
            book.told.append(message)
            del book.told[:-10]
            self.dirty = True

    def publish(self, *, memory_too: bool = True) -> None:
        """Tell servers, kernels and the scheduler what changed since they were last told."""
        now = self.clock()
        for book in self.books.values():
            self._publish_kernel(book, now, memory_too)
            self._publish_lease(book, now)
        self._publish_tiers()

    def _publish_tiers(self) -> None:
        found = self.devices.capabilities()
        if found != self._tiers:
            self._tiers = found
            self.ports.to_servers(TiersFound(tiers=found.tiers, tier_problems=found.problems))

    def _publish_kernel(self, book: KernelRecord, now: int, memory_too: bool) -> None:
        key = (
            book.holding,
            book.lease,
            book.home,
            book.site,
            bool(book.cells),
            _told(book),
            book.notice,
            book.generation,
            book.transit,
            book.pinned,
            book.events[-1] if book.events else None,
            book.outlook,
            book.rest.stamp,
            book.killing,
            book.attached,
            book.unwanted,
            book.main,
            book.utilization,
        )
        if key == book.last_key:
            return
        if (
            book.last_key is not None
            and key[1:] == book.last_key[1:]
            and (not memory_too or now - book.last_sent < MEMORY_EVERY_MS)
        ):
            return
        book.last_key, book.last_sent = key, now
        seen = view(book, self.config.node, self.uuids, self.totals, self.devices.traits.simulated)
        self.ports.to_server(book.server, KernelReported(kernel=seen))
        cap = book.last_caps[0][1] if book.last_caps else 0
        book.last_devices = self._devices_of(book)
        self.ports.to_kernel(
            book.kernel_id, KernelUpdate(kernel=seen, cap_mib=cap, devices=list(book.last_devices))
        )

    def unsavable(self, book: KernelRecord, now: int) -> str:
        """Why its memory cannot be saved and come back, as far as is known before trying; "" when
        it can.
        """
        if is_stranded(book):
            return "this machine cannot move GPU memory to another GPU"
        if now < book.no_suspend_until:
            return book.no_suspend_why
        tiers, problems = self.devices.capabilities()
        return (
            ""
            if "suspend" in tiers
            else problems.get("suspend", "this node cannot save GPU memory").partition(";")[0]
        )

    def push_caps(self) -> None:
        """Send kernels that keep their caps themselves the caps that changed, before a cell that
        depends on them is released.
        """
        for book in self.books.values():
            devices = self._devices_of(book)
            if devices and devices != book.last_devices:
                book.last_devices = devices
                seen = view(
                    book, self.config.node, self.uuids, self.totals, self.devices.traits.simulated
                )
                self.ports.to_kernel(
                    book.kernel_id,
                    KernelUpdate(kernel=seen, cap_mib=devices[0].cap_mib, devices=list(devices)),
                )

    def _devices_of(self, book: KernelRecord) -> tuple[KernelDevice, ...]:
        """Nothing while its memory is away or on its way: whoever asks the driver anything then
        waits until it is back.
        """
        if (
            not self.devices.traits.kernels_select_devices
            or not book.attached
            or book.transit is not None
            or book.holding.suspended
            or book.killing
        ):
            return ()
        caps = book.last_caps or ()
        own = [self.uuids[gpu] for gpu, _ in caps]
        others = (
            [uuid for uuid in self.uuids if uuid not in own]
            if "relocate" in self.devices.capabilities().tiers
            else []
        )
        visible = ",".join(own + others)
        return tuple(
            KernelDevice(
                uuid=self.uuids[gpu], cap_mib=cap, total_mib=self.totals[gpu], visible=visible
            )
            for gpu, cap in caps
        )

    def _publish_lease(self, book: KernelRecord, now: int) -> None:
        if book.lease is None:
            return
        made = report(book, self.uuids, now)
        last = book.last_report
        if made == last:
            return
        same = last is not None and (made.lease, made.state, made.gpu_uuids, made.generation) == (
            last.lease,
            last.state,
            last.gpu_uuids,
            last.generation,
        )
        if same and now - book.reported_at < REPORT_EVERY_MS:
            return
        if self.ports.to_scheduler(LeaseChanged(report=made)):
            book.last_report, book.reported_at = made, now

    def forget_reports(self) -> None:
        """The scheduler's link is new: everything has to be said again."""
        for book in self.books.values():
            book.last_report = None

    def let_go(
        self,
        lease: str,
        *,
        ended: bool,
        message: str,
        held: bool = False,
        exit_code: int | None = None,
    ) -> None:
        """Say that a lease holds nothing any more, and keep saying it until it is acknowledged."""
        body = LeaseReleased(
            lease=lease, ended=ended, message=message, held=held, exit_code=exit_code
        )
        self.ends[lease] = body
        self.dirty = True
        self.ports.to_scheduler(body)


def _told(book: KernelRecord) -> str | None:
    """What the cell at the gate was told last."""
    return book.question.told if book.question else None
