"""Samples of each kernel's GPU memory and state: a bounded series per kernel, in memory only.

Times are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import time_ns
from typing import Final

from msgspec import structs

from jupyter_gpushare.core.estimates.time_series import Grain, Series, thinned
from jupyter_gpushare.messages import Kernel, KernelHistory, KernelSample, stamp

__all__ = ["KernelHistories", "wall_ms"]

MOST_POINTS: Final = 360
MINUTE: Final = 60_000
GRAINS: Final = (
    Grain(1000, 2 * MINUTE),
    Grain(10_000, 20 * MINUTE),
    Grain(MINUTE, 180 * MINUTE),
    Grain(10 * MINUTE, 24 * 60 * MINUTE),
)
"""Recent samples are denser than those of the queues: they show the effect of single cells."""


class KernelHistories:
    """Times are ms since the epoch."""

    def __init__(self) -> None:
        self._series: dict[str, Series[KernelSample]] = {}

    def sample(self, now: int, kernels: Iterable[Kernel]) -> None:
        """Sample these kernels; the series of all others are dropped."""
        known, self._series = self._series, {}
        for kernel in kernels:
            if kernel.kernel_id in known:
                self._series[kernel.kernel_id] = known[kernel.kernel_id]
            self.changed(now, kernel)

    def changed(self, now: int, kernel: Kernel) -> None:
        """Sample one kernel if its next sample is due. A state that ends before that is not kept:
        a request that is granted at once is no wait.
        """
        series = self._series.setdefault(kernel.kernel_id, Series(GRAINS))
        newest = series.newest
        if series.is_due(now):
            series.add(now, _sample(now, kernel))
        elif newest is not None and newest.state != kernel.state:
            series.replace_newest(structs.replace(_sample(now, kernel), time=newest.time))

    def of(self, kernel: Kernel, now: int, minutes: int) -> KernelHistory:
        """The last `minutes`, oldest first; the last sample is the present state."""
        series = self._series.get(kernel.kernel_id)
        past = series.since(now - minutes * MINUTE) if series is not None else []
        samples = [sample for _, sample in thinned(past, MOST_POINTS)]
        return KernelHistory(kernel_id=kernel.kernel_id, samples=[*samples, _sample(now, kernel)])


def _sample(now: int, kernel: Kernel) -> KernelSample:
    memory = kernel.memory_mib
    return KernelSample(
        time=stamp(now),
        state=kernel.state,
        gpu=kernel.request.gpu,
        guaranteed_mib=memory.guaranteed,
        used_mib=memory.used,
        borrowed_mib=memory.borrowed,
        utilization=kernel.utilization,
    )


def wall_ms() -> int:
    """Now, in ms since the epoch."""
    return time_ns() // 1_000_000
