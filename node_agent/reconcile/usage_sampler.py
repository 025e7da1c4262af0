"""GPU time per lease: sampled, added up, handed over. Intervals come from the monotonic clock, so a
clock jump books nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpushare.messages import UsageAcknowledged, UsageReport

from ..policy.lending import lent
from ..state.node import NodeRuntime

__all__ = ["UsageSampler"]

LONGEST_STORY = 1_000
"""Times that are kept for a scheduler that is away."""
LONGEST_MS = 5_000
"""A longer gap between two samples (a machine that slept) is not booked as use."""


class UsageSampler:
    """Samples all leases of a node into its tally."""

    def __init__(self, node: NodeRuntime, keep: Callable[[], None] = lambda: None) -> None:
        """`keep` writes the tally down: before a report leaves, so that a later life says the same
        under its number.
        """
        self._node, self._keep = node, keep
        self._busy: dict[str, int] = {}
        self._last = self._reported = node.clock()

    def sample(self) -> None:
        """Book the time since the last sample with what is true now."""
        now = self._node.clock()
        passed, self._last = min(now - self._last, LONGEST_MS), now
        lending = self._lending()
        for book in self._node.books.values():
            if book.lease is None or book.unwanted or not (book.attached or book.holding.suspended):
                book.utilization = None
                continue
            row = self._node.tally.row(book.lease.id)
            before = self._busy.get(book.kernel_id, book.holding.busy_ms)
            self._busy[book.kernel_id] = book.holding.busy_ms
            used, share = book.held(), book.lease.request_mib * max(1, len(book.home))
            row.held_ms += passed * max(1, len(book.home))
            row.busy_ms += max(0, book.holding.busy_ms - before)
            book.utilization = (
                _share(max(0, book.holding.busy_ms - before), passed)
                if book.holding.is_timed
                else None
            )
            row.used_mib_ms += used * passed
            row.borrowed_mib_ms += max(0, used - share) * passed
            row.lent_mib_ms += lending.get(book.kernel_id, 0) * passed
        self._busy = {name: busy for name, busy in self._busy.items() if name in self._node.books}

    def _lending(self) -> dict[str, int]:
        """MiB that each lends, over its GPUs."""
        found: dict[str, int] = {}
        books = [
            book
            for book in self._node.books.values()
            if book.lease is not None and not book.unwanted
        ]
        for gpu in self._node.totals:
            shares = {
                book.kernel_id: book.lease.request_mib
                for book in books
                if gpu in book.home and book.lease is not None
            }
            held = {
                book.kernel_id: book.holding.held.get(gpu, 0) for book in self._node.books.values()
            }
            for name, mib in lent(held, shares).items():
                found[name] = found.get(name, 0) + mib
        return found

    def report(self) -> None:
        """Hand what was sampled to the scheduler, and once more what it has not taken yet; kept
        while the link is down.
        """
        now, took, tally = self._node.clock(), self._node.took, self._node.tally
        if tally.begin():
            self._keep()
        rows = tally.under_way()
        if not rows and not any(took.values()) and not self._node.rungs:
            self._reported = now
            return
        waits, outs, ins = (list(took[name]) for name in ("gate_wait", "suspend", "resume"))
        sent = UsageReport(
            since_ms=now - self._reported,
            rows=rows,
            life=tally.life if rows else "",
            number=tally.number if rows else 0,
            gate_waits_ms=waits,
            suspends_ms=outs,
            resumes_ms=ins,
            rungs=dict(self._node.rungs),
        )
        delivered = self._node.ports.to_scheduler(sent)
        if delivered:
            self._reported = now
            self._node.rungs.clear()
        for each in took.values():  # of these only the latest are worth keeping
            del each[: None if delivered else -LONGEST_STORY]

    def taken(self, order: UsageAcknowledged) -> None:
        """The scheduler has a report on its disk."""
        if self._node.tally.taken(order.life, order.number):
            self._node.dirty = True


def _share(busy_ms: int, passed_ms: int) -> float:
    """Of the time, in twentieths: finer steps would only be noise in everybody's streams."""
    return round(20 * min(1.0, busy_ms / max(1, passed_ms))) / 20
