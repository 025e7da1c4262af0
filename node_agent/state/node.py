"""The state of one node while its agent runs: its kernels, rules, devices and ports.

Everything that decides or acts gets this object; it decides nothing itself. All of it is used in
one event loop.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal

from jupyter_gpushare.core.model.node_conditions import NodeCondition
from jupyter_gpushare.kernel.simnode import now_ms
from jupyter_gpushare.messages import (
    Event,
    EventKind,
    Kernel,
    KernelEvent,
    KernelOwner,
    KernelRuntime,
    LeaseEvent,
    LeaseReleased,
    NodeRules,
    NotebookMessage,
    stamp,
)

from ..devices.base.protocols import Devices
from ..system.process_owner import ProcessOwner
from .config import AgentConfig, AgentPorts
from .draining import Draining
from .event_text import EventText
from .kernel_record import KernelRecord
from .kernel_view import NodeFacts, kernel_owner, kernel_runtime, kernel_view
from .residence import Rotations
from .usage_outbox import UsageOutbox
from .wall_clock import wall_ms

__all__ = ["AgentConfig", "AgentPorts", "NodeRuntime", "log"]

log = logging.getLogger("gpushare.agent")

COPY_SAMPLE_MIB: Final = 1024
Timed = Literal["gate_wait", "suspend", "resume"]


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
        self.unacknowledged: dict[str, LeaseReleased] = {}
        """Released leases that the scheduler has not acknowledged yet, by lease."""
        self.usage_outbox = UsageOutbox()
        """GPU time that the scheduler has not acknowledged yet."""
        self.has_plan = False
        """Whether the scheduler has sent its plan since this agent started."""
        self.used: dict[int, int] = {}
        """MiB per GPU that kernels hold."""
        self.foreign: dict[int, int] = {}
        """MiB per GPU that other processes hold: not available to kernels."""
        self.draining = Draining(config.drain_ms)
        self.rotations = Rotations()
        self.text = EventText(devices.traits.label)
        self.durations: dict[Timed, list[int]] = {"gate_wait": [], "suspend": [], "resume": []}
        """How long (ms) these took since the last report of usage."""
        self.copy_mib_per_ms = 10.0
        """How fast memory was copied lately; at first about what PCIe 4 does."""
        self.reclaims: Counter[str] = Counter()
        """How often each rung of the reclaim ladder was used for another workload since the last
        report. What a kernel's own user asked for does not count.
        """
        self.pressed: dict[NodeCondition, int] = {}
        """Why this machine takes no new work, and when (ms) that was measured last."""
        self.dirty = True
        """Something that the journal keeps has changed."""
        self.wake: Callable[[], None] = lambda: None

    # ---- kernels and devices ---------------------------------------------------------------------

    def open_kernel(self, kernel_id: str) -> KernelRecord:
        """The record of a kernel, created if there is none."""
        found = self.kernels.get(kernel_id)
        if found is None:
            found = self.kernels[kernel_id] = KernelRecord(kernel_id)
            found.process.launched_at = found.gate.idle_since = self.clock()
            self.dirty = True
        return found

    def belongs_to(self, kernel: KernelRecord, owner: ProcessOwner) -> bool:
        """Whether it is this owner's kernel."""
        return owner == (kernel.registration.owner or self.config.tenancy.default_owner())

    def kernel_of(self, lease: str) -> KernelRecord | None:
        """The kernel or command that has this lease."""
        for kernel in self.kernels.values():
            if kernel.lease is not None and kernel.lease.id == lease:
                return kernel
        return None

    def available(self) -> dict[int, int]:
        """MiB per GPU that kernels can have: all but what other processes hold."""
        return {gpu: max(0, total - self.foreign.get(gpu, 0)) for gpu, total in self.totals.items()}

    def healthy_gpus(self) -> set[int]:
        """GPUs that may be assigned."""
        return {device.index for device in self.devices.reports() if device.healthy}

    def binds_processes(self) -> bool:
        """Whether a process stays on the GPUs that it chose first: the driver cannot move its
        memory to others.
        """
        return "relocate" not in self.devices.capabilities().tiers

    def caps_are_advice(self) -> bool:
        """Whether only the kernels themselves keep their caps: the driver does not enforce them."""
        return "limit" not in self.devices.capabilities().tiers

    def notice_ms(self) -> int:
        """How long running borrowers are warned."""
        return self.rules.notice_ms if self.config.notice_ms is None else self.config.notice_ms

    def suspend_problem(self, kernel: KernelRecord, now: int) -> str:
        """Why its memory cannot be saved and restored, as far as known; "" if it can."""
        if kernel.is_stranded():
            return "this node cannot move GPU memory to another GPU"
        if not kernel.memory.can_suspend(now):
            return kernel.memory.no_suspend_reason
        return self.missing_suspend()

    def missing_suspend(self) -> str:
        """Why this node cannot suspend kernels; "" if it can."""
        tiers, problems = self.devices.capabilities()
        if "suspend" in tiers:
            return ""
        return problems.get("suspend", "this node cannot save GPU memory").partition(";")[0]

    def copied(self, mib: int, took_ms: int) -> None:
        """A copy is complete. Small ones say nothing about the speed."""
        if mib >= COPY_SAMPLE_MIB:
            self.copy_mib_per_ms += (mib / max(1, took_ms) - self.copy_mib_per_ms) / 4

    def view(self, kernel: KernelRecord) -> Kernel:
        """The kernel as its user sees it."""
        return kernel_view(kernel, self._facts())

    def runtime(self, kernel: KernelRecord) -> KernelRuntime:
        """The agent's part of the kernel."""
        return kernel_runtime(kernel, self._facts())

    def _facts(self) -> NodeFacts:
        return NodeFacts(
            self.config.node,
            self.devices.traits.simulated,
            self.uuids,
            dict(self.totals),
            self.clock(),
            self.text,
        )

    def registered(self) -> list[KernelRecord]:
        """Kernels that a Jupyter server has registered."""
        return [one for one in self.kernels.values() if one.registration.registered]

    def owner(self, kernel: KernelRecord) -> KernelOwner:
        """Whose kernel it is, for the scheduler."""
        return kernel_owner(kernel, unix_names=self.config.tenancy.has_unix_names)

    # ---- events ----------------------------------------------------------------------------------

    def record_event(
        self, kernel: KernelRecord, kind: EventKind, message: str, *, notify: bool = False
    ) -> None:
        """Record an event of one kernel and send it to its server and the scheduler; `notify`: show
        it in the notebook as well.
        """
        made = Event(time=stamp(wall_ms()), kind=kind, message=message)
        kernel.published.events.append(made)
        log.info("kernel %s: %s: %s", kernel.kernel_id, kind, message, extra=kernel.log_fields())
        body = KernelEvent(kernel_id=kernel.kernel_id, event=made)
        self.ports.to_server(kernel.registration.server, body)
        if kernel.lease is not None:
            self.ports.to_scheduler(LeaseEvent(lease=kernel.lease.id, event=made))
        if notify:
            self.notify(kernel, message)

    def notify(self, kernel: KernelRecord, message: str) -> None:
        """Show it once in the notebook; kept until its kernel is connected."""
        if not self.ports.to_kernel(kernel.kernel_id, NotebookMessage(message=message)):
            kernel.published.keep_message(message)
            self.dirty = True

    def release_lease(
        self,
        lease: str,
        *,
        ended: bool,
        message: str,
        held: bool = False,
        exit_code: int | None = None,
    ) -> None:
        """Report that a lease holds nothing any more; repeated until it is acknowledged."""
        body = LeaseReleased(
            lease=lease, ended=ended, message=message, held=held, exit_code=exit_code
        )
        self.unacknowledged[lease] = body
        self.dirty = True
        self.ports.to_scheduler(body)
