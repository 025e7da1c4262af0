"""When a kernel with a lease is attached to its GPUs."""

from __future__ import annotations

from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime

__all__ = ["Attachment"]


class Attachment:
    """Attaches the kernels of one node."""

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node

    def settle(self, kernel: KernelRecord, now: int) -> None:
        """Attach a kernel that is here at once, unless another kernel still holds memory in its
        place; then it asks the reclaim ladder for its GPUs first. A command is started after that.
        """
        assignment, memory = kernel.assignment, kernel.memory
        if not memory.used_mib and memory.transit is None and assignment.assigned_gpus:
            assignment.current_gpus = assignment.assigned_gpus
        if not self._may_attach(kernel):
            return
        if not assignment.attached and assignment.entering_since is None:
            if self._is_occupied(kernel) or not kernel.has_gate(now):
                assignment.entering_since = now
            else:
                self.attach(kernel)
        if assignment.attached and not kernel.has_gate(now) and not assignment.entered:
            assignment.entering_since = assignment.entering_since or now
        if self._waits_in_driver(kernel, now):
            memory.stalled_since = now

    @staticmethod
    def _may_attach(kernel: KernelRecord) -> bool:
        assignment = kernel.assignment
        has_place = assignment.active_lease is not None and assignment.assigned_gpus
        return bool(has_place) and not assignment.evicted and kernel.can_attach

    def _is_occupied(self, kernel: KernelRecord) -> bool:
        """Whether a kernel that belongs elsewhere holds memory on its GPUs."""
        wanted = set(kernel.assignment.assigned_gpus)
        for other in self._node.kernels.values():
            elsewhere = set(other.memory.usage.held) - set(other.assignment.assigned_gpus)
            if other is not kernel and elsewhere & wanted and not other.is_parked:
                return True
        return False

    @staticmethod
    def _waits_in_driver(kernel: KernelRecord, now: int) -> bool:
        memory = kernel.memory
        is_saved = memory.suspended and memory.transit is None and memory.stalled_since is None
        return is_saved and kernel.computes(now) and not kernel.preferences.suspended_by_user

    def attach(self, kernel: KernelRecord) -> None:
        """From here on its process may use its GPUs."""
        node, gpus = self._node, kernel.assignment.assigned_gpus
        kernel.assignment.attach()
        kernel.gate.gave_up = False
        node.dirty = True
        self._bind(kernel)
        if kernel.process.relaunched:
            kernel.process.relaunched = False
            node.record_event(kernel, "reattached", node.text.reattached(gpus), notify=True)
        else:
            node.record_event(
                kernel,
                "attached",
                node.text.attached(kernel, gpus, gated=kernel.has_gate(node.clock())),
            )

    def _bind(self, kernel: KernelRecord) -> None:
        """Where the driver cannot move memory, its process chooses its GPUs once."""
        if not self._node.binds_processes():
            return
        assignment = kernel.assignment
        if assignment.must_change_gpus:
            old, new = assignment.bound_gpus, assignment.assigned_gpus
            self._node.notify(kernel, self._node.text.stays_behind(old, new))
        assignment.bound_gpus = assignment.bound_gpus or assignment.assigned_gpus
