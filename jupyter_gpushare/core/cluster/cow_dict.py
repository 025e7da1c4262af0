"""A mapping that is cheap to copy, for snapshots that outlive a cycle.

Entries are distributed over buckets by a checksum of their key. Copies share buckets; a write
copies a shared bucket first. A cycle changes few of ten thousand entries, so it copies few buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, TypeVar
from zlib import crc32

__all__ = ["CowDict"]

V = TypeVar("V")
COUNT: Final = 256
"""Ten thousand entries make forty per bucket."""


class CowDict(Generic[V]):
    """Like a dict with text keys. The iteration order is the same in every process: by bucket, then
    by insertion.
    """

    __slots__ = ("_count", "_is_shared", "_shelves")

    def __init__(self) -> None:
        self._shelves: list[dict[str, V]] = [{} for _ in range(COUNT)]
        self._is_shared = bytearray(COUNT)
        self._count = 0

    def copy(self) -> CowDict[V]:
        """A copy; later writes to either do not affect the other."""
        other: CowDict[V] = CowDict.__new__(CowDict)
        other._shelves, other._count = self._shelves.copy(), self._count
        other._is_shared = bytearray(b"\1" * COUNT)
        self._is_shared = bytearray(b"\1" * COUNT)
        return other

    def _own(self, key: str) -> dict[str, V]:
        """The bucket of this key, for writing."""
        number = crc32(key.encode("utf-8", "surrogatepass")) % COUNT
        if self._is_shared[number]:
            self._shelves[number] = self._shelves[number].copy()
            self._is_shared[number] = 0
        return self._shelves[number]

    def _shelf(self, key: str) -> dict[str, V]:
        return self._shelves[crc32(key.encode("utf-8", "surrogatepass")) % COUNT]

    def get(self, key: str) -> V | None:
        return self._shelf(key).get(key)

    def __getitem__(self, key: str) -> V:
        return self._shelf(key)[key]

    def __contains__(self, key: str) -> bool:
        return key in self._shelf(key)

    def __setitem__(self, key: str, value: V) -> None:
        shelf = self._own(key)
        self._count += key not in shelf
        shelf[key] = value

    def __delitem__(self, key: str) -> None:
        """Raises KeyError."""
        if key not in self:
            raise KeyError(key)
        del self._own(key)[key]
        self._count -= 1

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._shelves)

    def __len__(self) -> int:
        return self._count
