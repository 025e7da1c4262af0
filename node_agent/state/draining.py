"""GPUs whose memory does not come free: what should have been given back and is not is counted on
by nobody after a while.

Memory is free when three facts agree: the processes have ended (pidfd), the driver no longer lists
them, and its free memory rose. A killed process may hang in the kernel, and a driver may take its
time. Until the facts agree nobody is let in on it; after the patience is over the GPU is draining:
others make room instead, and no new work is sent there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from .kernel_record import KernelRecord

__all__ = ["Draining", "HEADWAY"]

HEADWAY: Final = 0.1
"""The driver is still at work when this part of what lags has come free since the last look."""


@dataclass(slots=True)
class _LateRelease:
    mib: int
    since: int


class Draining:
    """Watches one node. `stuck` and `killed_late` are true now; `look` brings them up to date."""

    def __init__(self, patience_ms: int) -> None:
        self._patience = patience_ms
        self._lags: dict[int, _LateRelease] = {}
        self._killed: dict[str, int] = {}
        self.stuck: dict[int, int] = {}
        """MiB per GPU that should have been free for long."""
        self.late: set[str] = set()
        """Kernels that were killed and do not die."""

    def look(self, lagging: Mapping[int, int], kernels: Iterable[KernelRecord], now: int) -> None:
        """One reading."""
        killed = [
            kernel.kernel_id
            for kernel in kernels
            if kernel.process.killing and kernel.memory.used_mib
        ]
        self._killed = {name: self._killed.get(name, now) for name in killed}
        self.late = {name for name, since in self._killed.items() if now - since > self._patience}
        for gpu in [gpu for gpu in self._lags if gpu not in lagging]:
            del self._lags[gpu]
        for gpu, mib in lagging.items():
            known = self._lags.get(gpu)
            if known is None or mib > known.mib or mib < known.mib * (1 - HEADWAY):
                self._lags[gpu] = _LateRelease(mib, now)
        self.stuck = {
            gpu: lagging[gpu] for gpu, lag in self._lags.items() if now - lag.since > self._patience
        }

    def problem(self, gpu: int, kernels: Iterable[KernelRecord]) -> str:
        """A sentence for people when this GPU is draining; "" otherwise."""
        undead = sum(
            kernel.memory.usage.held.get(gpu, 0)
            for kernel in kernels
            if kernel.kernel_id in self.late
        )
        mib = self.stuck.get(gpu, 0) + undead
        return f"Draining: {mib} MiB of processes that were ended are not free yet." if mib else ""
