"""Requests that need not be tried because an easier one has just failed.

After a failure, workloads with the same constraints that ask for at least as many pods, none of
them smaller, are skipped until something is evicted, or else for the rest of the action.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cluster.easiest_requests import (
    RequestSize,
    constraints,
    covers,
    is_comparable,
    request_sizes,
)
from ..cluster.work import Member, Work

__all__ = ["FailureCache"]


class FailureCache:
    """The smallest requests that failed, by key and constraints."""

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[tuple[object, ...], list[tuple[RequestSize, ...]]] = {}

    def clear(self) -> None:
        """After an eviction: it may have left room, and its queue is entitled to more."""
        self._sizes.clear()

    def is_no_easier(self, key: tuple[object, ...], work: Work, members: Sequence[Member]) -> bool:
        """Whether a request failed that asked for no more than this one."""
        if not is_comparable(work, members):
            return False
        sizes = request_sizes(members)
        return any(
            covers(sizes, failed) for failed in self._sizes.get((*key, constraints(members)), ())
        )

    def add(self, key: tuple[object, ...], work: Work, members: Sequence[Member]) -> None:
        """Records a failure, and drops larger ones that it implies."""
        if is_comparable(work, members):
            sizes = request_sizes(members)
            known = self._sizes.setdefault((*key, constraints(members)), [])
            known[:] = [other for other in known if not covers(other, sizes)]
            known.append(sizes)
