"""Finds kernels whose interpreter is blocked because their GPU memory is saved: they are resumed.

While a process is suspended its CUDA calls wait in the driver. Most libraries let other Python
threads run meanwhile; one that does not blocks the whole interpreter, and then no cell, no widget
and no shutdown gets through. The kernel sends a heartbeat every second; silence while it is
suspended is the sign. Pure: one record and a moment in, the finding out.
"""

from __future__ import annotations

from typing import Final

from ..state.kernel_record import KernelRecord

__all__ = ["FROZEN_MS", "IMMUNE_MS", "SPARED", "watch"]

FROZEN_MS: Final = 6_000
"""Silence that counts: the kernel sends a heartbeat every second, and a machine may be slow."""
IMMUNE_MS: Final = 300_000
"""It would be blocked again: not suspended for so long."""
SPARED: Final = "its interpreter was blocked while its GPU memory was saved"


def watch(kernel: KernelRecord, now: int) -> bool:
    """Note in the record whether the interpreter is blocked; True when this has just been found.

    It is blocked when the kernel is suspended and connected, has sent heartbeats before, and has
    sent none for too long, nor since it was suspended.
    """
    memory, heartbeat = kernel.memory, kernel.heartbeat
    if not memory.suspended or memory.transit is not None:
        heartbeat.quiet_since = None
        if heartbeat.frozen_since is not None and not memory.suspended:
            heartbeat.frozen_since = None
            memory.forbid_suspend(now + IMMUNE_MS, SPARED)
        return False
    if heartbeat.quiet_since is None:
        heartbeat.quiet_since = max(now, heartbeat.received_at)
    elif heartbeat.received_at > heartbeat.quiet_since:
        heartbeat.quiet_since = heartbeat.received_at
    silent = kernel.gate.connected and heartbeat.received_at
    if heartbeat.frozen_since is None and silent and now - heartbeat.quiet_since >= FROZEN_MS:
        heartbeat.frozen_since = now
        return True
    return False
