"""Values and errors of the simulated node."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
OUT_OF_MEMORY, OPERATING_SYSTEM, ILLEGAL_STATE, NOT_READY, NOT_SUPPORTED = 2, 304, 401, 600, 801


class DriverError(Exception):
    """Raised when the driver refuses a call; `code` is CUDA's number."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} (driver error {code})")
        self.code = code


class DeviceDetached(Exception):
    """Raised when the kernel has no GPU."""


class DeviceBlocked(Exception):
    """Raised when the process is locked or checkpointed. A real call would block; the caller
    retries.
    """


class DeviceExhausted(Exception):
    """Raised when an allocation does not fit: the size `wanted`, the memory `held` by this kernel,
    its `cap`, and `free` and `total` of the GPU, in bytes.
    """

    def __init__(self, wanted: int, held: int, cap: int, free: int, total: int) -> None:
        super().__init__(wanted, held, cap, free, total)
        self.wanted, self.held, self.cap, self.free, self.total = wanted, held, cap, free, total


@dataclass(frozen=True)
class SimGpu:
    """One simulated device; `total` in bytes."""

    index: int
    uuid: str
    model: str
    total: int


@dataclass
class KernelReading:
    """One kernel's processes (number, start time, state); resident bytes per (device ordinal, GPU),
    and saved bytes per device ordinal.
    """

    held: dict[tuple[int, str], int] = field(default_factory=dict)
    image: dict[int, int] = field(default_factory=dict)
    processes: list[tuple[int, int, str]] = field(default_factory=list)
    busy_ms: int = 0


@dataclass
class Reading:
    """The whole node at one time. `used` per GPU may lag behind, as NVML does (fault `lag`)."""

    used: dict[str, int] = field(default_factory=dict)
    kernels: dict[str, KernelReading] = field(default_factory=dict)


def now_ms() -> int:
    """Monotonic milliseconds; the same clock in every process of the machine."""
    return time.monotonic_ns() // 1_000_000


def start_of(pid: int) -> int | None:
    """Start time of a process (field 22 of its stat, in clock ticks since boot); None: it has
    exited or is a zombie.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZXx" else int(fields[19])
