"""What starting a share now would change for other notebooks: the placement and the reclaim ladder
on a snapshot, without carrying anything out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from jupyter_gpushare.core.model.amounts import MILLI
from jupyter_gpushare.messages import AffectedNotebook, Share, StartPreviewed, StartPreviewRequest

from ..policy.placement import PlacementMoves, PlacementRequest
from ..policy.reclaim_ladder import decide
from ..policy.reclaim_steps import WaitStep
from ..policy.snapshot import NodeSnapshot, Tenant
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime
from ..system.process_owner import ProcessOwner
from .decide import take_snapshot
from .gpu_assigner import GpuAssigner
from .observe import Observer

__all__ = ["StartPreview"]

NEW_KERNEL: Final = "new"
"""Id in the snapshot of a kernel that does not exist yet."""


class StartPreview:
    """Previews of one node."""

    def __init__(self, node: NodeRuntime, observer: Observer, assigner: GpuAssigner) -> None:
        self._node, self._observer, self._assigner = node, observer, assigner

    def preview(self, body: StartPreviewRequest, owner: ProcessOwner) -> StartPreviewed:
        """For a server of this owner, which learns the names of its own notebooks only."""
        node, now = self._node, self._node.clock()
        kernel = node.kernels.get(body.kernel_id)
        if kernel is not None and not self._node.belongs_to(kernel, owner):
            kernel = None
        request = self._placement(kernel, body)
        found = self._assigner.find(kernel, request, now)
        if found is None:
            return StartPreviewed(n=body.n)
        snapshot = self._snapshot(kernel, request, found, now)
        affected = []
        for victim in _victims(snapshot, request.id, now):
            record = node.kernels[victim.id]
            moves_to = found.moves.get(victim.id, ())
            affected.append(self._affected(record, victim, moves_to, owner, now))
        gpus = [node.uuids[gpu] for gpu in found.gpus]
        return StartPreviewed(n=body.n, gpus=gpus, affected=affected)

    def _placement(
        self, kernel: KernelRecord | None, body: StartPreviewRequest
    ) -> PlacementRequest:
        total = min(self._node.totals.values(), default=0)
        guarantee, devices = _guarantee(body.request, total)
        indexes = {uuid: index for index, uuid in enumerate(self._node.uuids)}
        planned = tuple(indexes[uuid] for uuid in body.planned_gpus if uuid in indexes)
        if len(planned) != devices:
            planned = ()
        image = max(kernel.memory.usage.image, default=0) if kernel else 0
        name = kernel.kernel_id if kernel else NEW_KERNEL
        return PlacementRequest(name, guarantee, devices, planned, image)

    def _snapshot(
        self,
        kernel: KernelRecord | None,
        request: PlacementRequest,
        found: PlacementMoves,
        now: int,
    ) -> NodeSnapshot:
        """The node with the share, and with the kernels that move for it, on their new GPUs."""
        snapshot = take_snapshot(self._node, self._observer)
        tenants = {one.id: one for one in snapshot.tenants}
        for name, gpus in found.moves.items():
            tenants[name] = replace(tenants[name], assigned_gpus=gpus)
        own = tenants.get(request.id, Tenant(request.id))
        tenants[request.id] = replace(
            own,
            guarantee=request.guarantee,
            assigned_gpus=found.gpus,
            running=False,
            evict=False,
            gives_up=False,
            wants_since=now,
            user=kernel.lease.user if kernel and kernel.lease else own.user,
        )
        return replace(snapshot, tenants=tuple(tenants.values()))

    def _affected(
        self,
        kernel: KernelRecord,
        victim: Tenant,
        moves_to: tuple[int, ...],
        owner: ProcessOwner,
        now: int,
    ) -> AffectedNotebook:
        notice_ms = 0
        if victim.needs_notice():
            notice_ms = victim.notice_ms if victim.notice is None else max(0, victim.notice - now)
        text, mib = self._node.text, sum(victim.held.values())
        name = text.affected_name(kernel, is_own=self._node.belongs_to(kernel, owner))
        message = text.affected(name, mib, notice_ms / 1000, moves_to, is_saved=victim.suspendable)
        return AffectedNotebook(name=name, memory_mib=mib, notice_ms=notice_ms, message=message)


def _guarantee(request: Share, total_mib: int) -> tuple[int, int]:
    """MiB per device, and how many devices."""
    if request.gpu_memory_mib is not None:
        return request.gpu_memory_mib, 1
    milli = round((request.gpu or 0) * MILLI)
    if milli and milli % MILLI == 0:
        return total_mib, milli // MILLI
    return milli * total_mib // MILLI, 1


def _victims(snapshot: NodeSnapshot, asker: str, now: int) -> list[Tenant]:
    """Tenants whose memory makes room for the asker."""
    for step in decide(snapshot, now).steps:
        if isinstance(step, WaitStep) and step.id == asker:
            return [snapshot.tenant(name) for name in step.blockers if name and name != asker]
    return []
