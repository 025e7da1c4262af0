"""The map of GPUs that a restore is given: which GPU's memory goes to which. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["full_map", "moved", "placed"]


def placed(places: Sequence[int], held: Iterable[int]) -> tuple[int, ...]:
    """The GPU per ordinal: as it was attached, but what it really holds counts more. An ordinal
    whose GPU holds nothing has the next one that is held and belongs to no ordinal: a kernel whose
    new home was noted before its memory was seen is still in the old one.
    """
    here = set(held)
    strays = sorted(here - set(places))
    return tuple(gpu if gpu in here or not strays else strays.pop(0) for gpu in places)


def moved(where: Sequence[int], gpus: Sequence[int]) -> dict[int, int]:
    """Old GPU -> new GPU by ordinal; what has no new place keeps its old one. Nothing is in it that
    stays.
    """
    return {old: new for old, new in zip(where, gpus, strict=False) if old != new}


def full_map(count: int, moves: Mapping[int, int]) -> dict[int, int]:
    """A permutation of all `count` GPUs that contains `moves`: the driver wants every GPU named,
    each target once.

    Who is not asked to move stays, unless somebody comes: then it takes the lowest GPU that is left
    over (a swap, when two change places).
    """
    left = [gpu for gpu in range(count) if gpu not in moves.values()]
    full = dict(moves)
    for gpu in range(count):
        if gpu not in moves and gpu in left:
            full[gpu] = gpu
            left.remove(gpu)
    for gpu in range(count):
        if gpu not in full:
            full[gpu] = left.pop(0)
    return full
