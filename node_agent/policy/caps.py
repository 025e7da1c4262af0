"""How much each kernel may hold on its GPUs now: up to its limit, as far as the others leave room.
Pure.

A cap may be lower than what a kernel holds already, so that it cannot grow; a cap never takes
memory away.
"""

from __future__ import annotations

from collections.abc import Iterable

from .snapshot import NodeSnapshot, Tenant

__all__ = ["caps"]


def caps(
    snapshot: NodeSnapshot, noticed: Iterable[str] = (), promised: Iterable[str] = ()
) -> dict[str, tuple[int, ...]]:
    """MiB per assigned device for every tenant that has any.

    A tenant with a notice may not grow above its share. Memory that is promised to a waiting
    tenant, or to one that is admitted now, counts as taken; but no promise lowers what is
    guaranteed to a running tenant. Law: where no tenant holds memory that was promised to others,
    the claims and what the caps allow one tenant to add fit on the GPU.
    """
    with_notice, owed = set(noticed), set(promised)
    found: dict[str, tuple[int, ...]] = {}
    for one in snapshot.tenants:
        if one.assigned_gpus:
            gpus = one.assigned_gpus
            found[one.id] = tuple(_cap(snapshot, one, gpu, with_notice, owed) for gpu in gpus)
    return found


def _cap(
    snapshot: NodeSnapshot, one: Tenant, gpu: int, with_notice: set[str], owed: set[str]
) -> int:
    others = sum(_taken(other, gpu, owed) for other in snapshot.tenants if other.id != one.id)
    room = max(0, snapshot.totals[gpu] - others)
    if one.running and not one.suspended:
        room = max(room, one.share(gpu))
    cap = min(one.limit, room)
    return min(cap, one.share(gpu)) if one.id in with_notice else cap


def _taken(other: Tenant, gpu: int, owed: set[str]) -> int:
    claim = other.claim(gpu)
    if other.id in owed and gpu in other.assigned_gpus:
        return max(claim, other.need(gpu))
    return claim
