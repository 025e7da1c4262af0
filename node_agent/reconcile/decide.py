"""The second part of a step: the snapshot of the node for the pure policy, and whether a reading is
recent enough to act on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from ..policy.snapshot import NodeSnapshot
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime
from .observe import Observer
from .tenants import tenant

__all__ = ["AdmissionChecks", "Obstacle", "take_snapshot"]

SLOW_DRIVER_MS: Final = 2_000
"""A cell waits at most so long for a new reading, if the others on its GPUs cannot take its share:
it will meet the driver itself.
"""
Obstacle = Literal["", "reading", "neighbour"]
"""Why a cell is not admitted yet although its memory is free: the reading is older than the
question, or a kernel on the same GPU has not reconnected.
"""


def take_snapshot(node: NodeRuntime, observer: Observer) -> NodeSnapshot:
    """The node at this moment."""
    now, notice_ms, min_ms = node.clock(), node.notice_ms(), node.config.min_notice_ms
    tenants = []
    for kernel in node.kernels.values():
        one = tenant(kernel, now, notice_ms, min_ms)
        if kernel.lease is None and not node.has_plan:
            one = replace(one, gives_up=False)  # its lease may be in the plan that is yet to come
        if one.id in node.draining.late:
            one = replace(one, stuck=True)
        if one.assigned_gpus or one.held or one.evict or one.gives_up:
            tenants.append(one)
    stuck = dict(node.draining.stuck)
    return NodeSnapshot(node.available(), tuple(tenants), observer.lagging, stuck)


class AdmissionChecks:
    """Checks of one node before a cell is admitted."""

    def __init__(self, node: NodeRuntime, observer: Observer) -> None:
        self._node, self._observer = node, observer

    def obstacle(self, kernel: KernelRecord) -> Obstacle:
        """What has to happen before its waiting cells run; "" when nothing has to."""
        if self._must_wait_for_neighbour(kernel):
            return "neighbour"
        return "reading" if self._must_read(kernel) else ""

    def is_late(self, kernel: KernelRecord) -> bool:
        """Whether a cell has waited for so long that it shows why."""
        since = kernel.gate.waits_since
        return since is not None and self._node.clock() - since > SLOW_DRIVER_MS

    def _must_read(self, kernel: KernelRecord) -> bool:
        """Whether the last reading is older than the question, and a kernel on the same GPUs has
        run since then: it may have taken memory.
        """
        asked, taken, now = kernel.gate.asked_at, self._observer.taken, self._node.clock()
        if asked is None or taken is None or taken >= asked:
            return False
        active = [
            other
            for other in self._neighbours(kernel)
            if other.is_running(now) or other.gate.idle_since >= taken
        ]
        return bool(active) and (not self.is_late(kernel) or self._may_be_taken(kernel, active))

    def _must_wait_for_neighbour(self, kernel: KernelRecord) -> bool:
        """Whether a kernel on the same GPUs may still use the caps of an earlier agent, because it
        has not reconnected: it may run, and grow into this kernel's share.
        """
        if not kernel.gate.waiting or not self._node.caps_are_advice():
            return False
        now = self._node.clock()
        unheard = [
            other
            for other in self._neighbours(kernel)
            if not other.gate.connected and now < other.gate.unsure_until
        ]
        return bool(unheard) and self._may_be_taken(kernel, unheard)

    def _neighbours(self, kernel: KernelRecord) -> list[KernelRecord]:
        """Kernels that are on its GPUs, or belong there."""
        wanted = set(kernel.assignment.assigned_gpus)
        return [
            other
            for other in self._node.kernels.values()
            if other is not kernel and wanted & set(other.assignment.gpus)
        ]

    def _may_be_taken(self, kernel: KernelRecord, others: Sequence[KernelRecord]) -> bool:
        """Whether it does not have its whole share yet, and the others may by their limits have
        taken part of it since the last reading (their caps of that time are not known any more).
        """
        lease = kernel.lease
        if lease is None or kernel.memory.used_mib >= lease.request_mib:
            return False
        taken: Counter[int] = Counter()
        for other in others:
            most = other.lease.limit_mib if other.lease is not None else other.memory.used_mib
            taken.update(dict.fromkeys(other.assignment.gpus, most))
        totals = self._node.totals
        shared = [gpu for gpu in kernel.assignment.assigned_gpus if gpu in taken]
        return any(totals[gpu] - taken[gpu] < lease.request_mib for gpu in shared)
