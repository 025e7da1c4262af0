"""Health of the GPUs: events of the driver, recovery actions and broken memory."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ...policy.gpu_errors import health_problem, program_error, recovery_problem
from ...policy.memory_accounting import MemoryAccount
from ..base.model import DeviceFault
from .nvml import Nvml, NvmlFailed
from .nvml_queries import NvmlQueries
from .nvml_types import GpuEvent

__all__ = ["HealthMonitor"]

log = logging.getLogger("gpushare.agent")

CHECK_EVERY_MS: Final = 10_000
MAX_FAULTS: Final = 64
UNREPAIRABLE: Final = "A part of its memory is broken and could not be replaced."


class HealthMonitor:
    """Reads events and checks health. Used by the sampler, under its lock."""

    def __init__(self, nvml: Nvml, queries: NvmlQueries) -> None:
        self._nvml, self._queries = nvml, queries
        self._unhealthy: dict[int, str] = {}
        """Problems from events. They remain until the agent restarts: the driver does not report a
        repair.
        """
        self._recovery: dict[int, str] = {}
        self._checked = -CHECK_EVERY_MS
        self._faults: deque[DeviceFault] = deque(maxlen=MAX_FAULTS)
        self._events = self._subscribe()
        self.changes = 0
        """Changes of health, and faults."""

    def _subscribe(self) -> Callable[[], list[GpuEvent]]:
        try:
            return self._nvml.subscribe()
        except NvmlFailed as error:
            log.warning("GPU events are not available (%s); health is polled instead", error)
            return list

    def read_events(
        self, account: MemoryAccount, busy: Mapping[str, float], busy_before: Mapping[str, int]
    ) -> None:
        """Handle the events since the last call. `busy`, `busy_before`: busy time (ms) per kernel
        now and at the last reading, by which the kernel at fault is found.
        """
        try:
            events = self._events()
        except NvmlFailed as error:
            log.warning("GPU events failed (%s); health is polled instead", error)
            self._events = list
            return
        for event in events:
            for gpu in event.gpus:
                suspect = _kernel_at_fault(gpu, account, busy, busy_before)
                self._handle(gpu, event, suspect)

    def _handle(self, gpu: int, event: GpuEvent, suspect: str) -> None:
        problem = health_problem(event.kind, event.data)
        mistake = program_error(event.data) if event.kind == "xid" else ""
        if problem:
            log.error("GPU %d: %s", gpu, problem)
            self._unhealthy.setdefault(gpu, problem)
            self.changes += 1
        elif mistake:
            who = suspect or "an unknown program"
            log.warning("GPU %d: XID %d in a process of %s: %s", gpu, event.data, who, mistake)
            message = (
                f"GPU error XID {event.data} in this kernel: {mistake}. "
                "CUDA does not recover from it: restart the kernel."
            )
            self._faults.append(DeviceFault(gpu, suspect, message))
            self.changes += 1
        else:
            log.info("GPU %d: event %s %d", gpu, event.kind or "?", event.data)

    def check(self, now: int) -> None:
        """Poll recovery actions and broken memory, at most every `CHECK_EVERY_MS`."""
        if now - self._checked < CHECK_EVERY_MS:
            return
        self._checked = now
        for gpu in (one.index for one in self._nvml.gpus):
            problem = self._recovery_problem(gpu)
            if problem == self._recovery.get(gpu, ""):
                continue
            if problem:
                log.error("GPU %d: %s", gpu, problem)
            else:
                log.info("GPU %d: the driver requests no recovery any more", gpu)
            self._recovery[gpu] = problem
            self.changes += 1

    def _recovery_problem(self, gpu: int) -> str:
        query = self._queries.query
        action = query("recovery_action", gpu, partial(self._nvml.recovery_action, gpu))
        broken = query("repair", gpu, partial(self._nvml.is_unrepairable, gpu))
        return recovery_problem(action or 0) or (UNREPAIRABLE if broken else "")

    def problem(self, gpu: int) -> str:
        """Why a device is unhealthy, in one sentence; "": it is healthy."""
        unresponsive = self._queries.unresponsive.get(gpu)
        return self._unhealthy.get(gpu) or unresponsive or self._recovery.get(gpu, "")

    def take_faults(self) -> list[DeviceFault]:
        """Errors that programs caused since the last call."""
        taken = []
        while self._faults:
            taken.append(self._faults.popleft())
        return taken


def _kernel_at_fault(
    gpu: int, account: MemoryAccount, busy: Mapping[str, float], busy_before: Mapping[str, int]
) -> str:
    """The only kernel on the device, or the only one that was busy; "": not known."""
    kernels = sorted(name for name, held in account.held.items() if gpu in held)
    if len(kernels) == 1 and not account.foreign_processes.get(gpu, 0):
        return kernels[0]
    was_busy = [name for name in kernels if busy.get(name, 0) > busy_before.get(name, 0)]
    return was_busy[0] if len(was_busy) == 1 else ""
