"""Evicted units in victim order, which grow while a workload is placed pod by pod."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .victim_candidates import EvictionUnit

__all__ = ["EvictedUnits"]


class EvictedUnits:
    """A set of units that remembers the set from which it grew.

    A validator that judged `base` has to judge only `added`, so that a gang costs the sum of its
    pods. The order is that of the victim list, where additions may come between older units.
    """

    __slots__ = ("_units", "added", "base")

    def __init__(
        self, added: Iterable[EvictionUnit] = (), base: EvictedUnits | None = None
    ) -> None:
        self.base = base
        self.added = tuple(sorted(added, key=_place))
        self._units: tuple[EvictionUnit, ...] | None = None if base else self.added

    def grown(self, units: Iterable[EvictionUnit]) -> EvictedUnits:
        """This set and these units; itself if there are none."""
        added = list(units)
        return EvictedUnits(added, self) if added else self

    def __bool__(self) -> bool:
        return bool(self.added) or bool(self.base)

    def __iter__(self) -> Iterator[EvictionUnit]:
        """All units in victim order, on which the validation of the last one depends."""
        if self._units is None:
            units: list[EvictionUnit] = []
            at: EvictedUnits | None = self
            while at is not None:
                units.extend(at.added)
                at = at.base
            self._units = tuple(sorted(units, key=_place))
        return iter(self._units)


def _place(unit: EvictionUnit) -> int:
    return unit.place
