"""Sets how much every kernel may hold on its GPUs."""

from __future__ import annotations

from ..policy.caps import caps
from ..policy.reclaim_steps import AdmitStep, ReclaimDecision, WaitStep
from ..policy.snapshot import NodeSnapshot
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime

__all__ = ["CapsApplier"]

Caps = tuple[tuple[int, int], ...]
"""(GPU, MiB) of one kernel."""


class CapsApplier:
    """Caps of one node's kernels."""

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._attached: set[str] = set()

    def start(self) -> None:
        """Kernels of an earlier agent are attached already."""
        self._attached = self._node.devices.attached()

    def apply(self, snapshot: NodeSnapshot, decision: ReclaimDecision) -> bool:
        """Set the caps that changed; whether there were any. Raises DevicesBusy."""
        noticed = [tenant.id for tenant in snapshot.tenants if tenant.notice is not None]
        promised = [step.id for step in decision.steps if isinstance(step, WaitStep | AdmitStep)]
        changed = self._changed(caps(snapshot, noticed, promised))
        if not changed:
            return False
        self._node.devices.attach(changed)
        for kernel_id, places in changed.items():
            if kernel_id in self._node.kernels:
                self._node.kernels[kernel_id].memory.caps = places
            if places:
                self._attached.add(kernel_id)
            else:
                self._attached.discard(kernel_id)
        return True

    def _changed(self, allowed: dict[str, tuple[int, ...]]) -> dict[str, Caps]:
        changed: dict[str, Caps] = {}
        for kernel in self._node.kernels.values():
            places = self._caps_of(kernel, allowed.get(kernel.kernel_id, ()))
            is_new = places != kernel.memory.caps
            if is_new and (places or kernel.kernel_id in self._attached):
                changed[kernel.kernel_id] = places
        gone = self._attached - self._node.kernels.keys()
        return changed | dict.fromkeys(gone, ())

    def _caps_of(self, kernel: KernelRecord, allowed: tuple[int, ...]) -> Caps:
        assignment, memory = kernel.assignment, kernel.memory
        if not assignment.attached or assignment.active_lease is None:
            return self._between_leases(kernel)
        if assignment.current_gpus != assignment.assigned_gpus and memory.used_mib:
            # on its way to other GPUs: it keeps what it has and cannot grow
            return _frozen(kernel, assignment.current_gpus)
        return tuple(zip(assignment.assigned_gpus, allowed, strict=True)) if allowed else ()

    def _between_leases(self, kernel: KernelRecord) -> Caps:
        """Without a lease, or not attached to it yet. A cell that began with a GPU keeps what it
        has and cannot grow, as long as its user wants one: the share was changed, or taken back in
        the middle of the cell. It waits in the driver when its memory is saved.
        """
        memory, now = kernel.memory, self._node.clock()
        has_lease = kernel.assignment.active_lease is not None
        wants = has_lease or (kernel.wants_gpu() and not kernel.gate.gave_up)
        computes = kernel.computes(now) and kernel.has_gate(now)
        if not wants or not (memory.suspended or memory.used_mib or computes):
            return ()
        if kernel.process.main is None:
            return ()
        gpus = [gpu for gpu, _ in memory.caps or ()]
        if not gpus and memory.suspended and kernel.lease is None:
            gpus = [0]
        return _frozen(kernel, gpus)


def _frozen(kernel: KernelRecord, gpus: tuple[int, ...] | list[int]) -> Caps:
    """What it holds there, and no more."""
    held = kernel.memory.usage.held
    return tuple((gpu, held.get(gpu, 0)) for gpu in gpus)
