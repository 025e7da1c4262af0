"""Leases: applies the scheduler's messages to the kernels that they name, if these are of the
workload's user (see `lease_ownership`).
"""

from __future__ import annotations

from typing import Final

from jupyter_gpushare.messages import (
    LeaseBody,
    LeaseRevoked,
    LeaseUpdated,
    NoticeEnded,
    NoticeGiven,
    Plan,
    stamp_ms,
)

from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime, log
from ..state.wall_clock import wall_ms
from .lease_ownership import is_own_lease, refusal

__all__ = ["LeaseAssignments"]

PROOF_MS: Final = 10_000
"""How long the kernel's Jupyter server has to declare that a workload is its own."""


class LeaseAssignments:
    """The leases of one node."""

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._planned: dict[str, LeaseBody] = {}
        """All leases of the scheduler's plan, the latest last."""
        self._unproven: dict[str, int] = {}
        """Leases that name a kernel of another user, as far as is known, and since when."""

    # ---- messages of the scheduler ---------------------------------------------------------------

    def apply_plan(self, plan: Plan) -> None:
        """The whole desired state: leases that it lacks are revoked, leases that it adds are
        accepted.
        """
        node = self._node
        node.has_plan = True
        if plan.rules != node.rules:
            node.rules, node.dirty = plan.rules, True
        planned = {lease.id for lease in plan.leases}
        for lease_id in node.unacknowledged.keys() - planned:
            self._acknowledge(lease_id)
        self._planned.clear()
        for kernel in list(node.kernels.values()):
            if kernel.lease is not None and kernel.lease.id not in planned:
                self._revoke(kernel)
        for lease in plan.leases:
            known = node.kernels.get(lease.kernel_id or lease.id)
            current = known.lease if known is not None else None
            if current is not None and current.id in planned - {lease.id}:
                self._planned[lease.id] = lease  # the kernel keeps the lease that it has
            else:
                self._accept(lease)
        for body in node.unacknowledged.values():
            node.ports.to_scheduler(body)

    def lease_updated(self, body: LeaseUpdated) -> None:
        """One lease is new or changed."""
        self._accept(body.lease)

    def lease_revoked(self, body: LeaseRevoked) -> None:
        """One lease is over; its kernel lives on without a GPU."""
        self._acknowledge(body.lease)
        ended = self._planned.pop(body.lease, None)
        self._unproven.pop(body.lease, None)
        kernel = self._node.kernel_of(body.lease)
        if kernel is not None:
            self._revoke(kernel)
        if ended is not None and ended.kernel_id is not None:
            self._apply_planned(ended.kernel_id)

    def _acknowledge(self, lease_id: str) -> None:
        if self._node.unacknowledged.pop(lease_id, None) is not None:
            self._node.dirty = True

    def _revoke(self, kernel: KernelRecord) -> None:
        kernel.assignment.lease_revoked = True
        self._node.dirty = True

    def _accept(self, lease: LeaseBody) -> None:
        node = self._node
        if lease.id in node.unacknowledged:  # the message crossed our release: repeat it
            node.ports.to_scheduler(node.unacknowledged[lease.id])
            return
        self._planned.pop(lease.id, None)
        self._planned[lease.id] = lease
        kernel = node.open_kernel(lease.kernel_id or lease.id)
        if is_own_lease(kernel, lease):
            self._apply(kernel, lease)
        else:
            self._unproven.setdefault(lease.id, node.clock())

    def _apply(self, kernel: KernelRecord, lease: LeaseBody) -> None:
        node = self._node
        self._unproven.pop(lease.id, None)
        if kernel.lease is not None and kernel.lease.id != lease.id:
            self.drop(kernel)  # a new request replaces it: the old lease leaves the plan
        if kernel.lease is None:
            kernel.preferences.suspended_by_user = False
        if lease == kernel.assignment.active_lease:
            return
        self._announce_end(kernel, lease)
        if kernel.lease is None:
            kernel.turn.granted(node.clock())
        kernel.assignment.accept(lease)
        if kernel.registration.registered:
            kernel.registration.scheduler_user = lease.user
        node.dirty = True
        is_kernel = lease.kernel_id is not None
        if is_kernel and not kernel.registration.registered and kernel.process.gone_at is None:
            kernel.process.gone_at = node.clock()

    def _announce_end(self, kernel: KernelRecord, lease: LeaseBody) -> None:
        """Notify its user when the scheduler will take the lease back at a given time, or no longer
        will.
        """
        old_end = kernel.lease.ends_at if kernel.lease is not None else None
        if lease.ends_at is not None and lease.ends_at != old_end:
            left = max(0, stamp_ms(lease.ends_at) - wall_ms())
            self._node.record_event(kernel, "notice", lease.message)
            body = NoticeGiven(
                message=lease.message, deadline_ms=left, take_mib=kernel.memory.used_mib
            )
            self._node.ports.to_kernel(kernel.kernel_id, body)
        elif old_end is not None and lease.ends_at is None and lease.wanted == "hold":
            text = "The rule was changed: the GPU is no longer taken back."
            self._node.ports.to_kernel(kernel.kernel_id, NoticeEnded(message=text))

    def drop(self, kernel: KernelRecord) -> None:
        """The lease is over; the kernel, and what it saved in host memory, stay."""
        kernel.drop_lease()
        self._node.dirty = True

    # ---- leases of other users -------------------------------------------------------------------

    def check_owners(self, now: int) -> None:
        """Apply leases that have been proven to be the kernel's own; refuse the others after a
        while. A lease that came before its kernel was registered is checked now.
        """
        for kernel in self._node.kernels.values():
            lease = kernel.lease
            if lease is not None and not is_own_lease(kernel, lease):
                self.drop(kernel)
                self._unproven.setdefault(lease.id, now)
        for lease_id, since in list(self._unproven.items()):
            lease = self._planned.get(lease_id)
            named = self._node.kernels.get(lease.kernel_id or "") if lease is not None else None
            if lease is None or named is None:
                del self._unproven[lease_id]
            elif is_own_lease(named, lease):
                self._apply(named, lease)
            elif now - since >= PROOF_MS:
                self._refuse(lease)

    def _refuse(self, lease: LeaseBody) -> None:
        node = self._node
        del self._unproven[lease.id], self._planned[lease.id]
        text = refusal(lease, node.config.node)
        log.warning("lease %s of user %s: %s", lease.id, lease.user, text)
        node.release_lease(lease.id, ended=True, message=text)

    def _apply_planned(self, kernel_id: str) -> None:
        """A lease of this kernel is over: an older one that is still planned is in force again."""
        kernel = self._node.kernels.get(kernel_id)
        if kernel is None or kernel.assignment.active_lease is not None:
            return
        for lease in reversed(self._planned.values()):
            is_released = lease.id in self._node.unacknowledged
            if lease.kernel_id == kernel_id and not is_released and is_own_lease(kernel, lease):
                self._apply(kernel, lease)
                return
