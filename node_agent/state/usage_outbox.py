"""GPU time that the scheduler has not acknowledged yet: one report in flight, and what was sampled
after it.

A report is repeated under the same number until the scheduler confirms that it is on its disk; the
scheduler counts each number once. So nothing is lost when either side is killed, and nothing is
counted twice. The journal keeps all of it.
"""

from __future__ import annotations

import uuid

from msgspec import Struct, field, structs

from jupyter_gpushare.messages import LeaseUsage

__all__ = ["UsageEntry", "UsageOutbox"]


class UsageEntry(Struct):
    """Sums of one lease, as in `LeaseUsage`."""

    held_ms: int = 0
    busy_ms: int = 0
    used_mib_ms: int = 0
    borrowed_mib_ms: int = 0
    lent_mib_ms: int = 0


class UsageOutbox(Struct, kw_only=True):
    """Mutable. `life`: id of this journal; an agent that lost its journal begins a new one, with
    its own numbers.
    """

    life: str = field(default_factory=lambda: uuid.uuid4().hex)
    number: int = 0
    """Of the report that is or was in flight last."""
    sent: dict[str, UsageEntry] = field(default_factory=dict)
    """What is in flight under that number, by lease; empty: nothing is."""
    rows: dict[str, UsageEntry] = field(default_factory=dict)
    """What was sampled since."""

    def row(self, lease: str) -> UsageEntry:
        """The sums of a lease, to add to."""
        return self.rows.setdefault(lease, UsageEntry())

    def begin(self) -> bool:
        """Put a new report in flight, if there is something to report and the last report was
        acknowledged; whether it did.
        """
        if self.sent or not self.rows:
            return False
        self.sent, self.rows, self.number = self.rows, {}, self.number + 1
        return True

    def in_flight(self) -> list[LeaseUsage]:
        """The content of the report."""
        rows = sorted(self.sent.items())
        return [LeaseUsage(lease=lease, **structs.asdict(row)) for lease, row in rows]

    def acknowledged(self, life: str, number: int) -> bool:
        """The scheduler has this report on its disk. False when that is not new: a message may
        arrive twice.
        """
        if (life, number) != (self.life, self.number) or not self.sent:
            return False
        self.sent = {}
        return True
