"""How much each kernel may hold on its GPU right now: up to its limit, as far as the others leave
room. Pure.

A cap may lie below what a kernel holds already (it was lowered so that it cannot grow); nothing is
taken by a cap.
"""

from __future__ import annotations

from collections.abc import Iterable

from .snapshot import NodeSnapshot, Tenant

__all__ = ["caps"]


def caps(
    snapshot: NodeSnapshot, noticed: Iterable[str] = (), promised: Iterable[str] = ()
) -> dict[str, tuple[int, ...]]:
    """MiB per home device for every occupant that has a home.

    Whoever was given notice may not grow above its share. What is promised to a kernel that waits,
    or is let in at this moment, counts as taken by it; but nobody's wish lowers what is guaranteed
    to a kernel that runs. Law: where nobody holds more than was promised to others, the claims and
    what the caps allow one kernel to add fit on the GPU.
    """
    told, owed = set(noticed), set(promised)
    return {
        one.id: tuple(_cap(snapshot, one, gpu, told, owed) for gpu in one.assigned_gpus)
        for one in snapshot.tenants
        if one.assigned_gpus
    }


def _cap(snapshot: NodeSnapshot, one: Tenant, gpu: int, told: set[str], owed: set[str]) -> int:
    others = sum(_taken(other, gpu, owed) for other in snapshot.tenants if other.id != one.id)
    room = max(0, snapshot.totals[gpu] - others)
    if one.running and not one.suspended:
        room = max(room, one.share(gpu))
    cap = min(one.limit, room)
    return min(cap, one.share(gpu)) if one.id in told else cap


def _taken(other: Tenant, gpu: int, owed: set[str]) -> int:
    claim = other.claim(gpu)
    return max(claim, other.need(gpu)) if other.id in owed and gpu in other.assigned_gpus else claim
