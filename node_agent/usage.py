"""GPU time per lease: sampled, added up, handed over. Intervals come from the monotonic clock, so a clock jump books nothing."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpushare.messages import LeaseUsage, UsageReport

from .lending import lent
from .node import Node

__all__ = ["Usage"]

LONGEST_STORY = 1_000
"""Times that are kept for a scheduler that is away."""
LONGEST_MS = 5_000
"""A longer gap between two samples (a machine that slept) is not booked as use."""


@dataclass(slots=True)
class _Row:
    held_ms: int = 0
    busy_ms: int = 0
    used_mib_ms: int = 0
    borrowed_mib_ms: int = 0
    lent_mib_ms: int = 0


class Usage:
    """Samples all leases of a node; `report` empties it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._rows: dict[str, _Row] = {}
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
            row = self._rows.setdefault(book.lease.id, _Row())
            before = self._busy.get(book.kernel_id, book.holding.busy_ms)
            self._busy[book.kernel_id] = book.holding.busy_ms
            used, share = book.held(), book.lease.request_mib * max(1, len(book.home))
            row.held_ms += passed * max(1, len(book.home))
            row.busy_ms += max(0, book.holding.busy_ms - before)
            book.utilization = _share(max(0, book.holding.busy_ms - before), passed) if book.holding.is_timed else None
            row.used_mib_ms += used * passed
            row.borrowed_mib_ms += max(0, used - share) * passed
            row.lent_mib_ms += lending.get(book.kernel_id, 0) * passed
        self._busy = {name: busy for name, busy in self._busy.items() if name in self._node.books}

    def _lending(self) -> dict[str, int]:
        """MiB that each lends, over its GPUs."""
        found: dict[str, int] = {}
        books = [book for book in self._node.books.values() if book.lease is not None and not book.unwanted]
        for gpu in self._node.totals:
            shares = {book.kernel_id: book.lease.request_mib for book in books if gpu in book.home and book.lease is not None}
            held = {book.kernel_id: book.holding.held.get(gpu, 0) for book in self._node.books.values()}
            for name, mib in lent(held, shares).items():
                found[name] = found.get(name, 0) + mib
        return found

    def report(self) -> None:
        """Hand the rows to the scheduler; kept and added to when the link is down."""
        now, took = self._node.clock(), self._node.took
        if not self._rows and not any(took.values()) and not self._node.rungs:
            self._reported = now
            return
        rows = [
            LeaseUsage(
                lease=lease, held_ms=row.held_ms, busy_ms=row.busy_ms, used_mib_ms=row.used_mib_ms, borrowed_mib_ms=row.borrowed_mib_ms,
                lent_mib_ms=row.lent_mib_ms,
            )
            for lease, row in sorted(self._rows.items())
        ]
        waits, outs, ins = (list(took[name]) for name in ("gate_wait", "suspend", "resume"))
        sent = UsageReport(
            since_ms=now - self._reported, rows=rows, gate_waits_ms=waits, suspends_ms=outs, resumes_ms=ins, rungs=dict(self._node.rungs)
        )
        delivered = self._node.ports.to_scheduler(sent)
        if delivered:
            self._rows.clear()
            self._reported = now
            self._node.rungs.clear()
        for each in took.values():  # of these only the latest are worth keeping
            del each[: None if delivered else -LONGEST_STORY]


def _share(busy_ms: int, passed_ms: int) -> float:
    """Of the time, in twentieths: finer steps would only be noise in everybody's streams."""
    return round(20 * min(1.0, busy_ms / max(1, passed_ms))) / 20
