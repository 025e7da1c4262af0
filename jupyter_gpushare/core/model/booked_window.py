"""A booking in one window of time."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BookedWindow"]


class BookedWindow(NamedTuple):
    """An amount of GPUs that a project, or one member, has from `start` up to, but not including,
    `end`: ms since the epoch. `gpu` is milli-GPU.
    """

    booking: str
    project: str
    pool: str
    gpu: int
    start: int
    end: int
    lead: int = 0
    """How long (ms) before the start the GPUs begin to be freed."""
    user: str = ""
    """The only person who may use it; "": all members of the project."""
    own_quota: bool = False
    """Part of the project's quota; else it adds to the quota while the window is open."""

    @property
    def key(self) -> tuple[str, int]:
        """The booking, and which of its times."""
        return self.booking, self.start

    @property
    def opens(self) -> int:
        """From when (ms) on the GPUs are freed and kept."""
        return self.start - self.lead

    def is_open(self, now: int) -> bool:
        """Whether GPUs are kept for it at this time (ms)."""
        return self.opens <= now < self.end

    def makes_way_for(self, other: BookedWindow) -> bool:
        """Whether the other one begins when this one has ended, and is not for the same people."""
        is_same = (other.project, other.user) == (self.project, self.user)
        return other.pool == self.pool and self.end <= other.start and not is_same

    def admits(self, project: str, user: str) -> bool:
        """Whether a workload of this person in this project may use what is booked."""
        return project == self.project and self.user in ("", user)
