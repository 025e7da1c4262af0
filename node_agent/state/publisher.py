"""Sends servers, kernels and the scheduler what changed since the last time."""

from __future__ import annotations

from typing import Final

from jupyter_gpushare.messages import (
    KernelDevice,
    KernelOwner,
    KernelReported,
    KernelsChanged,
    KernelUpdate,
    LeaseChanged,
    TiersFound,
)

from .kernel_record import KernelRecord
from .kernel_view import lease_report
from .node import NodeRuntime

__all__ = ["StatePublisher"]

MEMORY_EVERY_MS: Final = 250
"""Changes of memory alone are sent at most this often: a loop that allocates must not flood people
with messages.
"""
REPORT_EVERY_MS: Final = 1000


class StatePublisher:
    """Publishes the state of one node."""

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._capabilities = node.devices.capabilities()
        self._owners: dict[str, KernelOwner] = {}
        """As reported to the scheduler. A new link begins with all kernels; what is sent again then
        changes nothing.
        """

    def publish(self) -> None:
        """Send all changes."""
        now = self._node.clock()
        for kernel in self._node.kernels.values():
            if self._is_due(kernel, now):
                self._publish_kernel(kernel)
            self._publish_lease(kernel, now)
        self._publish_owners()
        self._publish_capabilities()

    def publish_caps(self) -> None:
        """Send kernels that keep their caps themselves the caps that changed, before a cell that
        depends on them is admitted.
        """
        for kernel in self._node.kernels.values():
            devices = self._devices_of(kernel)
            if devices and devices != kernel.published.devices:
                self._send_update(kernel, devices)

    def _publish_capabilities(self) -> None:
        found = self._node.devices.capabilities()
        if found != self._capabilities:
            self._capabilities = found
            body = TiersFound(tiers=found.tiers, tier_problems=found.problems)
            self._node.ports.to_servers(body)

    def _is_due(self, kernel: KernelRecord, now: int) -> bool:
        """Whether there is something new; changes of memory alone may wait."""
        published, key = kernel.published, _key(kernel, now)
        old = published.key
        if key == old:
            return False
        if old is not None and key[1:] == old[1:] and now - published.sent_at < MEMORY_EVERY_MS:
            return False
        published.key, published.sent_at = key, now
        return True

    def _publish_kernel(self, kernel: KernelRecord) -> None:
        body = KernelReported(kernel=self._node.runtime(kernel))
        self._node.ports.to_server(kernel.registration.server, body)
        self._send_update(kernel, self._devices_of(kernel))

    def _send_update(self, kernel: KernelRecord, devices: tuple[KernelDevice, ...]) -> None:
        kernel.published.devices = devices
        caps = kernel.memory.caps
        body = KernelUpdate(
            kernel=self._node.view(kernel), cap_mib=caps[0][1] if caps else 0, devices=list(devices)
        )
        self._node.ports.to_kernel(kernel.kernel_id, body)

    def _devices_of(self, kernel: KernelRecord) -> tuple[KernelDevice, ...]:
        """What its frameworks may use. Nothing while its memory is saved or being copied: a
        framework that asks the driver then blocks until the memory is back.
        """
        if not self._node.devices.traits.kernels_select_devices or not _has_memory_here(kernel):
            return ()
        uuids, totals = self._node.uuids, self._node.totals
        caps = kernel.memory.caps or ()
        visible = [uuids[gpu] for gpu, _ in caps]
        if not self._node.binds_processes():
            visible += [uuid for uuid in uuids if uuid not in visible]
        names = ",".join(visible)
        return tuple(
            KernelDevice(uuid=uuids[gpu], cap_mib=cap, total_mib=totals[gpu], visible=names)
            for gpu, cap in caps
        )

    def _publish_owners(self) -> None:
        """The scheduler lets a workload name a kernel only if it belongs to its user."""
        found = {one.kernel_id: self._node.owner(one) for one in self._node.registered()}
        changed = [one for one in found.values() if self._owners.get(one.kernel_id) != one]
        gone = [kernel_id for kernel_id in self._owners if kernel_id not in found]
        if not changed and not gone:
            return
        if self._node.ports.to_scheduler(KernelsChanged(registered=changed, gone=gone)):
            self._owners = found

    def _publish_lease(self, kernel: KernelRecord, now: int) -> None:
        if kernel.lease is None:
            return
        report, last = lease_report(kernel, self._node.uuids, now), kernel.published.report
        if report == last:
            return
        is_same = last is not None and (
            (report.lease, report.state, report.gpu_uuids, report.generation)
            == (last.lease, last.state, last.gpu_uuids, last.generation)
        )
        if is_same and now - kernel.published.reported_at < REPORT_EVERY_MS:
            return
        if self._node.ports.to_scheduler(LeaseChanged(report=report)):
            kernel.published.report, kernel.published.reported_at = report, now


def _has_memory_here(kernel: KernelRecord) -> bool:
    memory = kernel.memory
    copied = memory.transit is not None or memory.suspended
    return kernel.assignment.attached and not copied and not kernel.process.killing


def _key(kernel: KernelRecord, now: int) -> tuple[object, ...]:
    """All that a view shows. The first element changes most often."""
    assignment, memory, events = kernel.assignment, kernel.memory, kernel.published.events
    return (
        memory.usage,
        memory.transit,
        memory.utilization,
        assignment.lease,
        assignment.lease_revoked,
        assignment.assigned_gpus,
        assignment.current_gpus,
        assignment.attached,
        assignment.generation,
        kernel.process.main,
        kernel.process.killing,
        bool(kernel.gate.running),
        kernel.gate.text,
        kernel.has_gate(now),
        kernel.request_state,
        kernel.preferences.pinned,
        kernel.notice,
        kernel.idle.stamp,
        events[-1] if events else None,
    )
