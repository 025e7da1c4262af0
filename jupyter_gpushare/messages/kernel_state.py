"""The two parts of a `Kernel`, and how they become one.

The Jupyter server knows the request (`KernelRequestState`), the node agent knows the kernel on its
node (`KernelRuntime`). Each sends the other its part; both compose them with `compose_kernel`, so
that pages and `%gpu` show the same.
"""

from __future__ import annotations

from typing import Final

from msgspec import field

from .common import (
    Body,
    Event,
    ExpectedWait,
    KernelState,
    MemoryMib,
    ReasonBody,
    Share,
    Stamp,
    Tagged,
)
from .jupyter import Kernel, PendingChange

__all__ = ["KernelRequestState", "KernelRuntime", "compose_kernel"]

AGENT_STATES: Final = ("attached", "suspended", "reclaiming", "lost")
"""States that only the node agent can report."""


class KernelRequestState(Tagged, frozen=True, kw_only=True, tag="kernel_outlook"):
    """The request of one kernel at the scheduler; without `workload`: no request."""

    kernel_id: str
    pending: bool
    """It waits for its grant."""
    name: str = ""
    """The notebook's path, or "" when it is not known."""
    preset: str | None = None
    workload: str | None = None
    project: str | None = None
    request: Share = Share()
    limit: Share = Share()
    node: str | None = None
    planned_gpu: str | None = None
    """Of the lease, as node name and GPU number; the agent knows the UUID."""
    guaranteed_mib: int = 0
    """GPU memory that the lease guarantees."""
    evicted: bool = False
    """The scheduler takes the lease back."""
    reason: ReasonBody | None = None
    position: int | None = None
    expected_wait: ExpectedWait | None = None
    refuses: str = ""
    """Why a pending request was cancelled (its longest waiting time is over): waiting cells are
    refused with this message.
    """
    change: PendingChange | None = None
    """A request that replaces this one when it is granted."""


class KernelRuntime(Body, frozen=True, kw_only=True):
    """One kernel on its node."""

    kernel_id: str
    state: KernelState = "detached"
    workload: str | None = None
    """The workload of its lease."""
    node: str | None = None
    planned_gpu: str | None = None
    gpu_uuid: str | None = None
    simulated: bool = False
    pinned: bool = False
    busy: bool = False
    cell_waits: str | None = None
    memory_mib: MemoryMib = MemoryMib()
    gpu_memory_total_mib: int = 0
    saved_mib: int = 0
    notice_deadline: Stamp | None = None
    generation: int = 0
    utilization: float | None = None
    user: str = ""
    gated: bool = False
    gate_problem: str | None = None
    events: list[Event] = field(default_factory=list)


def compose_kernel(request: KernelRequestState, runtime: KernelRuntime) -> Kernel:
    """The kernel as its user sees it. The events are the agent's."""
    on_node = _is_on_node(request, runtime)
    waits = not _is_granted(request) and not on_node
    has_lease = _has_lease(request, runtime)
    return Kernel(
        kernel_id=request.kernel_id,
        name=request.name,
        state=_state(request, runtime),
        project=request.project,
        request=request.request,
        limit=request.limit,
        node=request.node or runtime.node,
        planned_gpu=(runtime.planned_gpu if has_lease else None) or request.planned_gpu,
        gpu_uuid=runtime.gpu_uuid if on_node else None,
        simulated=runtime.simulated,
        pinned=runtime.pinned,
        busy=runtime.busy,
        cell_waits=runtime.cell_waits,
        memory_mib=_memory(request, runtime),
        gpu_memory_total_mib=runtime.gpu_memory_total_mib,
        saved_mib=runtime.saved_mib,
        reason=request.reason if waits else None,
        queue_position=request.position if waits else None,
        expected_wait=request.expected_wait if waits else None,
        notice_deadline=runtime.notice_deadline,
        generation=runtime.generation,
        workload=request.workload,
        utilization=runtime.utilization,
        user=runtime.user,
        gated=runtime.gated,
        gate_problem=runtime.gate_problem,
        preset=request.preset,
        pending_change=request.change,
        events=runtime.events,
    )


def _is_granted(request: KernelRequestState) -> bool:
    return request.workload is not None and not request.pending


def _has_lease(request: KernelRequestState, runtime: KernelRuntime) -> bool:
    """Whether the agent has the lease of this request. It may have it before the server knows."""
    return request.workload is not None and runtime.workload == request.workload


def _is_on_node(request: KernelRequestState, runtime: KernelRuntime) -> bool:
    return _has_lease(request, runtime) and runtime.state in AGENT_STATES


def _state(request: KernelRequestState, runtime: KernelRuntime) -> KernelState:
    if _is_on_node(request, runtime):
        return runtime.state
    if request.pending:
        return "pending"
    if request.workload is None:
        return "detached"
    return "reclaiming" if request.evicted else "granted"


def _memory(request: KernelRequestState, runtime: KernelRuntime) -> MemoryMib:
    """The agent's measurement; for a lease that is not on the node, the guarantee."""
    if _has_lease(request, runtime):
        return runtime.memory_mib
    if _is_granted(request) and runtime.gate_problem is None:
        return MemoryMib(guaranteed=request.guaranteed_mib)
    # An agent that still reports "attached" reports a share that was released.
    return MemoryMib() if runtime.state in AGENT_STATES else runtime.memory_mib
