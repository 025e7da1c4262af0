"""Kernels as the pure policy sees them: tenants of the reclaim ladder and of placement."""

from __future__ import annotations

from ..policy.placement import PlacedTenant
from ..policy.snapshot import Tenant
from ..state.kernel_record import KernelRecord

__all__ = ["placed_tenant", "tenant"]


def tenant(kernel: KernelRecord, now: int, notice_ms: int, min_notice_ms: int) -> Tenant:
    """The kernel in a snapshot of the node. No notice is shorter than `min_notice_ms`."""
    lease, assignment, memory = kernel.lease, kernel.assignment, kernel.memory
    killing = kernel.process.killing
    evicting = lease is not None and lease.wanted == "evict"
    if lease is not None and evicting:
        notice_ms = lease.notice_ms
    return Tenant(
        id=kernel.kernel_id,
        guarantee=lease.request_mib if lease else 0,
        limit=lease.limit_mib if lease else 0,
        assigned_gpus=assignment.assigned_gpus if assignment.active_lease else (),
        held=memory.usage.held,
        image=memory.usage.image,
        running=kernel.is_running(now) and not killing,
        suspended=memory.suspended,
        suspendable=memory.can_suspend(now) and not kernel.is_stranded(),
        pinned=kernel.preferences.pinned,
        transit="out" if killing else memory.transit,
        wants_since=_wants_since(kernel) if assignment.assigned_gpus else None,
        evict=evicting,
        gives_up=assignment.lease_revoked or _has_left(kernel),
        lossless=lease is not None and lease.lossless,
        caches=memory.caches_deadline,
        has_caches=kernel.gate.connected,
        notice=kernel.notice.deadline,
        notice_ms=max(min_notice_ms, notice_ms),
        idle_since=kernel.gate.idle_since,
        user=lease.user if lease else "",
        resident_until=kernel.residence.until,
    )


def _has_left(kernel: KernelRecord) -> bool:
    """Whether it holds memory without a lease, and not because others have their turn."""
    return kernel.lease is None and bool(kernel.memory.usage.held) and not kernel.is_parked


def _wants_since(kernel: KernelRecord) -> int | None:
    """Since when it asks for its GPUs: the earliest of a cell at the gate, a cell that waits in the
    driver, a lease that moves in, and a blocked interpreter.
    """
    times = (
        kernel.gate.waits_since,
        kernel.memory.stalled_since,
        kernel.assignment.entering_since,
        kernel.heartbeat.frozen_since,
    )
    return min((time for time in times if time is not None), default=None)


def placed_tenant(kernel: KernelRecord, now: int) -> PlacedTenant:
    """The kernel on its assigned GPUs. It must have a lease."""
    lease, assignment, memory = kernel.lease, kernel.assignment, kernel.memory
    assert lease is not None
    share = lease.request_mib * len(assignment.assigned_gpus)
    return PlacedTenant(
        kernel.kernel_id,
        lease.request_mib,
        assignment.assigned_gpus,
        tuple(lease.planned_gpus),
        memory.used_mib,
        kernel.is_running(now),
        memory.used_mib > share,
        memory.can_suspend(now) and not assignment.bound_gpus,
    )
