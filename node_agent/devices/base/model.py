"""Data and errors that devices and the agent exchange. Amounts are MiB, GPUs are indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...system.process_owner import ProcessOwner

__all__ = [
    "TIERS",
    "Capabilities",
    "CopyAdmission",
    "CopyFailed",
    "DeviceFault",
    "DeviceTraits",
    "DevicesBusy",
    "KernelProcesses",
    "NodeReading",
    "TenantMemory",
]

TIERS: Final = ("observe", "cooperate", "limit", "suspend", "relocate")
"""Capability tiers of a node, from the least to the most demanding."""


class DevicesBusy(Exception):
    """Raised when the driver does not answer at once. Nothing was changed; retry later."""


class CopyFailed(Exception):
    """Raised when GPU memory could not be saved or restored; the kernel is as it was before.

    `for_good`: a retry is useless (not supported, or broken). `lost`: the saved memory can never be
    restored.
    """

    def __init__(self, message: str, *, for_good: bool, lost: bool = False) -> None:
        super().__init__(message)
        self.for_good, self.lost = for_good, lost


class Capabilities(NamedTuple):
    """Capability tiers of a node, and for each missing tier the reason."""

    tiers: list[str]
    problems: dict[str, str]


@dataclass(frozen=True, slots=True)
class DeviceTraits:
    """Fixed properties of a vendor's devices. The agent decides by these, never by the vendor."""

    label: str = "GPU"
    """What messages call a device: `GPU 0`."""
    simulated: bool = False
    """Reported to servers and the scheduler; the agent itself does not depend on it."""
    kernels_select_devices: bool = True
    """Kernels choose their devices and keep their memory caps; False: attaching does both."""
    reports_usage: bool = True
    """Device reports contain the memory in use and the utilization; False: the agent adds up what
    its kernels use.
    """
    images_use_host_memory: bool = True
    """Saved GPU memory occupies the memory of this machine."""
    recovers_copies_at_start: bool = True
    """Only `recover` can tell which kernels were being copied when an earlier agent ended."""


@dataclass(frozen=True, slots=True)
class TenantMemory:
    """GPU memory of one kernel's processes, per GPU in `held`. `image`: saved in host memory, per
    device ordinal. `half_done`: a copy was interrupted.
    """

    held: Mapping[int, int] = field(default_factory=dict)
    image: tuple[int, ...] = ()
    suspended: bool = False
    half_done: bool = False
    processes: tuple[tuple[int, int], ...] = ()
    busy_ms: int = 0
    is_timed: bool = True
    """Whether `busy_ms` is measured; MIG instances do not report it."""


@dataclass(frozen=True, slots=True)
class NodeReading:
    """All GPUs at one moment. `used`: memory in use according to the driver, without `foreign`; it
    may lag behind what the kernels hold. `foreign`: memory of other processes. `taken`: time of the
    reading (monotonic ms); None: now.
    """

    used: Mapping[int, int]
    kernels: Mapping[str, TenantMemory]
    foreign: Mapping[int, int] = field(default_factory=dict)
    taken: int | None = None


@dataclass(frozen=True, slots=True)
class KernelProcesses:
    """Identifies the processes of a kernel: `main` is (pid, start time), `launch` the marker in
    their environment, `leaf` the path of their cgroup (v2; "": none), `owner` whose they are (None:
    the agent's user). `guarantee_mib`: guaranteed memory per device, for limits of the driver.
    """

    main: tuple[int, int] | None = None
    launch: str = ""
    leaf: str = ""
    guarantee_mib: int = 0
    owner: ProcessOwner | None = None


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """A GPU error that a program caused. `kernel_id`: the kernel at fault; "": not known."""

    gpu: int
    kernel_id: str
    message: str


CopyAdmission = Callable[[int], str]
"""Called in the thread of a copy when its size (MiB) is known and final. Returns why the copy must
not proceed, or "".
"""
