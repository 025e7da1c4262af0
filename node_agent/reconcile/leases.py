"""Two maps: where the scheduler planned each lease, and where it lives here. Applies orders of the
scheduler; finds and changes homes.

A home is always found (or refused) by the pure rules of `placement`; this file only writes the
answers down and tells people. A plan whose guarantees do not fit on the GPUs is not realised: the
lease stays granted, without a home, until the plan is a packing again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from jupyter_gpushare.messages import (
    LeaseBody,
    LeaseRevoked,
    LeaseUpdated,
    NoticeEnded,
    NoticeGiven,
    Plan,
    stamp_ms,
)

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
from ..state.wall_clock import wall_ms
from .memory_mover import MemoryMover
from .tenants import placed_tenant

__all__ = ["LeaseAssignments"]

SETTLED_MS = 1_000
"""How long a kernel must be idle before it is moved to a better place of its own accord."""


class LeaseAssignments:
    """The lease side of the books."""

    def __init__(self, node: NodeRuntime, mover: MemoryMover) -> None:
        self._node, self._mover = node, mover
        self._homeless: set[str] = set()
        """Whose plan did not fit when it was last tried: said once, not at every step."""

    # ---- orders ----------------------------------------------------------------------------------

    def plan(self, plan: Plan) -> None:
        """The whole wanted state: what it lacks is let go, what it adds is taken in."""
        node = self._node
        node.planned = True
        if plan.rules != node.rules:
            node.rules, node.dirty = plan.rules, True
        wanted = {lease.id for lease in plan.leases}
        for lease_id in [end for end in node.ends if end not in wanted]:
            self._acknowledged(lease_id)
        for kernel in list(node.kernels.values()):
            if kernel.lease is not None and kernel.lease.id not in wanted:
                self._unwant(kernel)
        for lease in plan.leases:
            self._want(lease)
        for body in node.ends.values():
            node.ports.to_scheduler(body)

    def wanted(self, order: LeaseUpdated) -> None:
        """One lease is new or changed."""
        self._want(order.lease)

    def unwanted(self, order: LeaseRevoked) -> None:
        """One lease is over; its kernel lives on without a GPU."""
        self._acknowledged(order.lease)
        kernel = self._node.holder(order.lease)
        if kernel is not None:
            self._unwant(kernel)

    def _acknowledged(self, lease_id: str) -> None:
        if self._node.ends.pop(lease_id, None) is not None:
            self._node.dirty = True

    def _unwant(self, kernel: KernelRecord) -> None:
        kernel.assignment.lease_revoked = True
        self._node.dirty = True

    def _want(self, lease: LeaseBody) -> None:
        node = self._node
        if lease.id in node.ends:  # an order that crossed our let-go on the wire: say it again
            node.ports.to_scheduler(node.ends[lease.id])
            return
        kernel = node.open_kernel(lease.kernel_id or lease.id)
        if kernel.lease is not None and kernel.lease.id != lease.id:
            self.drop(
                kernel
            )  # its owner asked anew: the old lease is gone from the plan, or is about to be
        if kernel.lease is None:
            kernel.preferences.suspended_by_user = False
        if lease == kernel.lease and not kernel.assignment.lease_revoked:
            return
        if lease.ends_at is not None and (
            kernel.lease is None or kernel.lease.ends_at != lease.ends_at
        ):
            self._tell_end(kernel, lease)
        elif (
            kernel.lease is not None
            and kernel.lease.ends_at is not None
            and lease.ends_at is None
            and lease.wanted == "hold"
        ):
            node.ports.to_kernel(
                kernel.kernel_id, NoticeEnded(message="The rule was changed: the GPU stays.")
            )
        kernel.assignment.accept(lease)
        node.dirty = True
        if (
            lease.kernel_id is not None
            and not kernel.registration.registered
            and kernel.process.gone_at is None
        ):
            kernel.process.gone_at = node.clock()

    def _tell_end(self, kernel: KernelRecord, lease: LeaseBody) -> None:
        """The scheduler will take it back at a moment that its holder is told now."""
        assert lease.ends_at is not None
        left = max(0, stamp_ms(lease.ends_at) - wall_ms())
        self._node.happened(kernel, "notice", lease.message)
        self._node.ports.to_kernel(
            kernel.kernel_id,
            NoticeGiven(message=lease.message, deadline_ms=left, take_mib=kernel.memory.used_mib),
        )

    def drop(self, kernel: KernelRecord) -> None:
        """The lease is no longer here; the kernel, and what it saved in host memory, stay."""
        kernel.drop_lease()
        self._node.dirty = True

    # ---- homes -----------------------------------------------------------------------------------

    def arrange(self, now: int) -> None:
        """A home for every lease that has none, and a better one for those who can move at no cost
        or in peace.
        """
        for kernel in sorted(self._placeable(), key=lambda b: b.lease.id if b.lease else ""):
            if not kernel.assignment.assigned_gpus:
                self._land(kernel, now)
        for kernel in self._placeable():
            if kernel.assignment.assigned_gpus:
                self._improve(kernel, now)

    def _placeable(self) -> list[KernelRecord]:
        return [
            kernel
            for kernel in self._node.kernels.values()
            if kernel.lease is not None
            and not kernel.assignment.lease_revoked
            and kernel.lease.planned_gpus
        ]

    def _lodgers(self, now: int) -> list[PlacedTenant]:
        return [
            placed_tenant(kernel, now)
            for kernel in self._placeable()
            if kernel.assignment.assigned_gpus
        ]

    def _request(self, kernel: KernelRecord) -> PlacementRequest:
        assert kernel.lease is not None
        planned = tuple(kernel.lease.planned_gpus)
        return PlacementRequest(
            kernel.kernel_id,
            kernel.lease.request_mib,
            len(planned),
            planned,
            max(kernel.memory.usage.image, default=0),
        )

    def _land(self, kernel: KernelRecord, now: int) -> None:
        node, request = self._node, self._request(kernel)
        lodgers = self._lodgers(now)
        if node.rules.workloads_per_gpu:
            made = self._welcoming(kernel, lodgers, request) or land(node.totals, lodgers, request)
        else:
            made = as_planned(node.totals, lodgers, request)
        if made is None:
            if kernel.kernel_id not in self._homeless:
                log.warning(
                    "the plan of kernel %s does not fit on the GPUs of this node",
                    kernel.kernel_id,
                    extra=kernel.log_fields(),
                )
            self._homeless.add(kernel.kernel_id)
            return
        self._homeless.discard(kernel.kernel_id)
        for name, home in made.moves.items():
            self._rehome(node.kernels[name], home, kernel)
        kernel.assignment.assigned_gpus, node.dirty = made.home, True

    def _welcoming(
        self, kernel: KernelRecord, lodgers: list[PlacedTenant], request: PlacementRequest
    ) -> PlacementMoves | None:
        """A free place where nothing stands in its way: on the GPUs that its process has settled
        on, else on healthy ones without strangers' memory in the room that it needs. None: there is
        none, and the scheduler's plan counts, which knows of neither.
        """
        node = self._node
        well = {device.index for device in node.devices.reports() if device.healthy}
        offered = {gpu: mib if gpu in well else 0 for gpu, mib in node.offered().items()}
        own = {
            gpu: mib if gpu in kernel.assignment.bound_gpus else 0
            for gpu, mib in node.totals.items()
        }
        home = (spread(own, lodgers, request) if kernel.assignment.bound_gpus else None) or spread(
            offered, lodgers, request
        )
        return None if home is None else PlacementMoves(home, {}, 0)

    def _rehome(
        self, kernel: KernelRecord, home: tuple[int, ...], asker: KernelRecord | None
    ) -> None:
        old, kernel.assignment.assigned_gpus, self._node.dirty = (
            kernel.assignment.assigned_gpus,
            home,
            True,
        )
        if (
            kernel.assignment.bound_gpus
            and set(kernel.assignment.bound_gpus) != set(home)
            and (kernel.memory.used_mib or kernel.memory.saved_mib)
        ):
            self._node.happened(
                kernel,
                "notice",
                self._node.text.must_restart(
                    kernel.assignment.bound_gpus,
                    home,
                    kernel.memory.used_mib + kernel.memory.saved_mib,
                    asker,
                ),
                tell=True,
            )
        if not kernel.memory.used_mib and kernel.memory.transit is None:
            self._mover.moved(kernel, old, asker)

    def _improve(self, kernel: KernelRecord, now: int) -> None:
        """Suspended and empty kernels move for nothing; idle ones are moved in peace when nobody
        else is waiting; others stay.
        """
        leaving = kernel.process.killing or (
            kernel.lease is not None and kernel.lease.wanted == "evict"
        )
        if (
            leaving
            or kernel.assignment.bound_gpus
            or kernel.memory.transit is not None
            or kernel.assignment.assigned_gpus
            != (kernel.assignment.current_gpus or kernel.assignment.assigned_gpus)
        ):
            return
        empty = not kernel.memory.used_mib
        if not empty and not self._is_movable(kernel, now):
            return
        home = self._better(kernel, now)
        if home is None or (not empty and not self._is_free(home, kernel)):
            return
        self._rehome(kernel, home, None)
        if not empty:
            kernel.assignment.entering_since = now

    def _is_movable(self, kernel: KernelRecord, now: int) -> bool:
        rests = (
            not kernel.is_running(now)
            and not kernel.gate.waiting
            and now - kernel.gate.idle_since >= SETTLED_MS
            and kernel.process.main is not None
        )
        quiet = all(
            not one.gate.waiting and one.memory.transit is None and one.memory.stalled_since is None
            for one in self._node.kernels.values()
        )
        return (
            rests
            and quiet
            and kernel.has_gate(now)
            and not kernel.preferences.pinned
            and now >= kernel.memory.no_suspend_until
        )

    def _better(self, kernel: KernelRecord, now: int) -> tuple[int, ...] | None:
        assert kernel.lease is not None
        if self._node.rules.workloads_per_gpu:
            well = {device.index for device in self._node.devices.reports() if device.healthy}
            totals = {
                gpu: mib if gpu in well else 0 for gpu, mib in self._node.totals.items()
            }  # nobody moves to one that is ill
            return rebalance(totals, self._lodgers(now), kernel.kernel_id)
        planned = tuple(kernel.lease.planned_gpus)
        if set(planned) == set(kernel.assignment.assigned_gpus) or any(
            gpu not in self._node.totals for gpu in planned
        ):
            return None
        others = sum(
            one.guarantee
            for one in self._lodgers(now)
            if one.id != kernel.kernel_id and set(one.home) & set(planned)
        )
        return (
            planned
            if others + kernel.lease.request_mib <= min(self._node.totals[gpu] for gpu in planned)
            else None
        )

    def _is_free(self, home: tuple[int, ...], kernel: KernelRecord) -> bool:
        offered = self._node.offered()
        return all(
            self._node.used.get(gpu, 0) + kernel.memory.used_mib <= offered[gpu] for gpu in home
        )


def as_planned(
    totals: Mapping[int, int], lodgers: Sequence[PlacedTenant], request: PlacementRequest
) -> PlacementMoves | None:
    """Without node-level scheduling a lease lives where it was planned, if the guarantees that live
    there now leave the room; else everybody goes exactly where the plan says. None when the plan
    does not fit.
    """
    if any(gpu not in totals for gpu in request.planned):
        return None
    load = loads(totals, lodgers)
    if all(load[gpu] + request.guarantee <= totals[gpu] for gpu in request.planned):
        return PlacementMoves(request.planned, {}, 0)
    planned = [replace(one, home=one.planned) for one in lodgers]
    load = loads(
        totals,
        [*planned, PlacedTenant(request.id, request.guarantee, request.planned, request.planned)],
    )
    if any(load[gpu] > totals[gpu] for gpu in totals):
        return None
    moves = {one.id: one.planned for one in lodgers if set(one.planned) != set(one.home)}
    return PlacementMoves(
        request.planned, moves, sum(one.resident for one in lodgers if one.id in moves)
    )
