"""The GPU map of a restore: which GPU's memory moves to which GPU. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

__all__ = ["gpus_in_use", "moves_between", "permutation"]


def gpus_in_use(attached: Sequence[int], held: Iterable[int]) -> tuple[int, ...]:
    """The GPU per ordinal: as attached, unless the memory is elsewhere. An ordinal whose GPU holds
    nothing gets the next GPU that holds memory and belongs to no ordinal: a kernel may have been
    attached to new GPUs while its memory is still on the old ones.
    """
    in_use = set(held)
    others = sorted(in_use - set(attached))
    return tuple(gpu if gpu in in_use or not others else others.pop(0) for gpu in attached)


def moves_between(old_gpus: Sequence[int], new_gpus: Sequence[int]) -> dict[int, int]:
    """Old GPU -> new GPU by ordinal, without ordinals that keep their GPU or have no new one."""
    pairs = zip(old_gpus, new_gpus, strict=False)
    return {old: new for old, new in pairs if old != new}


def permutation(count: int, moves: Mapping[int, int]) -> dict[int, int]:
    """A permutation of all `count` GPUs that contains `moves`: the driver requires every GPU, and
    every target once.

    GPUs without a move keep their place unless it is taken; then they get the lowest free one (a
    swap, when two GPUs change places).
    """
    free = [gpu for gpu in range(count) if gpu not in moves.values()]
    full = dict(moves)
    for gpu in range(count):
        if gpu not in moves and gpu in free:
            full[gpu] = gpu
            free.remove(gpu)
    for gpu in range(count):
        if gpu not in full:
            full[gpu] = free.pop(0)
    return full
