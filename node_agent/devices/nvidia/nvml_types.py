"""What `nvml` returns. Amounts are bytes as NVML gives them, unless the name says MiB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MIB", "GpuEvent", "GpuFound", "NvmlMemory", "ProcessUse", "offered_mib"]

MIB: Final = 1 << 20
RESERVED_FRACTION: Final = 512
"""One 512th of a GPU (160 MiB of 80 GiB) is not offered: the driver uses a little memory that it
attributes to no process. Without this slack, the last of several guarantees that fill a GPU would
never fit.
"""


@dataclass(frozen=True, slots=True)
class GpuFound:
    """A GPU, or a MIG instance of one. `index` counts both from 0; `minor` is the number of the
    device file (-1: not known).
    """

    index: int
    uuid: str
    model: str
    total_mib: int
    mig: bool = False
    minor: int = -1


@dataclass(frozen=True, slots=True)
class NvmlMemory:
    """Memory of one device. `reserved`: for the driver, part of neither `used` nor `free`."""

    total: int
    used: int
    free: int
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Memory of a process on a device, including its context; None: the driver does not say."""

    pid: int
    size: int | None


@dataclass(frozen=True, slots=True)
class GpuEvent:
    """An event of a board; `gpus`: the devices on it. `data` is the XID of an `xid`."""

    gpus: tuple[int, ...]
    kind: str
    data: int


def offered_mib(memory: NvmlMemory) -> int:
    """How much of a device is offered to kernels."""
    usable = memory.total - memory.reserved
    return (usable - usable // RESERVED_FRACTION) // MIB
