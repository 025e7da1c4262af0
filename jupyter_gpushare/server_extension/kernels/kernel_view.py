"""The server's part of a kernel, for the node agent, and the composed kernel, for pages. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from jupyter_gpushare.messages import (
    ExpectedWait,
    Kernel,
    KernelRequestState,
    KernelRuntime,
    PendingChange,
    ReasonBody,
    Share,
    compose_kernel,
)

from .kernel_entry import KernelEntry, RequestedChange
from .own_shares import ReleasableShare, with_releases
from .request import shares

__all__ = ["kernel_request_state", "kernel_view"]


def kernel_view(entry: KernelEntry, releasable: Sequence[ReleasableShare] = ()) -> Kernel:
    """The kernel as its owner sees it. `releasable`: shares that its user could release."""
    runtime = entry.runtime or KernelRuntime(kernel_id=entry.kernel_id)
    kernel = compose_kernel(kernel_request_state(entry, releasable), runtime)
    return structs.replace(kernel, events=list(entry.events))


def kernel_request_state(
    entry: KernelEntry, releasable: Sequence[ReleasableShare] = ()
) -> KernelRequestState:
    """The state of the kernel's request. `releasable`: shares that its user could release."""
    request, limit = _shares(entry)
    lease = entry.lease
    return KernelRequestState(
        kernel_id=entry.kernel_id,
        pending=entry.workload_id is not None and lease is None,
        name=entry.name,
        preset=entry.request.preset if entry.request else None,
        workload=entry.workload_id,
        project=_project(entry),
        request=request,
        limit=limit,
        node=lease.node if lease else None,
        planned_gpu=", ".join(f"{lease.node}/{gpu}" for gpu in lease.planned_gpus)
        if lease
        else None,
        guaranteed_mib=lease.request_mib * len(lease.planned_gpus) if lease else 0,
        evicted=lease is not None and lease.wanted == "evict",
        reason=_reason(entry, releasable),
        refuses=entry.problem.message if entry.workload_id is None and entry.problem else "",
        position=entry.workload.queue_position if entry.workload and lease is None else None,
        expected_wait=_expected_wait(entry),
        change=_pending_change(entry, entry.change, releasable) if entry.change else None,
    )


def _pending_change(
    entry: KernelEntry, change: RequestedChange, releasable: Sequence[ReleasableShare]
) -> PendingChange:
    request, limit = shares(change.request)
    workload = change.workload
    if workload is None:
        return PendingChange(workload=change.workload_id, request=request, limit=limit)
    return PendingChange(
        workload=workload.id,
        request=workload.request,
        limit=workload.limit,
        project=workload.project,
        reason=_beyond_current(
            _with_releases(workload.reason, entry, workload.project, releasable), _shares(entry)[0]
        ),
        queue_position=workload.queue_position,
        expected_wait=workload.expected_wait,
    )


def _beyond_current(reason: ReasonBody | None, current: Share) -> ReasonBody | None:
    """Without the suggestion of a share that is not larger than the current one."""
    if reason is None:
        return None
    helps = [
        one
        for one in reason.helps
        if one.change != "gpu" or current.gpu is None or float(one.to) > current.gpu
    ]
    return structs.replace(reason, helps=helps)


def _project(entry: KernelEntry) -> str | None:
    if entry.workload is not None:
        return entry.workload.project
    return entry.request.project if entry.request is not None else None


def _shares(entry: KernelEntry) -> tuple[Share, Share]:
    if entry.workload is not None:
        return entry.workload.request, entry.workload.limit
    return shares(entry.request) if entry.request is not None else (Share(), Share())


def _expected_wait(entry: KernelEntry) -> ExpectedWait | None:
    """Only of a request that waits in the scheduler."""
    if entry.lease is not None or entry.problem is not None or entry.workload is None:
        return None
    return entry.workload.expected_wait


def _reason(entry: KernelEntry, releasable: Sequence[ReleasableShare]) -> ReasonBody | None:
    """Only of a kernel that waits, or whose request was refused."""
    if entry.lease is not None:
        return None
    reason = entry.problem or (entry.workload.reason if entry.workload else None)
    return _with_releases(reason, entry, _project(entry), releasable)


def _with_releases(
    reason: ReasonBody | None,
    entry: KernelEntry,
    project: str | None,
    releasable: Sequence[ReleasableShare],
) -> ReasonBody | None:
    if reason is None:
        return None
    return with_releases(reason, entry.kernel_id, project, releasable)
