"""The first part of a step: reads the devices and notes in the records what is true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..devices.base.model import KernelProcesses, NodeReading, TenantMemory
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime, log
from ..system.processes import ProcessId
from .memory_mover import MemoryMover
from .watchdog import watch

__all__ = ["Observer"]

PROBLEM_MS: Final = 5_000
"""A problem of a GPU is noted again at every reading, and stays valid for so long for a kernel that
has left the GPU.
"""


class Observer:
    """Keeps the records of one node up to date with its devices."""

    def __init__(self, node: NodeRuntime, mover: MemoryMover) -> None:
        self._node, self._mover = node, mover
        self.taken: int | None = None
        """When the last reading was taken (monotonic ms); None: now."""
        self.lagging: dict[int, int] = {}
        """MiB per GPU that should be free but are not yet."""

    def observe(self, now: int) -> None:
        """Take one reading into the records. Raises DevicesBusy."""
        node = self._node
        kernels = node.kernels.values()
        node.devices.track_kernels({kernel.kernel_id: _processes(kernel) for kernel in kernels})
        reading = node.devices.read()
        self.taken = reading.taken
        self._add_unknown(reading.kernels, now)
        for kernel in node.kernels.values():
            self._take_in(kernel, _usage(kernel, reading), now)
        node.used, node.foreign = self._total_usage(), dict(reading.foreign)
        self._report_faults()
        self.lagging = {}
        for gpu in node.totals:
            lag = reading.used.get(gpu, 0) - node.used[gpu]
            if lag > 0:
                self.lagging[gpu] = lag
        node.draining.look(self.lagging, node.kernels.values(), now)

    def _add_unknown(self, usages: Mapping[str, TenantMemory], now: int) -> None:
        """Memory of a kernel that is not registered (yet)."""
        for kernel_id, usage in usages.items():
            if kernel_id not in self._node.kernels and _is_alive(usage):
                self._node.open_kernel(kernel_id).process.gone_at = now

    def _total_usage(self) -> dict[int, int]:
        total = dict.fromkeys(self._node.totals, 0)
        for kernel in self._node.kernels.values():
            for gpu, mib in kernel.memory.usage.held.items():
                total[gpu] = total.get(gpu, 0) + mib
        return total

    def _report_faults(self) -> None:
        """Errors that programs caused on the GPUs are reported to their users."""
        for fault in self._node.devices.take_faults():
            kernel = self._node.kernels.get(fault.kernel_id)
            if kernel is not None:
                self._node.record_event(kernel, "fault", fault.message, notify=True)

    def _take_in(self, kernel: KernelRecord, usage: TenantMemory, now: int) -> None:
        memory, main = kernel.memory, kernel.process.main
        memory.take_reading(usage, main_alive=main is None or main.is_alive())
        self._observe_background(kernel, now)
        if memory.transit is None:
            memory.reserved_mib = 0
            if usage.half_done:
                self._mover.recover(kernel)
        if problem := self._suspend_problem(kernel):
            memory.forbid_suspend(now + PROBLEM_MS, problem)
        self._note_burst(kernel)
        if not (memory.suspended or memory.transit) or not kernel.computes(now):
            memory.stalled_since = None
        if watch(kernel, now):
            log.warning(
                "kernel %s is blocked while its GPU memory is saved: it is resumed",
                kernel.kernel_id,
                extra=kernel.log_fields(),
            )

    @staticmethod
    def _observe_background(kernel: KernelRecord, now: int) -> None:
        memory, gate = kernel.memory, kernel.gate
        if gate.running or memory.suspended or memory.transit is not None:
            kernel.background.forget()
        else:
            kernel.background.observe(
                memory.usage.busy_ms, memory.used_mib, idle_since=gate.idle_since, now=now
            )

    def _note_burst(self, kernel: KernelRecord) -> None:
        if kernel.lease is None:
            return
        memory = kernel.memory
        borrowed = memory.used_mib - kernel.assignment.guaranteed_mib
        if memory.suspended or memory.transit is not None:
            return  # it bursts again when the same memory is restored: that is no news
        if borrowed > 0 and not memory.bursting and kernel.assignment.attached:
            self._node.record_event(kernel, "burst", self._node.text.burst(kernel, borrowed))
        memory.bursting = borrowed > 0

    def _suspend_problem(self, kernel: KernelRecord) -> str:
        """Why its memory cannot be saved on its GPUs: known before anything is tried, so that
        notices tell the truth.
        """
        for gpu in kernel.memory.usage.held or kernel.assignment.assigned_gpus:
            if problem := self._node.devices.suspend_problem(gpu):
                return problem
        return ""


def _usage(kernel: KernelRecord, reading: NodeReading) -> TenantMemory:
    """Memory of ended processes is no kernel's: it is free as soon as the driver says so, and lags
    until then.
    """
    usage = reading.kernels.get(kernel.kernel_id, TenantMemory())
    if kernel.process.main is None and not _is_alive(usage):
        return TenantMemory()
    return usage


def _is_alive(usage: TenantMemory) -> bool:
    return any(ProcessId(*process).is_alive() for process in usage.processes)


def _processes(kernel: KernelRecord) -> KernelProcesses:
    """By what the devices know its processes."""
    main = kernel.process.main
    return KernelProcesses(
        (main.pid, main.start) if main is not None else None,
        kernel.process.launch,
        kernel.process.cgroup,
        guarantee_mib=kernel.lease.request_mib if kernel.lease is not None else 0,
        owner=kernel.registration.owner,
    )
