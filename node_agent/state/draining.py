"""GPUs whose memory is not freed: after a timeout nothing counts on it any more.

Memory is free when three facts agree: the processes have ended (pidfd), the driver no longer lists
them, and its free memory rose. A killed process may hang in the operating system, and a driver may
take its time. Until the facts agree no cell is admitted on that memory; after the timeout the GPU
is draining: other kernels make room instead, and no new work is sent to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from .kernel_record import KernelRecord

__all__ = ["Draining", "PROGRESS"]

PROGRESS: Final = 0.1
"""The driver is still freeing memory when this part of it was freed since the last reading."""


@dataclass(slots=True)
class _LateRelease:
    mib: int
    since: int


class Draining:
    """Follows one node. `stuck` and `late` are true now; `look` updates them."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._lags: dict[int, _LateRelease] = {}
        self._killed: dict[str, int] = {}
        self.stuck: dict[int, int] = {}
        """MiB per GPU that should have been free for long."""
        self.late: set[str] = set()
        """Kernels that were killed and do not end."""

    def look(self, lagging: Mapping[int, int], kernels: Iterable[KernelRecord], now: int) -> None:
        """Take in one reading."""
        killed = {}
        for kernel in kernels:
            if kernel.process.killing and kernel.memory.used_mib:
                killed[kernel.kernel_id] = self._killed.get(kernel.kernel_id, now)
        self._killed = killed
        self.late = {name for name, since in killed.items() if now - since > self._timeout_ms}
        for gpu in self._lags.keys() - lagging.keys():
            del self._lags[gpu]
        for gpu, mib in lagging.items():
            known = self._lags.get(gpu)
            if known is None or mib > known.mib or mib < known.mib * (1 - PROGRESS):
                self._lags[gpu] = _LateRelease(mib, now)
        late_gpus = [gpu for gpu, lag in self._lags.items() if now - lag.since > self._timeout_ms]
        self.stuck = {gpu: lagging[gpu] for gpu in late_gpus}

    def problem(self, gpu: int, kernels: Iterable[KernelRecord]) -> str:
        """A sentence for people when this GPU is draining; "" otherwise."""
        mib = self.stuck.get(gpu, 0)
        for kernel in kernels:
            if kernel.kernel_id in self.late:
                mib += kernel.memory.usage.held.get(gpu, 0)
        return f"Draining: {mib} MiB of ended processes are not free yet." if mib else ""
