"""Requests that need not be tried because an easier one has just failed.

After a failure, workloads with the same constraints that ask for at least as many pods, none of
them smaller, are skipped until something is evicted, or else for the rest of the action.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cluster.work import Member, Work
from ..model.requirements import PodRequirements

__all__ = ["FailureCache"]

Size = tuple[int, int, int, int, int]
"""(whole GPUs, share, MiB of GPU memory, CPU, memory) of one pod."""


class FailureCache:
    """The smallest requests that failed, by key and constraints."""

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[tuple[object, ...], list[tuple[Size, ...]]] = {}

    def clear(self) -> None:
        """After an eviction: it may have left room, and its queue is entitled to more."""
        self._sizes.clear()

    def is_no_easier(self, key: tuple[object, ...], work: Work, members: Sequence[Member]) -> bool:
        """Whether a request failed that asked for no more than this one."""
        if not _is_comparable(work, members):
            return False
        sizes = _sizes(members)
        return any(
            _covers(sizes, failed) for failed in self._sizes.get((*key, _constraints(members)), ())
        )

    def add(self, key: tuple[object, ...], work: Work, members: Sequence[Member]) -> None:
        """Records a failure, and drops larger ones that it implies."""
        if _is_comparable(work, members):
            sizes = _sizes(members)
            known = self._sizes.setdefault((*key, _constraints(members)), [])
            known[:] = [other for other in known if not _covers(other, sizes)]
            known.append(sizes)


def _is_comparable(work: Work, members: Sequence[Member]) -> bool:
    """Requests with sub-groups, topology, affinity or MIG are always tried."""
    if work.workload.topology is not None or work.workload.groups:
        return False
    return not any(
        m.need.mig or m.need.affinity or m.need.anti_affinity or m.nominated for m in members
    )


def _constraints(members: Sequence[Member]) -> tuple[object, ...]:
    """What must be equal: where the pods may run, and how they ask for GPUs."""
    found = {_constraint(member.need) for member in members}
    return tuple(sorted(found, key=repr))


def _constraint(need: PodRequirements) -> tuple[object, ...]:
    is_whole, is_share = bool(need.whole), bool(need.share)
    return need.selector, need.node_names, need.tolerations, need.devices, is_whole, is_share


def _sizes(members: Sequence[Member]) -> tuple[Size, ...]:
    """Largest first."""
    needs = [m.need for m in members]
    return tuple(sorted(((n.whole, n.share, n.memory, n.cpu, n.ram) for n in needs), reverse=True))


def _covers(sizes: tuple[Size, ...], failed: tuple[Size, ...]) -> bool:
    """Whether `sizes` asks for at least as many pods, each at least as large in every resource."""
    if len(sizes) < len(failed):
        return False
    return all(
        all(mine >= theirs for mine, theirs in zip(a, b, strict=True))
        for a, b in zip(sizes, failed, strict=False)
    )
