"""Whether this machine is under pressure, and takes nothing new therefore. Pure, but for `look`,
which reads what the kernel says of itself.

What cannot be read (no pressure stall information, another operating system) is not claimed. A
reason stays until it has been gone for `CALM_MS`: a node that flickers helps nobody.
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

__all__ = ["CALM_MS", "PressureReading", "look", "lasting", "pressed"]

CALM_MS: Final = 30_000
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class PressureReading:
    """One look at the machine; None: not known. `memory_stall`: per cent of the last ten seconds in
    which every process stood still for memory. `pids`: process ids and threads that are left.
    """

    disk_mib: int | None = None
    memory_mib: int | None = None
    memory_stall: float | None = None
    pids: int | None = None


def pressed(vitals: PressureReading, bounds: Pressure) -> frozenset[NodeCondition]:
    """The reasons that hold at this moment."""
    found = {
        NodeCondition.DISK_PRESSURE: _below(vitals.disk_mib, bounds.disk_mib),
        NodeCondition.MEMORY_PRESSURE: _below(vitals.memory_mib, bounds.memory_mib)
        or (vitals.memory_stall is not None and vitals.memory_stall > bounds.memory_stall_percent),
        NodeCondition.PID_PRESSURE: _below(vitals.pids, bounds.pids),
    }
    return frozenset(reason for reason, holds in found.items() if holds)


def _below(left: int | None, bound: int) -> bool:
    return left is not None and left < bound


def lasting(
    known: Mapping[NodeCondition, int], now_pressed: frozenset[NodeCondition], now: int
) -> dict[NodeCondition, int]:
    """Reason -> when (ms) it held last; those that have been gone for long enough are dropped."""
    seen = {**known, **dict.fromkeys(now_pressed, now)}
    return {
        reason: last
        for reason, last in seen.items()
        if now - last < CALM_MS or reason in now_pressed
    }


def look(
    folder: Path, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")
) -> PressureReading:
    """The machine now. `folder`: where the agent writes."""
    return PressureReading(_disk(folder), _memory(proc), _stall(proc), _pids(proc, cgroup))


def _disk(folder: Path) -> int | None:
    """What is left for whom the agent runs as; root's reserve does not count."""
    with contextlib.suppress(OSError):
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize // MIB
    return None


def _memory(proc: Path) -> int | None:
    """`MemAvailable`: what can be had without swapping."""
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
    """The least of what the machine and this cgroup have left. Every thread takes a process id."""
    load, bounds = (
        _lines(proc / "loadavg"),
        [_number(proc / "sys/kernel" / name) for name in ("pid_max", "threads-max")],
    )
    left = []
    if load and (known := [bound for bound in bounds if bound is not None]):
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
