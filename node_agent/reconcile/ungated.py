"""Kernels whose cells do not ask before they run: which GPUs their process sees when it starts, and
the warning to their user.

A kernel is hidden from GPUs only if code in it reveals the GPUs of its share. The environment of
every other kernel is fixed when it starts: it sees the share that it has then, or nothing.
"""

from __future__ import annotations

from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime

__all__ = ["UngatedKernels"]

HIDES, VISIBLE = "GPUSHARE_HIDES_GPUS", "CUDA_VISIBLE_DEVICES"


class UngatedKernels:
    """The ungated kernels of one node."""

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node

    def environment(self, kernel: KernelRecord) -> dict[str, str]:
        """The variables of the devices for the next process of this kernel or command."""
        environment = self._node.devices.environment()
        if HIDES not in environment or self._reveals_gpus(kernel):
            kernel.process.visible_gpus = None
            return environment
        gpus = self._share(kernel) if self._may_see_share(kernel) else ()
        kernel.process.visible_gpus = gpus
        del environment[HIDES]
        environment[VISIBLE] = ",".join(self._node.uuids[gpu] for gpu in gpus)
        return environment

    def _share(self, kernel: KernelRecord) -> tuple[int, ...]:
        """Its GPUs; as planned while its lease has just arrived."""
        lease, gpus = kernel.assignment.active_lease, kernel.assignment.assigned_gpus
        planned = lease.planned_gpus if lease is not None else ()
        return gpus or tuple(gpu for gpu in planned if gpu < len(self._node.uuids))

    @staticmethod
    def _reveals_gpus(kernel: KernelRecord) -> bool:
        return kernel.planned_gate == "bootstrap" and not kernel.registration.never_connected

    def _may_see_share(self, kernel: KernelRecord) -> bool:
        is_gated = kernel.planned_gate == "proxy" or not kernel.registration.registered
        return is_gated or self._node.config.ungated_devices == "share"

    def check(self, now: int) -> None:
        """Report kernels that turned out to have no gate."""
        for kernel in self._node.kernels.values():
            process, registration = kernel.process, kernel.registration
            if process.main is None or not registration.registered or kernel.has_gate(now):
                continue
            if kernel.planned_gate == "bootstrap" and not registration.never_connected:
                registration.never_connected, self._node.dirty = True, True
            if not process.reported_ungated and (kernel.lease is not None or kernel.wants_gpu()):
                process.reported_ungated = True
                self._node.record_event(kernel, "ungated", self._node.text.ungated(kernel))
