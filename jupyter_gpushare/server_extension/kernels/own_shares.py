"""Suggestions for a waiting kernel: unused and idle shares of the same user to release. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from jupyter_gpushare.core.model.reason import ReasonCode, counted
from jupyter_gpushare.messages import HelpBody, Kernel, ReasonBody, Share

__all__ = ["ReleasableShare", "releasable_shares", "with_releases"]

MAX_SUGGESTIONS: Final = 3
MIB_PER_GIB: Final = 1024
HELPED_BY_ANY_SHARE: Final = frozenset(
    {
        ReasonCode.WAITING_FOR_FREE_GPU,
        ReasonCode.WAITING_BEHIND,
        ReasonCode.WAITING_FOR_RECLAIM,
        ReasonCode.WAITING_FOR_RESERVATION,
    }
)
HELPED_BY_SHARES_OF_THE_PROJECT: Final = frozenset(
    {
        ReasonCode.WAITING_FOR_QUOTA,
        ReasonCode.OVER_LIMIT,
        ReasonCode.OVER_PERSON_LIMIT,
        ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA,
    }
)
BOUNDS: Final = HELPED_BY_SHARES_OF_THE_PROJECT - {ReasonCode.WAITING_FOR_QUOTA}
"""A request that alone exceeds such a bound waits for a change of the policy, not for releases."""


@dataclass(frozen=True, slots=True)
class ReleasableShare:
    """A share that its kernel does not use now. `rank`: the least used first."""

    rank: int
    kernel_id: str
    project: str | None
    message: str

    @property
    def suggestion(self) -> HelpBody:
        """The suggestion; `to` is the kernel's id, for a button."""
        return HelpBody(change="release", to=self.kernel_id, message=self.message)


def releasable_shares(kernels: Iterable[Kernel]) -> tuple[ReleasableShare, ...]:
    """The unused and idle shares of these kernels, the least used first."""
    found = [share for kernel in kernels if (share := _releasable(kernel)) is not None]
    return tuple(sorted(found, key=lambda share: (share.rank, share.message)))


def with_releases(
    reason: ReasonBody, kernel_id: str, project: str | None, shares: Sequence[ReleasableShare]
) -> ReasonBody:
    """The reason, with the releases that help this kernel before its other suggestions."""
    if reason.code in HELPED_BY_ANY_SHARE:
        helpful = [share for share in shares if share.kernel_id != kernel_id]
    elif reason.code in BOUNDS and all(one.change != "wait" for one in reason.helps):
        return reason
    elif reason.code in HELPED_BY_SHARES_OF_THE_PROJECT:
        helpful = [s for s in shares if s.kernel_id != kernel_id and s.project == project]
    else:
        return reason
    releases = [share.suggestion for share in helpful[:MAX_SUGGESTIONS]]
    return structs.replace(reason, helps=[*releases, *reason.helps])


def _releasable(kernel: Kernel) -> ReleasableShare | None:
    if kernel.state not in ("granted", "attached", "suspended") or kernel.busy or kernel.pinned:
        return None
    rank, use = _use(kernel)
    name, share = kernel.name or kernel.kernel_id, _share_text(kernel.request)
    message = f"{name} holds {share} and {use}: release it."
    return ReleasableShare(rank, kernel.kernel_id, kernel.project, message)


def _use(kernel: Kernel) -> tuple[int, str]:
    if kernel.state == "suspended":
        return 1, "is suspended"
    if not kernel.memory_mib.used:
        return 0, "uses 0 MiB"
    return 2, f"is idle with {_memory_text(kernel.memory_mib.used)} in use"


def _share_text(share: Share) -> str:
    if share.gpu is not None:
        return counted(share.gpu, "GPU")
    return _memory_text(share.gpu_memory_mib or 0)


def _memory_text(mib: int) -> str:
    return f"{mib / MIB_PER_GIB:.3g} GiB" if mib >= MIB_PER_GIB else f"{mib} MiB"
