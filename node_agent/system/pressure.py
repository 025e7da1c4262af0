"""Whether this machine is under pressure, so that it accepts nothing new. Pure except for
`read_pressure`.

Values that cannot be read (no pressure stall information, another operating system) raise no
condition. A condition ends after it has been absent for `CALM_MS`, so that nodes do not flap.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jupyter_gpushare.core.model.node_conditions import NodeCondition
from jupyter_gpushare.messages import Pressure

__all__ = [
    "CALM_MS",
    "PressureReading",
    "pressure_conditions",
    "read_pressure",
    "recent_conditions",
]

CALM_MS: Final = 30_000
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class PressureReading:
    """The machine at one moment; None: not known. `memory_stall`: percentage of the last ten
    seconds in which all processes waited for memory. `pids`: available process ids.
    """

    disk_mib: int | None = None
    memory_mib: int | None = None
    memory_stall: float | None = None
    pids: int | None = None


def pressure_conditions(reading: PressureReading, bounds: Pressure) -> frozenset[NodeCondition]:
    """The conditions at this moment."""
    found = {
        NodeCondition.DISK_PRESSURE: _below(reading.disk_mib, bounds.disk_mib),
        NodeCondition.MEMORY_PRESSURE: _below(reading.memory_mib, bounds.memory_mib)
        or (
            reading.memory_stall is not None and reading.memory_stall > bounds.memory_stall_percent
        ),
        NodeCondition.PID_PRESSURE: _below(reading.pids, bounds.pids),
    }
    return frozenset(condition for condition, holds in found.items() if holds)


def _below(left: int | None, bound: int) -> bool:
    return left is not None and left < bound


def recent_conditions(
    known: Mapping[NodeCondition, int], current: frozenset[NodeCondition], now: int
) -> dict[NodeCondition, int]:
    """Condition -> when (ms) it was last true, without those that ended `CALM_MS` ago."""
    recent = dict.fromkeys(current, now)
    for condition, last in known.items():
        if now - last < CALM_MS:
            recent.setdefault(condition, last)
    return recent


def read_pressure(
    folder: Path, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")
) -> PressureReading:
    """The machine now. `folder`: where the agent writes. Blocks for as long as the disk does."""
    return PressureReading(_disk(folder), _memory(proc), _stall(proc), _pids(proc, cgroup))


def _disk(folder: Path) -> int | None:
    """Free space for the agent's user, without the reserve for root."""
    with contextlib.suppress(OSError):
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize // MIB
    return None


def _memory(proc: Path) -> int | None:
    """`MemAvailable`: memory that is available without swapping."""
    for line in _lines(proc / "meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return None


def _stall(proc: Path) -> float | None:
    for line in _lines(proc / "pressure" / "memory"):
        if line.startswith("full "):
            return float(line.split()[1].removeprefix("avg10="))
    return None


def _pids(proc: Path, cgroup: Path) -> int | None:
    """Process ids that are left in the machine and this cgroup. Threads use process ids too."""
    load = _lines(proc / "loadavg")
    bounds = [_number(proc / "sys/kernel" / name) for name in ("pid_max", "threads-max")]
    known = [bound for bound in bounds if bound is not None]
    left = []
    if load and known:
        left.append(min(known) - int(load[0].split()[3].partition("/")[2]))
    most, used = _number(cgroup / "pids.max"), _number(cgroup / "pids.current")
    if most is not None and used is not None:
        left.append(most - used)
    return min(left, default=None)


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].strip().isdecimal() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
