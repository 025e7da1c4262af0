"""GPU time per lease: sampled, added up, reported. Intervals come from the monotonic clock, so that
a change of the wall clock counts nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jupyter_gpushare.messages import UsageAcknowledged, UsageReport

from ..policy.lending import lent
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime

__all__ = ["UsageSampler"]

DURATIONS_KEPT: Final = 1_000
"""Durations that are kept while the scheduler is disconnected."""
LONGEST_MS: Final = 5_000
"""A longer gap between two samples (a machine that slept) does not count as use."""


class UsageSampler:
    """Samples all leases of a node into its outbox."""

    def __init__(self, node: NodeRuntime, keep: Callable[[], None] = lambda: None) -> None:
        """`keep` writes the outbox to disk: before a report is sent, so that a restarted agent
        sends the same content under the same number.
        """
        self._node, self._keep = node, keep
        self._busy: dict[str, int] = {}
        self._sampled_at = self._reported_at = node.clock()

    def sample(self) -> None:
        """Count the time since the last sample with the current state."""
        now = self._node.clock()
        passed, self._sampled_at = min(now - self._sampled_at, LONGEST_MS), now
        lending = self._lending()
        for kernel in self._node.kernels.values():
            present = kernel.assignment.attached or kernel.memory.suspended
            if kernel.assignment.active_lease is None or not present:
                kernel.memory.utilization = None
            else:
                self._sample(kernel, passed, lending.get(kernel.kernel_id, 0))
        self._busy = {name: ms for name, ms in self._busy.items() if name in self._node.kernels}

    def _sample(self, kernel: KernelRecord, passed: int, lent_mib: int) -> None:
        assert kernel.lease is not None
        memory, row = kernel.memory, self._node.usage_outbox.row(kernel.lease.id)
        busy_ms = memory.usage.busy_ms
        busy = max(0, busy_ms - self._busy.get(kernel.kernel_id, busy_ms))
        self._busy[kernel.kernel_id] = busy_ms
        memory.utilization = _share(busy, passed) if memory.usage.is_timed else None
        row.held_ms += passed * max(1, len(kernel.assignment.assigned_gpus))
        row.busy_ms += busy
        row.used_mib_ms += memory.used_mib * passed
        borrowed = max(0, memory.used_mib - kernel.assignment.guaranteed_mib)
        row.borrowed_mib_ms += borrowed * passed
        row.lent_mib_ms += lent_mib * passed

    def _lending(self) -> dict[str, int]:
        """MiB that each lends, over its GPUs."""
        found: dict[str, int] = {}
        for gpu in self._node.totals:
            held, shares = {}, {}
            for kernel in self._node.kernels.values():
                held[kernel.kernel_id] = kernel.memory.usage.held.get(gpu, 0)
                lease = kernel.assignment.active_lease
                if lease is not None and gpu in kernel.assignment.assigned_gpus:
                    shares[kernel.kernel_id] = lease.request_mib
            for name, mib in lent(held, shares).items():
                found[name] = found.get(name, 0) + mib
        return found

    def report(self) -> None:
        """Send the scheduler what was sampled, and again what it has not acknowledged yet; kept
        while the link is down.
        """
        node, now = self._node, self._node.clock()
        durations, outbox = node.durations, node.usage_outbox
        if outbox.begin():
            self._keep()
        rows = outbox.in_flight()
        if not rows and not any(durations.values()) and not node.reclaims:
            self._reported_at = now
            return
        body = UsageReport(
            since_ms=now - self._reported_at,
            rows=rows,
            life=outbox.life if rows else "",
            number=outbox.number if rows else 0,
            gate_waits_ms=list(durations["gate_wait"]),
            suspends_ms=list(durations["suspend"]),
            resumes_ms=list(durations["resume"]),
            rungs=dict(node.reclaims),
        )
        delivered = node.ports.to_scheduler(body)
        if delivered:
            self._reported_at = now
            node.reclaims.clear()
        for values in durations.values():  # only the latest are worth keeping
            del values[: None if delivered else -DURATIONS_KEPT]

    def acknowledged(self, body: UsageAcknowledged) -> None:
        """The scheduler has a report on its disk."""
        if self._node.usage_outbox.acknowledged(body.life, body.number):
            self._node.dirty = True


def _share(busy_ms: int, passed_ms: int) -> float:
    """Of the time, in twentieths: finer steps would only send noise."""
    return round(20 * min(1.0, busy_ms / max(1, passed_ms))) / 20
