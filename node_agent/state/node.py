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
    Event,
    EventKind,
    FromAgent,
    Kernel,
    KernelDevice,
    KernelEvent,
    KernelReported,
    KernelRuntime,
    KernelUpdate,
    LeaseChanged,
    LeaseEvent,
    LeaseReleased,
    NodeRules,
    NotebookMessage,
    TiersFound,
    ToKernel,
    ToServer,
    stamp,
)
from jupyter_gpushare.simnode import now_ms

from ..devices.base.protocols import Devices
from .draining import Draining
from .event_text import EventText
from .kernel_record import KernelRecord
from .kernel_view import NodeFacts, kernel_runtime, kernel_view, lease_report
from .usage_outbox import UsageOutbox
from .wall_clock import wall_ms

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

    def public_dir(self) -> Path:
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
        self.kernels: dict[str, KernelRecord] = {}
        self.ends: dict[str, LeaseReleased] = {}
        """Let-go's that the scheduler has not acknowledged yet, by lease."""
        self.usage_outbox = UsageOutbox()
        """GPU time that the scheduler has not acknowledged yet."""
        self.planned = False
        """Whether the scheduler has told its plan since this agent started."""
        self.used: dict[int, int] = {}
        self.draining = Draining(config.drain_ms)
        self.foreign: dict[int, int] = {}
        """MiB per GPU that processes hold which are no kernel's of ours: not offered to anybody."""
        self.text = EventText(devices.traits.label)
        self._tiers = devices.capabilities()
        self.durations: dict[Timed, list[int]] = {"gate_wait": [], "suspend": [], "resume": []}
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

    def open_kernel(self, kernel_id: str) -> KernelRecord:
        """The record of a kernel, created if there is none."""
        found = self.kernels.get(kernel_id)
        if found is None:
            found = self.kernels[kernel_id] = KernelRecord(kernel_id)
            found.process.launched_at = found.gate.idle_since = self.clock()
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
                kernel
                for kernel in self.kernels.values()
                if kernel.lease is not None and kernel.lease.id == lease
            ),
            None,
        )

    def notice_ms(self) -> int:
        """How long borrowers who run are warned."""
        return self.rules.notice_ms if self.config.notice_ms is None else self.config.notice_ms

    def view(self, kernel: KernelRecord) -> Kernel:
        """The kernel as its user sees it."""
        return kernel_view(kernel, self._facts())

    def runtime(self, kernel: KernelRecord) -> KernelRuntime:
        """The agent's part of the kernel."""
        return kernel_runtime(kernel, self._facts())

    def _facts(self) -> NodeFacts:
        return NodeFacts(
            self.config.node, self.devices.traits.simulated, self.uuids, dict(self.totals)
        )

    # ---- telling ---------------------------------------------------------------------------------

    def happened(
        self, kernel: KernelRecord, kind: EventKind, message: str, *, tell: bool = False
    ) -> None:
        """An event of one kernel: into its book, to its server, to the scheduler; `tell`: also into
        the notebook.
        """
        made = Event(time=stamp(wall_ms()), kind=kind, message=message)
        kernel.published.events.append(made)
        log.info("kernel %s: %s: %s", kernel.kernel_id, kind, message, extra=kernel.log_fields())
        self.ports.to_server(
            kernel.registration.server, KernelEvent(kernel_id=kernel.kernel_id, event=made)
        )
        if kernel.lease is not None:
            self.ports.to_scheduler(LeaseEvent(lease=kernel.lease.id, event=made))
        if tell:
            self.tell(kernel, message)

    def tell(self, kernel: KernelRecord, message: str) -> None:
        """Show it once in the notebook; kept until its kernel is connected."""
        if not self.ports.to_kernel(kernel.kernel_id, NotebookMessage(message=message)):
            kernel.published.keep_message(message)
            self.dirty = True

    def publish(self, *, memory_too: bool = True) -> None:
        """Tell servers, kernels and the scheduler what changed since they were last told."""
        now = self.clock()
        for kernel in self.kernels.values():
            self._publish_kernel(kernel, now, memory_too)
            self._publish_lease(kernel, now)
        self._publish_tiers()

    def _publish_tiers(self) -> None:
        found = self.devices.capabilities()
        if found != self._tiers:
            self._tiers = found
            self.ports.to_servers(TiersFound(tiers=found.tiers, tier_problems=found.problems))

    def _publish_kernel(self, kernel: KernelRecord, now: int, memory_too: bool) -> None:
        key = (
            kernel.memory.usage,
            kernel.lease,
            kernel.assignment.assigned_gpus,
            kernel.assignment.current_gpus,
            bool(kernel.gate.running),
            kernel.gate.text,
            kernel.notice.deadline,
            kernel.assignment.generation,
            kernel.memory.transit,
            kernel.preferences.pinned,
            kernel.published.events[-1] if kernel.published.events else None,
            kernel.outlook,
            kernel.idle.stamp,
            kernel.process.killing,
            kernel.assignment.attached,
            kernel.assignment.lease_revoked,
            kernel.process.main,
            kernel.memory.utilization,
        )
        if key == kernel.published.key:
            return
        if (
            kernel.published.key is not None
            and key[1:] == kernel.published.key[1:]
            and (not memory_too or now - kernel.published.sent_at < MEMORY_EVERY_MS)
        ):
            return
        kernel.published.key, kernel.published.sent_at = key, now
        seen = self.view(kernel)
        self.ports.to_server(
            kernel.registration.server, KernelReported(kernel=self.runtime(kernel))
        )
        cap = kernel.memory.caps[0][1] if kernel.memory.caps else 0
        kernel.published.devices = self._devices_of(kernel)
        self.ports.to_kernel(
            kernel.kernel_id,
            KernelUpdate(kernel=seen, cap_mib=cap, devices=list(kernel.published.devices)),
        )

    def unsavable(self, kernel: KernelRecord, now: int) -> str:
        """Why its memory cannot be saved and come back, as far as is known before trying; "" when
        it can.
        """
        if kernel.is_stranded():
            return "this machine cannot move GPU memory to another GPU"
        if now < kernel.memory.no_suspend_until:
            return kernel.memory.no_suspend_reason
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
        for kernel in self.kernels.values():
            devices = self._devices_of(kernel)
            if devices and devices != kernel.published.devices:
                kernel.published.devices = devices
                seen = self.view(kernel)
                self.ports.to_kernel(
                    kernel.kernel_id,
                    KernelUpdate(kernel=seen, cap_mib=devices[0].cap_mib, devices=list(devices)),
                )

    def _devices_of(self, kernel: KernelRecord) -> tuple[KernelDevice, ...]:
        """Nothing while its memory is away or on its way: whoever asks the driver anything then
        waits until it is back.
        """
        if (
            not self.devices.traits.kernels_select_devices
            or not kernel.assignment.attached
            or kernel.memory.transit is not None
            or kernel.memory.suspended
            or kernel.process.killing
        ):
            return ()
        caps = kernel.memory.caps or ()
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

    def _publish_lease(self, kernel: KernelRecord, now: int) -> None:
        if kernel.lease is None:
            return
        made = lease_report(kernel, self.uuids, now)
        last = kernel.published.report
        if made == last:
            return
        same = last is not None and (made.lease, made.state, made.gpu_uuids, made.generation) == (
            last.lease,
            last.state,
            last.gpu_uuids,
            last.generation,
        )
        if same and now - kernel.published.reported_at < REPORT_EVERY_MS:
            return
        if self.ports.to_scheduler(LeaseChanged(report=made)):
            kernel.published.report, kernel.published.reported_at = made, now

    def forget_reports(self) -> None:
        """The scheduler's link is new: everything has to be said again."""
        for kernel in self.kernels.values():
            kernel.published.report = None

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
