"""The turn of one kernel where its node pool shares time. Owners: `reconcile.leases` for new
leases, `reconcile.turns` for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["HOST_FULL_MS", "Turn"]

HOST_FULL_MS: Final = 5_000
"""So long after its memory could not be saved the kernel is not asked again."""


@dataclass(slots=True)
class Turn:
    """Times are monotonic ms."""

    since: int | None = None
    """When it began: with the lease, and anew when its first cell is admitted or its memory is
    restored; None: it has no lease.
    """
    has_begun: bool = False
    """Whether a cell was admitted in it."""
    host_full_until: int = 0
    sent: tuple[object, ...] | None = None
    """What of its activity was reported last."""

    def granted(self, now: int) -> None:
        """A new lease."""
        self.since, self.has_begun = now, False

    def begin(self, now: int) -> None:
        """Its memory is on the GPU, and a cell is admitted."""
        if self.since is not None and not self.has_begun:
            self.since, self.has_begun = now, True

    def over(self) -> None:
        """The lease is gone."""
        self.since, self.has_begun = None, False

    def is_host_full(self, now: int) -> bool:
        """Whether its memory could not be saved a short time ago."""
        return now < self.host_full_until
