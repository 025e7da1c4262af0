"""Finds the cheapest rearrangement of shares on the GPUs of one node that makes room for a request.

All devices of a node have one size. Fewest moves first, then the least memory, then the shares that
come first in the given order. Up to three moves, the search is exhaustive; beyond that, it looks
for any packing of all shares. Both are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Final, NamedTuple

__all__ = ["Rearrangement", "MovableShare", "rearrange"]

MAX_MOVES: Final = 3
"""Moves up to which the cheapest solution is searched."""
MAX_STEPS: Final = 3000
"""Bound on the steps of each of the two searches."""
MAX_TARGETS: Final = 32
"""Bound on the sets of devices that are tried for the request."""


class MovableShare(NamedTuple):
    """A share that may be moved: `size` MiB on each of its devices."""

    size: int
    devices: tuple[int, ...]


class Rearrangement(NamedTuple):
    """Devices for the request, and new devices per index of a share that moves."""

    devices: tuple[int, ...]
    moves: Mapping[int, tuple[int, ...]]


def rearrange(
    free: Mapping[int, int], shares: Sequence[MovableShare], size: int, count: int
) -> Rearrangement | None:
    """Room for `size` MiB on each of `count` devices; None: not found. `free`: MiB per device."""
    if sum(max(0, mib) for mib in free.values()) < size * count:
        return None
    targets = list(islice(_target_sets(free, shares, size, count), MAX_TARGETS))
    search = _FewestMoves(free, shares, size)
    for limit in range(1, MAX_MOVES + 1):
        for devices in targets:
            search.run(devices, limit)
        if search.best is not None:
            return search.best[1]
    packing = _Packing(free, shares, size)
    found = (packing.run(devices) for devices in targets)
    return next((one for one in found if one is not None), None)


def _target_sets(
    free: Mapping[int, int], shares: Sequence[MovableShare], size: int, count: int
) -> Iterator[tuple[int, ...]]:
    """Sets of devices that could hold the request, those that lack the least room first."""
    movable = _room_without(free, shares)
    lacking = {d: max(0, size - free[d]) for d in free if movable[d] >= size}
    by_lack = sorted(lacking, key=lambda d: (lacking[d], d))
    yield from combinations(by_lack, count)


def _room_without(free: Mapping[int, int], shares: Sequence[MovableShare]) -> dict[int, int]:
    """MiB per device without any of the shares."""
    room = dict(free)
    for share in shares:
        for device in share.devices:
            room[device] += share.size
    return room


class _FewestMoves:
    """Iterative deepening over the number of moves; only overloaded devices give up shares."""

    def __init__(self, free: Mapping[int, int], shares: Sequence[MovableShare], size: int) -> None:
        self.original, self.shares, self.size = free, shares, size
        self.best: tuple[tuple[int, tuple[int, ...]], Rearrangement] | None = None
        self.steps = 0

    def run(self, targets: tuple[int, ...], limit: int) -> None:
        """Records the cheapest solution with at most `limit` moves for this set of devices."""
        self.targets = targets
        self.free = dict(self.original)
        for device in targets:
            self.free[device] -= self.size
        self.places = [share.devices for share in self.shares]
        self.arrived: set[tuple[int, int]] = set()
        self._go(limit)

    def _go(self, limit: int) -> None:
        self.steps += 1
        overloaded = [device for device, mib in self.free.items() if mib < 0]
        if not overloaded:
            self._record()
        elif len(overloaded) <= limit and self.steps <= MAX_STEPS:
            device = min(overloaded, key=lambda d: (self.free[d], d))
            for index, share in enumerate(self.shares):
                if device in self.places[index] and (index, device) not in self.arrived:
                    self._move_away(index, share.size, device, limit)

    def _move_away(self, index: int, size: int, device: int, limit: int) -> None:
        before = self.places[index]
        for other in self.free:
            if other in before or (limit == 1 and self.free[other] < size):
                continue
            self.free[device] += size
            self.free[other] -= size
            self.places[index] = tuple(other if d == device else d for d in before)
            self.arrived.add((index, other))
            self._go(limit - 1)
            self.arrived.discard((index, other))
            self.places[index] = before
            self.free[other] += size
            self.free[device] -= size

    def _record(self) -> None:
        moves = _moves(self.shares, self.places)
        mib = sum(self.shares[index].size for index in moves)
        cost = (mib, tuple(sorted(moves)))
        if self.best is None or cost < self.best[0]:
            self.best = cost, Rearrangement(self.targets, moves)


class _Packing:
    """Depth-first packing of all shares, largest first, each on its own devices if possible."""

    def __init__(self, free: Mapping[int, int], shares: Sequence[MovableShare], size: int) -> None:
        self.shares, self.size = shares, size
        self.empty = _room_without(free, shares)
        parts = [(share.size, index) for index, share in enumerate(shares) for _ in share.devices]
        self.parts = [index for _, index in sorted(parts, key=lambda part: (-part[0], part[1]))]
        self.steps = 0

    def run(self, targets: tuple[int, ...]) -> Rearrangement | None:
        self.room = dict(self.empty)
        for device in targets:
            self.room[device] -= self.size
        self.places: list[list[int]] = [[] for _ in self.shares]
        if not self._go(0):
            return None
        return Rearrangement(targets, _moves(self.shares, [tuple(sorted(p)) for p in self.places]))

    def _go(self, at: int) -> bool:
        if at == len(self.parts):
            return True
        self.steps += 1
        if self.steps > MAX_STEPS:
            return False
        index = self.parts[at]
        size, own = self.shares[index].size, self.shares[index].devices
        tried: set[int] = set()
        for device in sorted(self.room, key=lambda d: (d not in own, d)):
            room = self.room[device]
            if room < size or device in self.places[index] or (device not in own and room in tried):
                continue
            if device not in own:
                tried.add(room)  # equally free devices are equivalent
            self.room[device] -= size
            self.places[index].append(device)
            if self._go(at + 1):
                return True
            self.places[index].pop()
            self.room[device] += size
        return False


def _moves(
    shares: Sequence[MovableShare], places: Sequence[tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """The shares whose devices have changed."""
    found = {}
    for index, (share, devices) in enumerate(zip(shares, places, strict=True)):
        if set(share.devices) != set(devices):
            found[index] = tuple(sorted(devices))
    return found
