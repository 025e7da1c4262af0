"""What the agent sends about one kernel: the state that people see, the view for its server and its
notebook, and the lease report for the scheduler. Reads the record, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from jupyter_gpushare.messages import (
    Kernel,
    KernelOwner,
    KernelRequestState,
    KernelRuntime,
    KernelState,
    LeaseReport,
    MemoryMib,
    compose_kernel,
)

from .event_text import EventText
from .kernel_record import KernelRecord

__all__ = [
    "NodeFacts",
    "kernel_runtime",
    "kernel_state",
    "kernel_view",
    "lease_report",
    "kernel_owner",
]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a view says about the node. `uuids` and `totals` (MiB) are by GPU index."""

    name: str
    simulated: bool
    uuids: list[str]
    totals: dict[int, int]
    now: int
    text: EventText

    def gpu_name(self, index: int) -> str:
        """UUID of a planned GPU; a plan may name a GPU that this node has lost."""
        return self.uuids[index] if index < len(self.uuids) else f"{self.name}/{index}"


def kernel_state(kernel: KernelRecord) -> KernelState:
    """The state that people see."""
    memory = kernel.memory
    if kernel.assignment.active_lease is None:
        return "pending" if kernel.wants_gpu() else "detached"
    if kernel.assignment.evicted or kernel.process.killing:
        return "reclaiming"
    if memory.suspended or (memory.transit == "out" and not memory.usage.held):
        return "suspended"
    is_attached = kernel.assignment.attached and kernel.process.main is not None
    return "attached" if is_attached else "granted"


def kernel_runtime(kernel: KernelRecord, node: NodeFacts) -> KernelRuntime:
    """The agent's part of the kernel."""
    lease = kernel.assignment.active_lease
    gpus = _visible_gpus(kernel) if lease else ()
    problem = _gate_problem(kernel, node)
    return KernelRuntime(
        kernel_id=kernel.kernel_id,
        state=kernel_state(kernel),
        workload=lease.workload if lease else None,
        node=node.name,
        planned_gpu=", ".join(map(node.gpu_name, lease.planned_gpus)) if lease else None,
        gpu_uuid=node.uuids[gpus[0]] if gpus else None,
        simulated=node.simulated,
        pinned=kernel.preferences.pinned,
        busy=bool(kernel.gate.running),
        cell_waits=kernel.gate.text or None,
        memory_mib=_memory(kernel) if problem is None else _unguaranteed(kernel),
        gpu_memory_total_mib=node.totals[gpus[0]] if gpus else 0,
        saved_mib=kernel.memory.saved_mib,
        notice_deadline=_next_deadline(kernel),
        generation=kernel.assignment.generation,
        utilization=kernel.memory.utilization,
        user=kernel.registration.scheduler_user or kernel.registration.user,
        gated=kernel.has_gate(node.now),
        gate_problem=problem,
        events=list(kernel.published.events),
    )


def _gate_problem(kernel: KernelRecord, node: NodeFacts) -> str | None:
    """Kept after the end of a process that never connected: its server then tries another way."""
    is_running = kernel.process.main is not None and kernel.registration.registered
    is_ungated = is_running and not kernel.has_gate(node.now)
    return node.text.ungated(kernel) if is_ungated or kernel.registration.never_connected else None


def kernel_view(kernel: KernelRecord, node: NodeFacts) -> Kernel:
    """The kernel as its user sees it, for its notebook."""
    return compose_kernel(_request_state(kernel), kernel_runtime(kernel, node))


def _request_state(kernel: KernelRecord) -> KernelRequestState:
    """The server's report, or the lease where that is newer than the report."""
    lease = kernel.assignment.active_lease
    state = kernel.request_state or KernelRequestState(kernel_id=kernel.kernel_id, pending=False)
    if not state.name:
        state = structs.replace(state, name=kernel.registration.name)
    if lease is None or (state.workload == lease.workload and not state.pending):
        return state
    return structs.replace(
        state,
        pending=False,
        workload=lease.workload,
        project=lease.project,
        request=lease.request,
        limit=lease.limit,
        node=lease.node,
        guaranteed_mib=lease.request_mib * len(lease.planned_gpus),
        evicted=kernel.assignment.evicted,
    )


def kernel_owner(kernel: KernelRecord, *, unix_names: bool) -> KernelOwner:
    """Whose kernel it is, for the scheduler. `unix_names`: the names of unix users are the names at
    the scheduler; else only the user of a lease of this kernel is certain.
    """
    registration = kernel.registration
    user = registration.scheduler_user or (registration.user if unix_names else "")
    return KernelOwner(kernel_id=kernel.kernel_id, user=user)


def lease_report(kernel: KernelRecord, uuids: list[str], now: int) -> LeaseReport:
    """The lease as reported to the scheduler. The kernel must have one."""
    assert kernel.lease is not None
    return LeaseReport(
        lease=kernel.lease.id,
        state=kernel_state(kernel),
        gpu_uuids=[uuids[gpu] for gpu in _visible_gpus(kernel)],
        assigned_uuids=[uuids[gpu] for gpu in kernel.assignment.assigned_gpus],
        memory_mib=_memory(kernel),
        generation=kernel.assignment.generation,
        busy=kernel.is_running(now),
        utilization=kernel.memory.utilization,
        gated=kernel.is_command or kernel.has_gate(now),
    )


def _visible_gpus(kernel: KernelRecord) -> tuple[int, ...]:
    present = kernel.assignment.attached or kernel.memory.suspended
    return kernel.assignment.gpus if present else ()


def _memory(kernel: KernelRecord) -> MemoryMib:
    """Guaranteed, used and borrowed, over all its devices."""
    lease, used = kernel.assignment.active_lease, kernel.memory.used_mib
    guaranteed = lease.request_mib * max(1, len(lease.planned_gpus)) if lease else 0
    return MemoryMib(guaranteed=guaranteed, used=used, borrowed=max(0, used - guaranteed))


def _unguaranteed(kernel: KernelRecord) -> MemoryMib:
    """Of a kernel without a gate: memory that others borrowed is not reclaimed before it runs."""
    return MemoryMib(used=kernel.memory.used_mib)


def _next_deadline(kernel: KernelRecord) -> str | None:
    """When it loses its GPU or its memory next, as far as its user was notified."""
    ends_at = kernel.lease.ends_at if kernel.lease else None
    stamps = (kernel.notice.stamp, kernel.idle.stamp, ends_at)
    return min((stamp for stamp in stamps if stamp), default=None)
