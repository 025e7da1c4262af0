"""Which GPUs a lease is assigned: spread new leases, make room by moving the fewest bytes, fall
back to the scheduler's plan. Pure.

The scheduler plans on *planned* GPUs, packed; on the node, leases are spread over *actual* GPUs.
Invariants: the guarantees on one GPU fit on it, and the scheduler's plan stays a packing that could
be applied. Evacuation moves single leases directly (no swaps); when that does not make enough room,
`converge` applies the plan itself under the renaming of GPUs that moves the fewest bytes, which
always works because the plan fits.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

__all__ = [
    "PlacedTenant",
    "PlacementMoves",
    "PlacementRequest",
    "converge",
    "evacuate",
    "land",
    "loads",
    "rebalance",
    "spread",
]

MAX_NODES: Final = 20_000
"""Bound of the search; the best found so far counts then. 8 GPUs with 40 leases stay far below it.
"""
MAX_SETS: Final = 500
"""Bound on the sets of GPUs tried for a lease on several devices: all of them for 2 of 16 or 4 of
8, at most.
"""


@dataclass(frozen=True, slots=True)
class PlacedTenant:
    """A lease: guarantee per device, its GPUs, its planned GPUs. `resident`: MiB to copy."""

    id: str
    guarantee: int
    assigned_gpus: tuple[int, ...]
    planned: tuple[int, ...]
    resident: int = 0
    running: bool = False
    bursting: bool = False
    movable: bool = True


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A lease that needs GPUs: `guarantee` on each of `devices` GPUs, none smaller than `largest`
    MiB (the largest part of its saved memory).
    """

    id: str
    guarantee: int
    devices: int
    planned: tuple[int, ...]
    largest: int = 0


@dataclass(frozen=True, slots=True)
class PlacementMoves:
    """GPUs for the request, and for every tenant that has to move; `moved` is MiB copied."""

    gpus: tuple[int, ...]
    moves: Mapping[str, tuple[int, ...]]
    moved: int


def loads(totals: Mapping[int, int], tenants: Sequence[PlacedTenant]) -> dict[int, int]:
    """Sum of guarantees per GPU."""
    load = dict.fromkeys(totals, 0)
    for tenant in tenants:
        for gpu in tenant.assigned_gpus:
            load[gpu] += tenant.guarantee
    return load


def spread(
    totals: Mapping[int, int], tenants: Sequence[PlacedTenant], request: PlacementRequest
) -> tuple[int, ...] | None:
    """The least loaded GPUs that take the guarantee, by (sum of guarantees, active bursters,
    resident bytes, index); None if too few do.
    """
    load = loads(totals, tenants)

    def order(gpu: int) -> tuple[int, int, int, int]:
        here = [tenant for tenant in tenants if gpu in tenant.assigned_gpus]
        return (
            load[gpu],
            sum(one.bursting and one.running for one in here),
            sum(one.resident for one in here),
            gpu,
        )

    fits = []
    for gpu, total in totals.items():
        if load[gpu] + request.guarantee <= total and total >= request.largest:
            fits.append(gpu)
    chosen = sorted(fits, key=order)[: request.devices]
    return tuple(chosen) if len(chosen) == request.devices else None


def land(
    totals: Mapping[int, int], tenants: Sequence[PlacedTenant], request: PlacementRequest
) -> PlacementMoves | None:
    """GPUs for a new lease: free ones if possible, else by the cheapest evacuation, else by the
    plan; None when the plan does not fit.
    """
    gpus = spread(totals, tenants, request)
    if gpus is not None:
        return PlacementMoves(gpus, {}, 0)
    return evacuate(totals, tenants, request) or converge(totals, tenants, request)


Cost = tuple[int, int, int, int]
"""Leases that would be killed, MiB moved, running ones moved, leases moved: compared in this order.
"""


def _price(tenant: PlacedTenant) -> Cost:
    return int(not tenant.movable), tenant.resident, int(tenant.running), 1


def _plus(a: Cost, b: Cost) -> Cost:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


class _Search:
    """Exact search for the cheapest evacuation of one set of GPUs; keeps the best over all sets."""

    def __init__(
        self, totals: Mapping[int, int], tenants: Sequence[PlacedTenant], request: PlacementRequest
    ) -> None:
        self.totals, self.tenants, self.request = totals, {one.id: one for one in tenants}, request
        self.best: tuple[Cost, tuple[int, ...], dict[str, tuple[int, ...]]] | None = None
        self.nodes = 0

    def evacuate(self, targets: tuple[int, ...]) -> None:
        """Try this set of GPUs."""
        self.targets = targets
        slots: list[tuple[PlacedTenant, int]] = []
        for one in self.tenants.values():
            slots += [(one, gpu) for gpu in one.assigned_gpus if gpu in targets]
        # Large guarantees first: they have the fewest places to go, so a dead end shows early.
        slots.sort(key=lambda s: (-s[0].guarantee, s[0].id, s[1]))
        load = loads(self.totals, list(self.tenants.values()))
        room = {gpu: total - load[gpu] for gpu, total in self.totals.items()}
        for gpu in targets:
            room[gpu] -= self.request.guarantee
        self._go(slots, 0, room, {}, (0, 0, 0, 0))

    def _go(
        self,
        slots: list[tuple[PlacedTenant, int]],
        at: int,
        room: dict[int, int],
        homes: dict[str, tuple[int, ...]],
        cost: Cost,
    ) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES or (self.best is not None and cost >= self.best[0]):
            return
        if all(room[gpu] >= 0 for gpu in self.targets):
            self.best = cost, self.targets, dict(homes)
            return
        if at == len(slots):
            return
        if room[slots[at][1]] < 0:
            self._move(slots, at, room, homes, cost)
        self._go(slots, at + 1, room, homes, cost)

    def _move(
        self,
        slots: list[tuple[PlacedTenant, int]],
        at: int,
        room: dict[int, int],
        homes: dict[str, tuple[int, ...]],
        cost: Cost,
    ) -> None:
        tenant, gpu = slots[at]
        gpus = homes.get(tenant.id, tenant.assigned_gpus)
        price = cost if tenant.id in homes else _plus(cost, _price(tenant))
        tried: set[tuple[int, int]] = set()
        for other in sorted(room, key=lambda one: (room[one], one)):
            alike = (room[other], self.totals[other])
            if other in gpus or room[other] < tenant.guarantee or alike in tried:
                continue
            if len(tenant.assigned_gpus) == 1 and other not in self.targets:
                # equally empty GPUs of one size are the same for a lease with one device
                tried.add(alike)
            moved = room | {
                gpu: room[gpu] + tenant.guarantee,
                other: room[other] - tenant.guarantee,
            }
            new = tuple(other if old == gpu else old for old in gpus)
            self._go(slots, at + 1, moved, homes | {tenant.id: new}, price)


def evacuate(
    totals: Mapping[int, int], tenants: Sequence[PlacedTenant], request: PlacementRequest
) -> PlacementMoves | None:
    """The cheapest way to make room by moving single leases: no kernel killed if possible, then the
    fewest MiB, then the fewest running and the fewest leases; ties go to the GPUs with the lowest
    indexes. None when no set of direct moves is enough.
    """
    search = _Search(totals, tenants, request)
    big = sorted(gpu for gpu in totals if totals[gpu] >= max(request.guarantee, request.largest))
    for targets in itertools.islice(itertools.combinations(big, request.devices), MAX_SETS):
        search.evacuate(targets)
    if search.best is None:
        return None
    cost, targets, homes = search.best
    return PlacementMoves(targets, homes, cost[1])


def converge(
    totals: Mapping[int, int], tenants: Sequence[PlacedTenant], request: PlacementRequest | None
) -> PlacementMoves | None:
    """Every lease goes where the plan says, under the renaming of equally large GPUs that copies
    the fewest MiB. None when a plan names a GPU that is not there or does not fit.
    """
    planned = [replace(one, assigned_gpus=one.planned) for one in tenants]
    if request is not None:
        planned.append(
            PlacedTenant(request.id, request.guarantee, request.planned, request.planned)
        )
    if any(gpu not in totals for one in planned for gpu in one.assigned_gpus):
        return None
    if any(load > totals[gpu] for gpu, load in loads(totals, planned).items()):
        return None
    name = _cheapest_names(totals, tenants)
    moves: dict[str, tuple[int, ...]] = {}
    for one in tenants:
        gpus = tuple(name[gpu] for gpu in one.planned)
        if set(gpus) != set(one.assigned_gpus):
            moves[one.id] = gpus
    moved = sum(one.resident for one in tenants if one.id in moves)
    new = tuple(name[gpu] for gpu in request.planned) if request else ()
    return PlacementMoves(new, moves, moved)


def _cheapest_names(totals: Mapping[int, int], tenants: Sequence[PlacedTenant]) -> dict[int, int]:
    """planned GPU -> actual GPU: an assignment problem on what would have to be copied."""
    gpus = sorted(totals)
    total = sum(one.resident for one in tenants) + 1
    cost = [[0 if totals[v] == totals[p] else total * len(gpus) for p in gpus] for v in gpus]
    for one in tenants:
        for virtual in one.planned:
            for column, physical in enumerate(gpus):
                if physical not in one.assigned_gpus:
                    cost[gpus.index(virtual)][column] += one.resident
    return {gpus[row]: gpus[column] for row, column in enumerate(_assign(cost))}


def _assign(cost: Sequence[Sequence[int]]) -> list[int]:
    """Column per row with the least sum (the Hungarian method, shortest augmenting paths, O(n^3));
    lower columns first on ties.
    """
    n = len(cost)
    row_price, column_price, row_of = [0] * (n + 1), [0] * (n + 1), [0] * (n + 1)
    for row in range(1, n + 1):
        row_of[0], at = row, 0
        slack, back, done = [1 << 62] * (n + 1), [0] * (n + 1), [False] * (n + 1)
        while True:
            done[at] = True
            least, following = 1 << 62, 0
            for column in range(1, n + 1):
                if done[column]:
                    continue
                gap = (
                    cost[row_of[at] - 1][column - 1] - row_price[row_of[at]] - column_price[column]
                )
                if gap < slack[column]:
                    slack[column], back[column] = gap, at
                if slack[column] < least:
                    least, following = slack[column], column
            for column in range(n + 1):
                if done[column]:
                    row_price[row_of[column]] += least
                    column_price[column] -= least
                else:
                    slack[column] -= least
            at = following
            if row_of[at] == 0:
                break
        while at:
            row_of[at], at = row_of[back[at]], back[at]
    columns = [0] * n
    for column in range(1, n + 1):
        columns[row_of[column] - 1] = column - 1
    return columns


def rebalance(
    totals: Mapping[int, int], tenants: Sequence[PlacedTenant], name: str
) -> tuple[int, ...] | None:
    """GPUs with strictly less guaranteed memory of others, for one lease; None if it has the best.
    The sum of squared loads falls with every such move, so leases cannot move in circles.
    """
    one = next(tenant for tenant in tenants if tenant.id == name)
    others = [tenant for tenant in tenants if tenant.id != name]
    load = loads(totals, others)
    request = PlacementRequest(one.id, one.guarantee, len(one.assigned_gpus), one.planned)
    gpus = spread(totals, others, request)
    if gpus is None or sum(load[gpu] for gpu in gpus) >= sum(load[g] for g in one.assigned_gpus):
        return None
    return gpus
