"""What people were notified of. Owners: `reconcile.apply` for reclaim notices,
`reconcile.idle_culler` for idle warnings, `state.node` for what was published.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

from jupyter_gpushare.messages import Event, KernelDevice, LeaseBody, LeaseReport

from ..policy.idleness import Step

__all__ = ["EVENTS_KEPT", "IdleState", "Publication", "ReclaimNotice"]

EVENTS_KEPT: Final = 100
MESSAGES_KEPT: Final = 10


@dataclass(frozen=True, slots=True)
class ReclaimNotice:
    """Memory is taken back at `deadline` (monotonic ms), shown as the wall-clock `stamp`."""

    deadline: int | None = None
    stamp: str | None = None


@dataclass(slots=True)
class IdleState:
    """Progress of the idle rule with one kernel. `since`: its last work; `done`, `warned`,
    `deadline`: as in `idleness.IdleKernel`.
    """

    since: int = 0
    done: Step | Literal[""] = ""
    warned: Step | Literal[""] = ""
    deadline: int | None = None
    stamp: str | None = None
    releasing: bool = False
    last_lease: str = ""
    """The lease that was seen last."""
    busy_ms: int = 0
    """The GPU time that was seen last."""
    released_lease: LeaseBody | None = None
    """The lease that the rule gave back."""
    asked_again_at: int = -1_000_000

    @property
    def released_lease_id(self) -> str:
        """Id of the lease that the rule gave back; "": none."""
        return self.released_lease.id if self.released_lease else ""

    def restart(self, now: int) -> None:
        """Work, or its user: the time of the idle rule begins anew."""
        self.since, self.done, self.releasing = now, "", False

    def warn(self, step: Step, deadline: int | None) -> None:
        """A step is announced."""
        self.warned, self.deadline = step, deadline

    def cancel_warning(self) -> None:
        """No step is announced."""
        self.warned, self.deadline, self.stamp = "", None, None


@dataclass(slots=True)
class Publication:
    """Events, and what servers, kernel and scheduler were sent last."""

    events: deque[Event] = field(default_factory=lambda: deque(maxlen=EVENTS_KEPT))
    unsent: list[str] = field(default_factory=list)
    """Messages for the notebook, kept until its kernel is connected."""
    key: tuple[object, ...] | None = None
    """What the kernel's state was when it was published; None: publish it again."""
    sent_at: int = 0
    devices: tuple[KernelDevice, ...] = ()
    """The last caps sent to its frameworks."""
    report: LeaseReport | None = None
    reported_at: int = 0

    def keep_message(self, message: str) -> None:
        """Show it as soon as the kernel is connected."""
        self.unsent.append(message)
        del self.unsent[:-MESSAGES_KEPT]

    def kernel_connected(self) -> None:
        """The kernel knows nothing yet."""
        self.unsent.clear()
        self.key, self.devices = None, ()
