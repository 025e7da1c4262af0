"""A mapping of which a copy costs next to nothing, however much is in it: for views that outlive a
cycle.

Entries lie on shelves by a checksum of their key. A copy shares the shelves; whoever writes to a
shared shelf copies that one first. A cycle changes a few of ten thousand entries, so a few shelves
are copied and not ten thousand entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, TypeVar
from zlib import crc32

__all__ = ["CowDict"]

V = TypeVar("V")
COUNT: Final = 256
"""Ten thousand entries make forty on a shelf."""


class CowDict(Generic[V]):
    """Like a dict from texts. The order is the same in every process: by shelf, and on a shelf by
    when the key came.
    """

    __slots__ = ("_count", "_is_shared", "_shelves")

    def __init__(self) -> None:
        self._shelves: list[dict[str, V]] = [{} for _ in range(COUNT)]
        self._is_shared = bytearray(COUNT)
        self._count = 0

    def copy(self) -> CowDict[V]:
        """What is in it now. Either may be written to afterwards without the other's knowing."""
        other: CowDict[V] = CowDict.__new__(CowDict)
        other._shelves, other._count = self._shelves.copy(), self._count
        other._is_shared = bytearray(b"\1" * COUNT)
        self._is_shared = bytearray(b"\1" * COUNT)
        return other

    def _own(self, key: str) -> dict[str, V]:
        """The shelf of this key, to be written to."""
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
