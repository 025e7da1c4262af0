"""GPU time that the scheduler has not acknowledged yet: one report under way, and what was sampled
after it. Knows no clock and no link.

A report is said again until the scheduler says that it is on its disk, under the same number: the
scheduler counts each number once. So nothing is lost when either side is killed, and nothing is
counted twice. The journal keeps all of it.
"""

from __future__ import annotations

import uuid

from msgspec import Struct, field, structs

from jupyter_gpushare.messages import LeaseUsage

__all__ = ["UsageEntry", "UsageOutbox"]


class UsageEntry(Struct):
    """Sums of one lease, as `LeaseUsage` has them."""

    held_ms: int = 0
    busy_ms: int = 0
    used_mib_ms: int = 0
    borrowed_mib_ms: int = 0
    lent_mib_ms: int = 0


class UsageOutbox(Struct, kw_only=True):
    """Mutable. `life`: of this journal; an agent that lost it begins another one, with numbers of
    its own.
    """

    life: str = field(default_factory=lambda: uuid.uuid4().hex)
    number: int = 0
    """Of the report that is or was under way last."""
    sent: dict[str, UsageEntry] = field(default_factory=dict)
    """What is under way as that number, by lease; empty: nothing is."""
    rows: dict[str, UsageEntry] = field(default_factory=dict)
    """What was sampled since."""

    def row(self, lease: str) -> UsageEntry:
        """To be added to."""
        return self.rows.setdefault(lease, UsageEntry())

    def begin(self) -> bool:
        """Whether a new report is under way now: there is something to report, and what was under
        way before has been taken.
        """
        if self.sent or not self.rows:
            return False
        self.sent, self.rows, self.number = self.rows, {}, self.number + 1
        return True

    def under_way(self) -> list[LeaseUsage]:
        """What the report says."""
        return [
            LeaseUsage(lease=lease, **structs.asdict(row))
            for lease, row in sorted(self.sent.items())
        ]

    def taken(self, life: str, number: int) -> bool:
        """The scheduler has this report on its disk. Whether that was news: an answer may come
        twice.
        """
        if (life, number) != (self.life, self.number) or not self.sent:
            return False
        self.sent = {}
        return True
