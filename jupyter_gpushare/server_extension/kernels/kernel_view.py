"""Composes one `Kernel` from the reports of the scheduler and the node agent. Pure.

The scheduler is the authority for the request and the grant, the agent for what runs where.
"""

from __future__ import annotations

from jupyter_gpushare.messages import (
    ExpectedWait,
    Kernel,
    KernelRequestState,
    LeaseBody,
    MemoryMib,
    ReasonBody,
    Share,
)

from .kernel_entry import AGENT_STATES, KernelEntry
from .request import shares

__all__ = ["kernel_request_state", "kernel_view"]


def kernel_view(entry: KernelEntry) -> Kernel:
    """The kernel as its owner sees it."""
    agent = entry.agent or Kernel(kernel_id=entry.kernel_id)
    request, limit = _shares(entry)
    return Kernel(
        kernel_id=entry.kernel_id,
        name=entry.name,
        state=entry.state,
        project=_project(entry),
        request=request,
        limit=limit,
        node=entry.lease.node if entry.lease else agent.node,
        planned_gpu=_planned_gpu(entry),
        gpu_uuid=agent.gpu_uuid if entry.is_on_node else None,
        simulated=agent.simulated,
        pinned=agent.pinned,
        busy=agent.busy,
        cell_waits=agent.cell_waits,
        memory_mib=_memory(entry, agent),
        gpu_memory_total_mib=agent.gpu_memory_total_mib,
        saved_mib=agent.saved_mib,
        reason=_reason(entry),
        queue_position=_position(entry) if entry.state == "pending" else None,
        expected_wait=_expected_wait(entry),
        notice_deadline=agent.notice_deadline,
        generation=agent.generation,
        workload=entry.workload_id,
        preset=entry.request.preset if entry.request else None,
        events=list(entry.events),
    )


def kernel_request_state(entry: KernelEntry) -> KernelRequestState:
    """The scheduler's part, for the agent."""
    request, limit = _shares(entry)
    return KernelRequestState(
        kernel_id=entry.kernel_id,
        pending=entry.state == "pending",
        project=entry.workload.project if entry.workload else None,
        request=request,
        limit=limit,
        reason=_reason(entry),
        refuses=entry.problem.message if entry.was_cancelled and entry.problem else "",
        position=_position(entry) if entry.lease is None else None,
        expected_wait=_expected_wait(entry),
    )


def _project(entry: KernelEntry) -> str | None:
    if entry.workload is not None:
        return entry.workload.project
    return entry.request.project if entry.request is not None else None


def _shares(entry: KernelEntry) -> tuple[Share, Share]:
    if entry.workload is not None:
        return entry.workload.request, entry.workload.limit
    return shares(entry.request) if entry.request is not None else (Share(), Share())


def _planned_gpu(entry: KernelEntry) -> str | None:
    """The agent knows the UUIDs of its GPUs; until it has the lease: node and GPU number."""
    agent, lease = entry.agent, entry.lease
    if agent is not None and agent.workload == entry.workload_id and agent.planned_gpu:
        return agent.planned_gpu
    return ", ".join(f"{lease.node}/{index}" for index in lease.planned_gpus) if lease else None


def _guaranteed(lease: LeaseBody) -> int:
    return lease.request_mib * len(lease.planned_gpus)


def _memory(entry: KernelEntry, agent: Kernel) -> MemoryMib:
    """The agent's measurement; for a lease that is not on the node, the scheduler's guarantee."""
    if entry.is_on_node:
        return agent.memory_mib
    if entry.lease is not None:
        return MemoryMib(guaranteed=_guaranteed(entry.lease))
    # An agent that still reports "attached" reports a share that was released.
    return MemoryMib() if agent.state in AGENT_STATES else agent.memory_mib


def _position(entry: KernelEntry) -> int | None:
    return entry.workload.queue_position if entry.workload is not None else None


def _expected_wait(entry: KernelEntry) -> ExpectedWait | None:
    """Only of a kernel whose request waits in the scheduler."""
    if entry.lease is not None or entry.is_on_node or entry.problem is not None:
        return None
    return entry.workload.expected_wait if entry.workload is not None else None


def _reason(entry: KernelEntry) -> ReasonBody | None:
    """Only of a kernel that waits, or whose request was refused."""
    if entry.lease is not None or entry.is_on_node:
        return None
    return entry.problem or (entry.workload.reason if entry.workload else None)
