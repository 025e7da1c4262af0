"""Kernels whose interpreter stands still because their GPU memory is away: they are brought back.

While a process is suspended its CUDA calls wait in the driver. Most libraries let other Python
threads run meanwhile; one that does not stops the whole interpreter, and then no cell, no widget
and no shutdown gets through. The kernel's line to the agent says every second that it is alive;
silence while it is suspended is the sign. Pure: one book and a moment in, what to do out.
"""

from __future__ import annotations

from typing import Final

from ..state.kernel_record import KernelRecord

__all__ = ["FROZEN_MS", "IMMUNE_MS", "SPARED", "watch"]

FROZEN_MS: Final = 6_000
"""Silence that counts: the kernel speaks every second, and a machine may be slow."""
IMMUNE_MS: Final = 300_000
"""It would stand still again: not suspended for so long."""
SPARED: Final = "its interpreter stood still while its GPU memory was away"


def watch(book: KernelRecord, now: int) -> bool:
    """Note in the book whether it stands still; True when this has just been found out.

    It is suspended, its line stands, it has said before that it is alive, and it has not for too
    long, nor since it was suspended.
    """
    if not book.holding.suspended or book.transit is not None:
        book.quiet_since = None
        if book.frozen is not None and not book.holding.suspended:
            book.frozen, book.no_suspend_until, book.no_suspend_why = None, now + IMMUNE_MS, SPARED
        return False
    if book.quiet_since is None or book.heard > book.quiet_since:
        book.quiet_since = max(now, book.heard) if book.quiet_since is None else book.heard
    if (
        book.frozen is None
        and book.connected
        and book.heard
        and now - book.quiet_since >= FROZEN_MS
    ):
        book.frozen = now
        return True
    return False
