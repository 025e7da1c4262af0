"""The GPU memory of one kernel: what it holds, what is saved, and the copies between. Owner:
`reconcile.memory_mover`; readings come from `reconcile.observe`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..devices.base.model import TenantMemory

__all__ = ["KernelMemory"]


@dataclass(slots=True)
class KernelMemory:
    """All times are monotonic ms, all amounts MiB."""

    usage: TenantMemory = field(default_factory=TenantMemory)
    """The last reading."""
    lost_mib: int = 0
    """What it had when its main process ended, if a reading came before the exit was handled."""
    utilization: float | None = None
    """Share of the last second in which its processes ran on the GPU; None: unknown, or no GPU."""
    caps: tuple[tuple[int, int], ...] | None = None
    """(GPU, MiB): what it may hold, as set last."""
    bursting: bool = False
    """It holds more than its share."""

    transit: Literal["out", "in"] | None = None
    copying_since: int = 0
    reserved_mib: int = 0
    """Host memory reserved for the copy under way; 0 as soon as the image itself is counted."""
    stalled_since: int | None = None
    """A cell runs although the memory is saved: it waits in the driver since then."""
    caches_deadline: int | None = None
    """Until when its frameworks may drop their caches; None: not asked."""

    no_suspend_until: int = 0
    no_suspend_reason: str = ""
    no_resume_until: int = 0
    resumed_text: str = ""
    """Describes the last resume, for the cell that it admitted."""

    @property
    def used_mib(self) -> int:
        """MiB on GPUs."""
        return sum(self.usage.held.values())

    @property
    def saved_mib(self) -> int:
        """MiB in host memory."""
        return sum(self.usage.image)

    @property
    def suspended(self) -> bool:
        """Whether its memory is saved in host memory."""
        return self.usage.suspended

    def take_reading(self, usage: TenantMemory, *, main_alive: bool) -> None:
        """Note a reading. The driver frees the memory of a process before its exit is signalled."""
        before = self.used_mib + self.saved_mib
        self.usage = usage
        if not main_alive and before > self.used_mib + self.saved_mib:
            self.lost_mib = before

    def can_suspend(self, now: int) -> bool:
        """Whether no earlier failure rules it out now."""
        return now >= self.no_suspend_until

    def forbid_suspend(self, until: int, reason: str) -> None:
        """Do not try to suspend it until then."""
        self.no_suspend_until, self.no_suspend_reason = until, reason

    def process_exited(self) -> None:
        """No cell of it waits in the driver any more."""
        self.stalled_since = None

    def process_started(self) -> KernelMemory:
        """The state for a new process; a copy under way ends on its own."""
        return KernelMemory(
            utilization=self.utilization,
            caps=self.caps,
            bursting=self.bursting,
            transit=self.transit,
            copying_since=self.copying_since,
            reserved_mib=self.reserved_mib,
            no_resume_until=self.no_resume_until,
        )
