"""CPU time and memory of this machine in use, for people; decisions use `host_memory`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .host_memory import HostReading, read_host

__all__ = ["HostUsage", "HostUsageReader"]

EVERY_MS: Final = 5_000
"""A reading is this old at most, and CPU time is that of so long at least."""
IDLE_COLUMNS: Final = (3, 4)
"""Of the line `cpu` in /proc/stat: idle, and waiting for disks."""
COUNTED_COLUMNS: Final = 8
"""The later columns, time of guests, are part of earlier ones."""
STEP_MIB: Final = 16
"""Memory is rounded up to this, so that an idle machine has nothing new to report."""


@dataclass(frozen=True, slots=True)
class HostUsage:
    """The machine; None: not known (another operating system). `cpu`: 0..1. Amounts are MiB."""

    cpu: float | None = None
    memory: HostReading | None = None

    @property
    def used_mib(self) -> int | None:
        """Memory that Linux cannot free at once."""
        if self.memory is None:
            return None
        return -(-(self.memory.total - self.memory.available) // STEP_MIB) * STEP_MIB


class HostUsageReader:
    """Reads /proc at most once in `EVERY_MS`."""

    def __init__(self, clock: Callable[[], int], proc: Path = Path("/proc")) -> None:
        self._clock, self._proc = clock, proc
        self._last = HostUsage()
        self._taken: int | None = None
        self._ticks: tuple[int, int] | None = None

    def read(self) -> HostUsage:
        """The last reading, or a new one. CPU time is not known at the first."""
        now = self._clock()
        if self._taken is None or now - self._taken >= EVERY_MS:
            self._taken = now
            try:
                self._last = HostUsage(self._cpu(), read_host((), self._proc))
            except (OSError, ValueError, KeyError, IndexError):
                self._last = HostUsage()
        return self._last

    def _cpu(self) -> float | None:
        before, self._ticks = self._ticks, self._read_ticks()
        if before is None:
            return None
        idle, total = (new - old for new, old in zip(self._ticks, before, strict=True))
        return round(1 - idle / total, 2) if total > 0 else None

    def _read_ticks(self) -> tuple[int, int]:
        """(idle, all) since the start of the machine."""
        line = (self._proc / "stat").read_text().partition("\n")[0]
        numbers = [int(word) for word in line.split()[1 : 1 + COUNTED_COLUMNS]]
        return sum(numbers[column] for column in IDLE_COLUMNS), sum(numbers)
