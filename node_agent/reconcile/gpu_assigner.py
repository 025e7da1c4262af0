"""Which GPUs a lease is assigned on this node. The pure rules of `policy.placement` find (or
refuse) them; this file records their answers and notifies users.

A plan whose guarantees do not fit on the GPUs is not applied: the lease stays granted, without
GPUs, until the plan fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ..policy.placement import (
    PlacedTenant,
    PlacementMoves,
    PlacementRequest,
    land,
    loads,
    rebalance,
    spread,
)
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime, log
from .memory_mover import MemoryMover
from .tenants import placed_tenant

__all__ = ["GpuAssigner", "as_planned"]

SETTLED_MS: Final = 1_000
"""How long a kernel must be idle before it is moved to better GPUs."""


class GpuAssigner:
    """Assigns the GPUs of one node."""

    def __init__(self, node: NodeRuntime, mover: MemoryMover) -> None:
        self._node, self._mover = node, mover
        self._unplaced: set[str] = set()
        """Kernels whose plan did not fit when it was last tried: logged once, not at every step."""

    # ---- GPUs of new leases ----------------------------------------------------------------------

    def arrange(self, now: int) -> None:
        """Assign GPUs to every lease that has none, and better ones to kernels that can move at no
        cost, or while they are idle.
        """
        placeable = self._placeable()
        for kernel in sorted(placeable, key=lambda one: one.lease.id if one.lease else ""):
            if not kernel.assignment.assigned_gpus:
                self._place(kernel, now)
        for kernel in self._placeable():
            if kernel.assignment.assigned_gpus:
                self._improve(kernel, now)

    def _placeable(self) -> list[KernelRecord]:
        found = []
        for kernel in self._node.kernels.values():
            lease = kernel.assignment.active_lease
            if lease is not None and lease.planned_gpus:
                found.append(kernel)
        return found

    def _tenants(self, now: int) -> list[PlacedTenant]:
        placed = [kernel for kernel in self._placeable() if kernel.assignment.assigned_gpus]
        return [placed_tenant(kernel, now) for kernel in placed]

    @staticmethod
    def _request(kernel: KernelRecord) -> PlacementRequest:
        assert kernel.lease is not None
        planned = tuple(kernel.lease.planned_gpus)
        largest = max(kernel.memory.usage.image, default=0)
        return PlacementRequest(
            kernel.kernel_id, kernel.lease.request_mib, len(planned), planned, largest
        )

    def _place(self, kernel: KernelRecord, now: int) -> None:
        found = self.find(kernel, self._request(kernel), now)
        if found is None:
            self._log_unplaced(kernel)
            return
        self._unplaced.discard(kernel.kernel_id)
        for name, gpus in found.moves.items():
            self._reassign(self._node.kernels[name], gpus, kernel)
        kernel.assignment.assigned_gpus, self._node.dirty = found.gpus, True

    def find(
        self, kernel: KernelRecord | None, request: PlacementRequest, now: int
    ) -> PlacementMoves | None:
        """GPUs for a request, in place of this kernel's share; None: it does not fit."""
        totals = self._node.totals
        tenants = [one for one in self._tenants(now) if one.id != request.id]
        if not self._node.rules.workloads_per_gpu:
            return as_planned(totals, tenants, request)
        return self._free_place(kernel, tenants, request) or land(totals, tenants, request)

    def _log_unplaced(self, kernel: KernelRecord) -> None:
        if kernel.kernel_id not in self._unplaced:
            self._unplaced.add(kernel.kernel_id)
            log.warning(
                "the plan of kernel %s does not fit on the GPUs of this node",
                kernel.kernel_id,
                extra=kernel.log_fields(),
            )

    def _free_place(
        self, kernel: KernelRecord | None, tenants: list[PlacedTenant], request: PlacementRequest
    ) -> PlacementMoves | None:
        """GPUs with enough free memory: those that its process is bound to, or that hold its memory
        since its last turn; else healthy ones without memory of other processes in the way. None:
        there are none, and the scheduler's plan counts, which knows of neither.
        """
        own_gpus = _own_gpus(kernel) if kernel else set()
        if own_gpus:
            own = _only(self._node.totals, own_gpus)
            if gpus := spread(own, tenants, request):
                return PlacementMoves(gpus, {}, 0)
        available = _only(self._node.available(), self._node.healthy_gpus())
        gpus = spread(available, tenants, request)
        return None if gpus is None else PlacementMoves(gpus, {}, 0)

    def _reassign(
        self, kernel: KernelRecord, gpus: tuple[int, ...], asker: KernelRecord | None
    ) -> None:
        node, assignment, memory = self._node, kernel.assignment, kernel.memory
        old, assignment.assigned_gpus, node.dirty = assignment.assigned_gpus, gpus, True
        mib = memory.used_mib + memory.saved_mib
        if assignment.must_change_gpus and mib:
            text = node.text.must_restart(assignment.bound_gpus, gpus, mib, asker)
            node.record_event(kernel, "notice", text, notify=True)
        if not memory.used_mib and memory.transit is None:
            self._mover.note_move(kernel, old, asker)

    # ---- better GPUs -----------------------------------------------------------------------------

    def _improve(self, kernel: KernelRecord, now: int) -> None:
        """Suspended and empty kernels move for free; idle ones move while no cell waits; others
        stay.
        """
        assignment = kernel.assignment
        is_leaving = kernel.process.killing or assignment.evicted
        is_moving = kernel.memory.transit or assignment.assigned_gpus != assignment.gpus
        if is_leaving or is_moving or assignment.bound_gpus:
            return
        is_empty = not kernel.memory.used_mib
        if not is_empty and not self._is_movable(kernel, now):
            return
        gpus = self._better_gpus(kernel, now)
        if gpus is None or (not is_empty and not self._has_room(gpus, kernel)):
            return
        self._reassign(kernel, gpus, None)
        if not is_empty:
            assignment.entering_since = now

    def _is_movable(self, kernel: KernelRecord, now: int) -> bool:
        """Whether it is idle, can be suspended, and no kernel of the node waits."""
        is_busy = kernel.is_running(now) or now - kernel.gate.idle_since < SETTLED_MS
        if is_busy or kernel.process.main is None or not kernel.has_gate(now):
            return False
        if kernel.preferences.pinned or not kernel.memory.can_suspend(now):
            return False
        for other in self._node.kernels.values():
            copies = other.memory.transit is not None or other.memory.stalled_since is not None
            if other.gate.waiting or copies:
                return False
        return True

    def _better_gpus(self, kernel: KernelRecord, now: int) -> tuple[int, ...] | None:
        node, lease = self._node, kernel.lease
        assert lease is not None
        tenants = self._tenants(now)
        if node.rules.workloads_per_gpu:
            healthy = _only(node.totals, node.healthy_gpus())
            return rebalance(healthy, tenants, kernel.kernel_id)
        planned = tuple(lease.planned_gpus)
        is_there = set(planned) == set(kernel.assignment.assigned_gpus)
        if is_there or any(gpu not in node.totals for gpu in planned):
            return None
        others = 0
        for one in tenants:
            if one.id != kernel.kernel_id and set(one.assigned_gpus) & set(planned):
                others += one.guarantee
        smallest = min(node.totals[gpu] for gpu in planned)
        return planned if others + lease.request_mib <= smallest else None

    def _has_room(self, gpus: tuple[int, ...], kernel: KernelRecord) -> bool:
        available, used, needed = self._node.available(), self._node.used, kernel.memory.used_mib
        return all(used.get(gpu, 0) + needed <= available[gpu] for gpu in gpus)


def _own_gpus(kernel: KernelRecord) -> set[int]:
    return set(kernel.assignment.bound_gpus) or set(kernel.memory.usage.held)


def _only(totals: Mapping[int, int], gpus: set[int]) -> dict[int, int]:
    """No memory on all other GPUs."""
    return {gpu: mib if gpu in gpus else 0 for gpu, mib in totals.items()}


def as_planned(
    totals: Mapping[int, int], tenants: Sequence[PlacedTenant], request: PlacementRequest
) -> PlacementMoves | None:
    """Without node-level scheduling a lease is assigned to the planned GPUs, if the guarantees that
    are there now leave the room; else every lease goes exactly where the plan says. None when the
    plan does not fit.
    """
    if any(gpu not in totals for gpu in request.planned):
        return None
    load = loads(totals, tenants)
    if all(load[gpu] + request.guarantee <= totals[gpu] for gpu in request.planned):
        return PlacementMoves(request.planned, {}, 0)
    new = PlacedTenant(request.id, request.guarantee, request.planned, request.planned)
    planned = [replace(one, assigned_gpus=one.planned) for one in tenants]
    load = loads(totals, [*planned, new])
    if any(load[gpu] > totals[gpu] for gpu in totals):
        return None
    moving = [one for one in tenants if set(one.planned) != set(one.assigned_gpus)]
    moves = {one.id: one.planned for one in moving}
    return PlacementMoves(request.planned, moves, sum(one.resident for one in moving))
