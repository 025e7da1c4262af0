"""What the reclaim ladder decides: steps and the decision that contains them. Times are monotonic
ms, amounts are MiB. `asker`: the kernel that needs the memory; "" for the scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "AdmitStep",
    "CancelNoticeStep",
    "DropCachesStep",
    "KillStep",
    "NoticeStep",
    "ReclaimDecision",
    "ReleaseStep",
    "Step",
    "SuspendStep",
    "WaitStep",
]


@dataclass(frozen=True, slots=True)
class AdmitStep:
    """Its GPUs are free: restore its saved memory if there is any, and let it run."""

    id: str


@dataclass(frozen=True, slots=True)
class WaitStep:
    """It has to wait. `blockers`: kernels in the way; `until`: when that ends at the latest, None
    when that is unknown.
    """

    id: str
    blockers: tuple[str, ...]
    until: int | None


@dataclass(frozen=True, slots=True)
class DropCachesStep:
    """Ask an idle kernel to drop its caches; it has until `deadline`."""

    id: str
    deadline: int


@dataclass(frozen=True, slots=True)
class SuspendStep:
    """Save its memory in host memory. `asker` is its own id when it has to move to other GPUs."""

    id: str
    asker: str


@dataclass(frozen=True, slots=True)
class NoticeStep:
    """Notify its user: `take` MiB will be reclaimed at `deadline`."""

    id: str
    deadline: int
    take: int
    asker: str


@dataclass(frozen=True, slots=True)
class CancelNoticeStep:
    """The notice is void: the memory is no longer needed."""

    id: str


@dataclass(frozen=True, slots=True)
class KillStep:
    """End its processes: it could not be suspended, and the deadline of its notice has passed."""

    id: str
    asker: str


@dataclass(frozen=True, slots=True)
class ReleaseStep:
    """An evicted or revoked lease holds nothing any more."""

    id: str


Step = (
    AdmitStep
    | WaitStep
    | DropCachesStep
    | SuspendStep
    | NoticeStep
    | CancelNoticeStep
    | KillStep
    | ReleaseStep
)


@dataclass(frozen=True, slots=True)
class ReclaimDecision:
    """Steps in their order, and the next time at which an unchanged node may need other steps."""

    steps: tuple[Step, ...]
    deadline: int | None
