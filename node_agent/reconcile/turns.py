"""Turns on this node: releases leases of idle kernels that the scheduler gives to others, and
reports what kernels do, where the node pool shares time.

A lease is released only if the kernel is idle at this moment; the scheduler's knowledge is older.
Its memory stays on the GPU until the reclaim ladder needs the room. The next cell requests the
lease again, as after the idle rule.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from jupyter_gpushare.messages import ActivityReport, KernelActivity, LeaseBody, LeaseKept

from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime
from ..state.rate_budget import RateBudget
from ..state.turn import HOST_FULL_MS
from .idle_culler import REQUEST_EVERY_MS
from .memory_mover import MemoryMover

__all__ = ["Turns"]

REPORTS_AT_ONCE: Final = 20
REPORTS_PER_S: Final = 20.0
"""Notebooks that run short cells in a loop must not flood the scheduler."""
LATER_MS: Final = 50


class Turns:
    """Of one node; `check` is called at every step of the reconciler."""

    def __init__(self, node: NodeRuntime, mover: MemoryMover) -> None:
        self._node, self._mover = node, mover
        self._budget = RateBudget(REPORTS_AT_ONCE, REPORTS_PER_S)

    def check(self, now: int) -> int | None:
        """Release what is idle and report what changed; returns when (ms) to check again."""
        for kernel in list(self._node.kernels.values()):
            lease = kernel.assignment.active_lease
            if lease is not None and lease.wanted == "yield":
                self._yield(kernel, lease, now)
            elif lease is not None and lease.wanted == "evict" and lease.lossless:
                self._keep_if_stuck(kernel, lease, now)
        return self._report(now) if self._node.rules.shares_time else None

    # ---- giving way ------------------------------------------------------------------------------

    def _yield(self, kernel: KernelRecord, lease: LeaseBody, now: int) -> None:
        if kernel.memory.transit == "out":
            return  # when the copy is complete
        if not _is_idle(kernel, now) or kernel.preferences.pinned:
            self._keep(kernel, lease)
        elif self._mover.host_problem(kernel):
            kernel.turn.host_full_until = now + HOST_FULL_MS
            self._keep(kernel, lease)
        elif not _can_save(kernel, now):
            self._keep(kernel, lease)
        else:
            self._release(kernel, lease, now)

    def _release(self, kernel: KernelRecord, lease: LeaseBody, now: int) -> None:
        node = self._node
        text = node.text.gave_way(lease.message, kernel.memory.used_mib)
        node.record_event(kernel, "released", text)
        node.release_lease(lease.id, ended=False, message=text, held=True)
        kernel.idle.releasing, kernel.idle.released_lease = False, lease
        kernel.idle.asked_again_at = now - REQUEST_EVERY_MS
        kernel.park()

    def _keep_if_stuck(self, kernel: KernelRecord, lease: LeaseBody, now: int) -> None:
        """A turn that is over is not enforced where memory cannot be saved."""
        if kernel.preferences.pinned or not _can_save(kernel, now) or self._node.missing_suspend():
            self._keep(kernel, lease)

    def _keep(self, kernel: KernelRecord, lease: LeaseBody) -> None:
        kernel.assignment.accept(replace(lease, wanted="hold", message="", lossless=False))
        kernel.turn.sent = None  # the scheduler has forgotten its activity
        self._node.dirty = True
        self._node.ports.to_scheduler(LeaseKept(lease=lease.id))

    # ---- reporting -------------------------------------------------------------------------------

    def _report(self, now: int) -> int | None:
        changed = {}
        for kernel in self._node.kernels.values():
            found = self._activity(kernel, now)
            if found is not None and found[0] != kernel.turn.sent:
                changed[kernel.kernel_id] = found
        if not changed:
            return None
        if not self._budget.take(now / 1000):
            return now + LATER_MS
        if self._node.ports.to_scheduler(ActivityReport(rows=[row for _, row in changed.values()])):
            for kernel_id, (key, _) in changed.items():
                self._node.kernels[kernel_id].turn.sent = key
        return None

    def _activity(
        self, kernel: KernelRecord, now: int
    ) -> tuple[tuple[object, ...], KernelActivity] | None:
        """What is reported only if it changed, and the report. None: it has no workload."""
        workload = _workload(kernel)
        if workload is None:
            return None
        waits, turn = _waits_since(kernel), kernel.turn.since
        idle = kernel.gate.idle_since if _is_idle(kernel, now) and turn is not None else None
        row = KernelActivity(
            workload=workload,
            waits_ms=None if waits is None else now - waits,
            idle_ms=None if idle is None else now - idle,
            turn_ms=None if turn is None else now - turn,
            copy_ms=self._copy_ms(kernel),
            pinned=kernel.preferences.pinned,
            can_save=_can_save(kernel, now) and not kernel.turn.is_host_full(now),
            host_full=kernel.turn.is_host_full(now),
        )
        rest = row.copy_ms, row.pinned, row.can_save, row.host_full
        return (workload, waits, idle, turn, *rest), row

    def _copy_ms(self, kernel: KernelRecord) -> int:
        """In tenths of a second, so that small changes are not reported."""
        mib = kernel.memory.used_mib + kernel.memory.saved_mib
        return -(-round(mib / self._node.copy_mib_per_ms) // 100) * 100


def _workload(kernel: KernelRecord) -> str | None:
    """The workload of its lease, or of its pending request."""
    lease = kernel.assignment.active_lease
    if lease is not None:
        return lease.workload
    if not kernel.wants_gpu():
        return None
    if kernel.idle.released_lease is not None:
        return kernel.idle.released_lease.workload
    return kernel.request_state.workload if kernel.request_state is not None else None


def _waits_since(kernel: KernelRecord) -> int | None:
    """Since when a cell waits for a GPU: at the gate, or in the driver after its turn."""
    times = (kernel.gate.waits_since, kernel.memory.stalled_since)
    return min((time for time in times if time is not None), default=None)


def _is_idle(kernel: KernelRecord, now: int) -> bool:
    """Whether nothing runs or waits, as far as can be known."""
    process, memory = kernel.process, kernel.memory
    if kernel.is_command or process.main is None or process.killing or process.ending:
        return False
    if kernel.gate.waiting or memory.stalled_since is not None or memory.transit == "in":
        return False
    return kernel.has_gate(now) and kernel.gate.ever_connected and not kernel.is_running(now)


def _can_save(kernel: KernelRecord, now: int) -> bool:
    """Whether its memory can be saved, as far as known; without memory there is nothing to save."""
    if not kernel.memory.used_mib:
        return True
    return kernel.memory.can_suspend(now) and not kernel.is_stranded()
