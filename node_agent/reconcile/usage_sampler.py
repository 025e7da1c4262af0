"""GPU time per lease: sampled, added up, handed over. Intervals come from the monotonic clock, so a
clock jump books nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpushare.messages import UsageAcknowledged, UsageReport

from ..policy.lending import lent
from ..state.node import NodeRuntime

__all__ = ["UsageSampler"]

LONGEST_STORY = 1_000
"""Times that are kept for a scheduler that is away."""
LONGEST_MS = 5_000
"""A longer gap between two samples (a machine that slept) is not booked as use."""


class UsageSampler:
    """Samples all leases of a node into its tally."""

    def __init__(self, node: NodeRuntime, keep: Callable[[], None] = lambda: None) -> None:
        """`keep` writes the tally down: before a report leaves, so that a later life says the same
        under its number.
        """
        self._node, self._keep = node, keep
        self._busy: dict[str, int] = {}
        self._last = self._reported = node.clock()

    def sample(self) -> None:
        """Book the time since the last sample with what is true now."""
        now = self._node.clock()
        passed, self._last = min(now - self._last, LONGEST_MS), now
        lending = self._lending()
        for kernel in self._node.kernels.values():
            if (
                kernel.lease is None
                or kernel.assignment.lease_revoked
                or not (kernel.assignment.attached or kernel.memory.suspended)
            ):
                kernel.memory.utilization = None
                continue
            row = self._node.usage_outbox.row(kernel.lease.id)
            before = self._busy.get(kernel.kernel_id, kernel.memory.usage.busy_ms)
            self._busy[kernel.kernel_id] = kernel.memory.usage.busy_ms
            used, share = (
                kernel.memory.used_mib,
                kernel.lease.request_mib * max(1, len(kernel.assignment.assigned_gpus)),
            )
            row.held_ms += passed * max(1, len(kernel.assignment.assigned_gpus))
            row.busy_ms += max(0, kernel.memory.usage.busy_ms - before)
            kernel.memory.utilization = (
                _share(max(0, kernel.memory.usage.busy_ms - before), passed)
                if kernel.memory.usage.is_timed
                else None
            )
            row.used_mib_ms += used * passed
            row.borrowed_mib_ms += max(0, used - share) * passed
            row.lent_mib_ms += lending.get(kernel.kernel_id, 0) * passed
        self._busy = {name: busy for name, busy in self._busy.items() if name in self._node.kernels}

    def _lending(self) -> dict[str, int]:
        """MiB that each lends, over its GPUs."""
        found: dict[str, int] = {}
        kernels = [
            kernel
            for kernel in self._node.kernels.values()
            if kernel.lease is not None and not kernel.assignment.lease_revoked
        ]
        for gpu in self._node.totals:
            shares = {
                kernel.kernel_id: kernel.lease.request_mib
                for kernel in kernels
                if gpu in kernel.assignment.assigned_gpus and kernel.lease is not None
            }
            held = {
                kernel.kernel_id: kernel.memory.usage.held.get(gpu, 0)
                for kernel in self._node.kernels.values()
            }
            for name, mib in lent(held, shares).items():
                found[name] = found.get(name, 0) + mib
        return found

    def report(self) -> None:
        """Hand what was sampled to the scheduler, and once more what it has not taken yet; kept
        while the link is down.
        """
        now, durations, usage_outbox = (
            self._node.clock(),
            self._node.durations,
            self._node.usage_outbox,
        )
        if usage_outbox.begin():
            self._keep()
        rows = usage_outbox.under_way()
        if not rows and not any(durations.values()) and not self._node.rungs:
            self._reported = now
            return
        waits, outs, ins = (list(durations[name]) for name in ("gate_wait", "suspend", "resume"))
        sent = UsageReport(
            since_ms=now - self._reported,
            rows=rows,
            life=usage_outbox.life if rows else "",
            number=usage_outbox.number if rows else 0,
            gate_waits_ms=waits,
            suspends_ms=outs,
            resumes_ms=ins,
            rungs=dict(self._node.rungs),
        )
        delivered = self._node.ports.to_scheduler(sent)
        if delivered:
            self._reported = now
            self._node.rungs.clear()
        for each in durations.values():  # of these only the latest are worth keeping
            del each[: None if delivered else -LONGEST_STORY]

    def acknowledged(self, order: UsageAcknowledged) -> None:
        """The scheduler has a report on its disk."""
        if self._node.usage_outbox.taken(order.life, order.number):
            self._node.dirty = True


def _share(busy_ms: int, passed_ms: int) -> float:
    """Of the time, in twentieths: finer steps would only be noise in everybody's streams."""
    return round(20 * min(1.0, busy_ms / max(1, passed_ms))) / 20
