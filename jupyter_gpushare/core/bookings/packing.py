"""Whether amounts of GPUs fit on nodes at the same time.

Sums do not tell: 0.6, 0.6 and 0.8 GPU add up to two GPUs, but do not fit on two. Whole GPUs of a
booking lie together on one node if it says so; a part of a GPU lies on one device. Both are checked
independently, because what whole GPUs leave is the same number of devices wherever they lie.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ..model.amounts import GPU

__all__ = ["BookedShare", "Load", "Packing", "fit_on"]

STEPS: Final = 20_000
"""Choices that the search tries. It says no where they do not suffice: a booking that might fit is
refused, but none is accepted that does not.
"""
DEEP: Final = 200
"""Amounts that are searched through; with more of them the largest-first order decides."""


class BookedShare(NamedTuple):
    """An amount in milli-GPU: whole GPUs, and a part of one more. `together`: the whole ones on one
    node; a quota lies anywhere.
    """

    gpu: int
    together: bool = True

    @property
    def whole(self) -> int:
        return self.gpu // GPU

    @property
    def part(self) -> int:
        return self.gpu % GPU


class Load:
    """Shares that are there at the same time."""

    __slots__ = ("groups", "parts", "sum_of_groups", "whole")

    def __init__(self, shares: Iterable[BookedShare] = ()) -> None:
        self.whole = self.sum_of_groups = 0
        self.parts: list[int] = []
        """Parts of GPUs, sorted."""
        self.groups: list[int] = []
        """Whole GPUs that lie together, if more than one, sorted."""
        for share in shares:
            self.add(share)

    def copy(self) -> Load:
        other = Load()
        other.whole, other.parts, other.groups = self.whole, self.parts[:], self.groups[:]
        other.sum_of_groups = self.sum_of_groups
        return other

    def add(self, share: BookedShare) -> None:
        whole, part = divmod(share.gpu, GPU)
        self.whole += whole
        if part:
            insort(self.parts, part)
        if whole > 1 and share.together:
            insort(self.groups, whole)
            self.sum_of_groups += whole

    def remove(self, share: BookedShare) -> None:
        """Takes away a share that was added."""
        whole, part = divmod(share.gpu, GPU)
        self.whole -= whole
        if part:
            del self.parts[bisect_left(self.parts, part)]
        if whole > 1 and share.together:
            del self.groups[bisect_left(self.groups, whole)]
            self.sum_of_groups -= whole


class Packing:
    """Nodes with these numbers of GPUs."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self.nodes = tuple(nodes)
        self.gpus = sum(self.nodes)

    def has_room(self, load: Load, share: BookedShare) -> bool:
        """Whether a share fits beside what is there."""
        whole, part = divmod(share.gpu, GPU)
        left = self.gpus - load.whole - whole
        return (
            left >= 0
            and (len(load.parts) + (part > 0) <= left or self._parts_fit(load.parts, part, left))
            and (whole < 2 or not share.together or self._groups_fit(load, whole))
        )

    def _parts_fit(self, parts: Sequence[int], part: int, left: int) -> bool:
        return _fit_in([*parts, part] if part else parts, [GPU] * left)

    def _groups_fit(self, load: Load, whole: int) -> bool:
        largest, total = max([whole, *load.groups[-1:]]), load.sum_of_groups + whole
        return _surely_fit(total, largest, self.gpus, len(self.nodes)) or _fit_in(
            [*load.groups, whole], self.nodes
        )


def fit_on(nodes: Sequence[int], shares: Iterable[BookedShare]) -> bool:
    """Whether the shares fit at once on nodes with these numbers of GPUs."""
    shares = tuple(shares)
    left = sum(nodes) - sum(share.whole for share in shares)
    parts = [share.part for share in shares if share.part]
    groups = [share.whole for share in shares if share.together and share.whole > 1]
    return left >= 0 and _fit_in(parts, [GPU] * min(left, len(parts))) and _fit_in(groups, nodes)


def _surely_fit(total: int, largest: int, room: int, bins: int) -> bool:
    """Whether sizes with this sum fit in so many bins whatever they are. Where the largest-first
    order finds no bin for a size, every bin has less room than that.
    """
    return room - total + largest > bins * (largest - 1)


def _fit_in(sizes: Iterable[int], bins: Iterable[int]) -> bool:
    """Whether the sizes fit in the bins."""
    sizes, bins = sorted(sizes, reverse=True), sorted(bins)
    if sum(sizes) > sum(bins):
        return False
    return _greedily(sizes, list(bins)) or (
        len(sizes) <= DEEP and _BinSearch(sizes, list(bins)).from_size(0)
    )


def _greedily(sizes: Iterable[int], room: list[int]) -> bool:
    """Whether they fit with the largest first, each in the fullest bin that has room."""
    for size in sizes:
        at = bisect_left(room, size)
        if at == len(room):
            return False
        insort(room, room.pop(at) - size)
    return True


class _BinSearch:
    """All ways to fill the bins: their room, sorted, and how many choices may still be tried."""

    def __init__(self, sizes: list[int], room: list[int]) -> None:
        self.sizes = sizes
        self.room = room
        self.left = STEPS

    def from_size(self, first: int) -> bool:
        """Whether the sizes from this one on fit in the room that is left."""
        if first == len(self.sizes):
            return True
        size = self.sizes[first]
        for room in sorted({room for room in self.room if room >= size}):
            self.left -= 1
            if self.left < 0:
                return False
            self._change(room, room - size)
            fits = self.from_size(first + 1)
            self._change(room - size, room)
            if fits:
                return True
        return False

    def _change(self, before: int, after: int) -> None:
        del self.room[bisect_left(self.room, before)]
        insort(self.room, after)
