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
from ..state.kernel_record import KernelRecord, about, lodger, wall_ms
from ..state.node import NodeRuntime, log
from .memory_mover import MemoryMover

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
        for book in list(node.books.values()):
            if book.lease is not None and book.lease.id not in wanted:
                self._unwant(book)
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
        book = self._node.holder(order.lease)
        if book is not None:
            self._unwant(book)

    def _acknowledged(self, lease_id: str) -> None:
        if self._node.ends.pop(lease_id, None) is not None:
            self._node.dirty = True

    def _unwant(self, book: KernelRecord) -> None:
        book.unwanted = True
        self._node.dirty = True

    def _want(self, lease: LeaseBody) -> None:
        node = self._node
        if lease.id in node.ends:  # an order that crossed our let-go on the wire: say it again
            node.ports.to_scheduler(node.ends[lease.id])
            return
        book = node.book(lease.kernel_id or lease.id)
        if book.lease is not None and book.lease.id != lease.id:
            self.drop(
                book
            )  # its owner asked anew: the old lease is gone from the plan, or is about to be
        if book.lease is None:
            book.held_back = False
        if lease == book.lease and not book.unwanted:
            return
        if lease.ends_at is not None and (
            book.lease is None or book.lease.ends_at != lease.ends_at
        ):
            self._tell_end(book, lease)
        elif (
            book.lease is not None
            and book.lease.ends_at is not None
            and lease.ends_at is None
            and lease.wanted == "hold"
        ):
            node.ports.to_kernel(
                book.kernel_id, NoticeEnded(message="The rule was changed: the GPU stays.")
            )
        book.lease, book.unwanted, node.dirty = lease, False, True
        if lease.kernel_id is not None and not book.registered and book.gone_at is None:
            book.gone_at = node.clock()

    def _tell_end(self, book: KernelRecord, lease: LeaseBody) -> None:
        """The scheduler will take it back at a moment that its holder is told now."""
        assert lease.ends_at is not None
        left = max(0, stamp_ms(lease.ends_at) - wall_ms())
        self._node.happened(book, "notice", lease.message)
        self._node.ports.to_kernel(
            book.kernel_id,
            NoticeGiven(message=lease.message, deadline_ms=left, take_mib=book.held()),
        )

    def drop(self, book: KernelRecord) -> None:
        """The lease is no longer here; the kernel, and what it saved in host memory, stay."""
        book.lease, book.home, book.site, book.unwanted = None, (), (), False
        book.attached, book.entering, book.entered, book.notice, book.notice_stamp = (
            False,
            None,
            False,
            None,
            None,
        )
        book.burst = False
        self._node.dirty = True

    # ---- homes -----------------------------------------------------------------------------------

    def arrange(self, now: int) -> None:
        """A home for every lease that has none, and a better one for those who can move at no cost
        or in peace.
        """
        for book in sorted(self._placeable(), key=lambda b: b.lease.id if b.lease else ""):
            if not book.home:
                self._land(book, now)
        for book in self._placeable():
            if book.home:
                self._improve(book, now)

    def _placeable(self) -> list[KernelRecord]:
        return [
            book
            for book in self._node.books.values()
            if book.lease is not None and not book.unwanted and book.lease.planned_gpus
        ]

    def _lodgers(self, now: int) -> list[PlacedTenant]:
        return [lodger(book, now) for book in self._placeable() if book.home]

    def _request(self, book: KernelRecord) -> PlacementRequest:
        assert book.lease is not None
        planned = tuple(book.lease.planned_gpus)
        return PlacementRequest(
            book.kernel_id,
            book.lease.request_mib,
            len(planned),
            planned,
            max(book.holding.image, default=0),
        )

    def _land(self, book: KernelRecord, now: int) -> None:
        node, request = self._node, self._request(book)
        lodgers = self._lodgers(now)
        if node.rules.workloads_per_gpu:
            made = self._welcoming(book, lodgers, request) or land(node.totals, lodgers, request)
        else:
            made = as_planned(node.totals, lodgers, request)
        if made is None:
            if book.kernel_id not in self._homeless:
                log.warning(
                    "the plan of kernel %s does not fit on the GPUs of this node",
                    book.kernel_id,
                    extra=about(book),
                )
            self._homeless.add(book.kernel_id)
            return
        self._homeless.discard(book.kernel_id)
        for name, home in made.moves.items():
            self._rehome(node.books[name], home, book)
        book.home, node.dirty = made.home, True

    def _welcoming(
        self, book: KernelRecord, lodgers: list[PlacedTenant], request: PlacementRequest
    ) -> PlacementMoves | None:
        """A free place where nothing stands in its way: on the GPUs that its process has settled
        on, else on healthy ones without strangers' memory in the room that it needs. None: there is
        none, and the scheduler's plan counts, which knows of neither.
        """
        node = self._node
        well = {device.index for device in node.devices.reports() if device.healthy}
        offered = {gpu: mib if gpu in well else 0 for gpu, mib in node.offered().items()}
        own = {gpu: mib if gpu in book.bound else 0 for gpu, mib in node.totals.items()}
        home = (spread(own, lodgers, request) if book.bound else None) or spread(
            offered, lodgers, request
        )
        return None if home is None else PlacementMoves(home, {}, 0)

    def _rehome(
        self, book: KernelRecord, home: tuple[int, ...], asker: KernelRecord | None
    ) -> None:
        old, book.home, self._node.dirty = book.home, home, True
        if book.bound and set(book.bound) != set(home) and (book.held() or book.image()):
            self._node.happened(
                book,
                "notice",
                self._node.story.must_restart(book.bound, home, book.held() + book.image(), asker),
                tell=True,
            )
        if not book.held() and book.transit is None:
            self._mover.moved(book, old, asker)

    def _improve(self, book: KernelRecord, now: int) -> None:
        """Suspended and empty kernels move for nothing; idle ones are moved in peace when nobody
        else is waiting; others stay.
        """
        leaving = book.killing or (book.lease is not None and book.lease.wanted == "evict")
        if (
            leaving
            or book.bound
            or book.transit is not None
            or book.home != (book.site or book.home)
        ):
            return
        empty = not book.held()
        if not empty and not self._is_movable(book, now):
            return
        home = self._better(book, now)
        if home is None or (not empty and not self._is_free(home, book)):
            return
        self._rehome(book, home, None)
        if not empty:
            book.entering = now

    def _is_movable(self, book: KernelRecord, now: int) -> bool:
        rests = (
            not book.is_running(now)
            and book.question is None
            and now - book.idle_since >= SETTLED_MS
            and book.main is not None
        )
        quiet = all(
            one.question is None and one.transit is None and one.stalled is None
            for one in self._node.books.values()
        )
        return (
            rests
            and quiet
            and book.has_gate(now)
            and not book.pinned
            and now >= book.no_suspend_until
        )

    def _better(self, book: KernelRecord, now: int) -> tuple[int, ...] | None:
        assert book.lease is not None
        if self._node.rules.workloads_per_gpu:
            well = {device.index for device in self._node.devices.reports() if device.healthy}
            totals = {
                gpu: mib if gpu in well else 0 for gpu, mib in self._node.totals.items()
            }  # nobody moves to one that is ill
            return rebalance(totals, self._lodgers(now), book.kernel_id)
        planned = tuple(book.lease.planned_gpus)
        if set(planned) == set(book.home) or any(gpu not in self._node.totals for gpu in planned):
            return None
        others = sum(
            one.guarantee
            for one in self._lodgers(now)
            if one.id != book.kernel_id and set(one.home) & set(planned)
        )
        return (
            planned
            if others + book.lease.request_mib <= min(self._node.totals[gpu] for gpu in planned)
            else None
        )

    def _is_free(self, home: tuple[int, ...], book: KernelRecord) -> bool:
        offered = self._node.offered()
        return all(self._node.used.get(gpu, 0) + book.held() <= offered[gpu] for gpu in home)


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
