"""Protocols of GPU devices, one to three methods each. A vendor implements all of them (`Devices`);
code that uses devices names the protocols that it needs.

Amounts are MiB, GPUs are indexes. Methods return at once or raise DevicesBusy, unless stated
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from jupyter_gpushare.messages import DeviceReport

from .model import (
    Capabilities,
    CopyAdmission,
    DeviceFault,
    DeviceTraits,
    KernelProcesses,
    NodeReading,
)

if TYPE_CHECKING:
    from ...system.cgroups import Cgroups

__all__ = [
    "CgroupLimits",
    "CopyEstimates",
    "DeviceAttachment",
    "DeviceInventory",
    "DeviceSampling",
    "DeviceSelfTest",
    "Devices",
    "DiscoveryRequest",
    "FaultSource",
    "HasCapabilities",
    "MemoryCopies",
    "MemoryReader",
    "ProcessTracking",
    "Vendor",
]


class DeviceInventory(Protocol):
    """Which devices this machine has."""

    @property
    def traits(self) -> DeviceTraits:
        """Fixed properties of these devices."""

    def reports(self) -> list[DeviceReport]:
        """The devices by index."""

    def sensors(self, gpu: int, utilization: float) -> tuple[int | None, int | None]:
        """(°C, watts) at this utilization, for devices whose reports lack the usage; None: not
        known.
        """

    def driver(self) -> str:
        """Version of the driver; "" without one."""

    def environment(self) -> dict[str, str]:
        """Environment variables with which kernels find the devices."""


class HasCapabilities(Protocol):
    """What this node can do."""

    def capabilities(self) -> Capabilities:
        """Capability tiers, and for each missing tier the reason."""

    def suspend_problem(self, gpu: int) -> str:
        """Why memory of this GPU cannot be saved although the node has `suspend`; "": it can."""


class DeviceSelfTest(Protocol):
    """Tests the capabilities of this node."""

    def probe(self) -> None:
        """Update `capabilities`. May block for a minute; called in a thread."""

    def advice(self, tier: str, problem: str) -> tuple[str, str]:
        """(reason, remedy) for the problem of a missing tier."""


class DeviceSampling(Protocol):
    """When the devices are read."""

    def start(self, wake: Callable[[], None]) -> None:
        """Start reading; `wake` is called, from any thread, after each change."""

    def refresh(self) -> None:
        """Take a new reading now: a decision depends on it."""

    def sample_fast(self, enabled: bool) -> None:
        """Read more often while memory is moved or awaited."""


class MemoryReader(Protocol):
    """The last reading."""

    def version(self) -> int:
        """Changes whenever a reading may have changed."""

    def read(self) -> NodeReading:
        """Memory of all kernels and other processes."""


class FaultSource(Protocol):
    """Errors on the devices."""

    def take_faults(self) -> list[DeviceFault]:
        """Errors that programs caused since the last call."""


class ProcessTracking(Protocol):
    """Which processes belong to which kernel."""

    def track_kernels(self, kernels: Mapping[str, KernelProcesses]) -> None:
        """Replace the kernels of this node, by id."""


class DeviceAttachment(Protocol):
    """Which kernel may use which devices."""

    def attach(self, kernels: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """Set (GPU, cap) per device ordinal for these kernels; an empty sequence detaches."""

    def attached(self) -> set[str]:
        """Kernels that are attached."""

    def when_limits_are_set(self, kernel_id: str, action: Callable[[], None]) -> None:
        """Call this once the driver enforces the attachment of the kernel, in the running event
        loop: at once where there is nothing to enforce.
        """


class CgroupLimits(Protocol):
    """Limits that the driver enforces per cgroup."""

    @property
    def cgroups(self) -> Cgroups:
        """Where kernels get cgroups of their own, if possible."""

    def release_cgroup(self, leaf: str) -> None:
        """Remove the limits of a cgroup before it is deleted. Blocks; called in a thread."""

    def orphaned_cgroups(self, alive: set[str]) -> list[str]:
        """Cgroups with limits set by an earlier agent, except those in `alive`."""


class MemoryCopies(Protocol):
    """Moves GPU memory to host memory and back. All methods block; called in threads."""

    def suspend(self, kernel_id: str, admit: CopyAdmission) -> int:
        """Save all GPU memory of a kernel; returns MiB. Raises CopyFailed, also when `admit`
        refuses.
        """

    def resume(self, kernel_id: str, gpus: Sequence[int]) -> int:
        """Restore the memory of a kernel on these GPUs and let it run; returns MiB. Raises
        CopyFailed.
        """

    def recover(self, kernel_id: str) -> None:
        """Finish or undo an interrupted copy. Raises CopyFailed when the memory is lost."""


class CopyEstimates(Protocol):
    """How long copies take."""

    def copy_timeout_s(self, mib: int) -> float:
        """Seconds after which a copy of this size counts as hung."""


class Devices(
    DeviceInventory,
    HasCapabilities,
    DeviceSelfTest,
    DeviceSampling,
    MemoryReader,
    FaultSource,
    ProcessTracking,
    DeviceAttachment,
    CgroupLimits,
    MemoryCopies,
    CopyEstimates,
    Protocol,
):
    """The GPUs of one machine: everything that the agent needs from a vendor."""

    def close(self) -> None:
        """Release the driver; GPU memory stays as it is."""


class DiscoveryRequest(NamedTuple):
    """Where and for which node devices are searched. `public`: directory that the kernels of all
    users can reach; None: the agent serves one user. `simulate`: GPUs to simulate (`A100:2`), of
    `gpu_memory` each, copied at `copy_gib_s`. `no_cgroups`: why kernels get no cgroups of their
    own; "": they do where that is possible.
    """

    node: str
    state_dir: Path
    public: Path | None = None
    simulate: str = ""
    gpu_memory: str | None = None
    copy_gib_s: float = 100.0
    no_cgroups: str = ""


class Vendor(Protocol):
    """Finds the devices of one vendor."""

    def find(self, request: DiscoveryRequest) -> Devices | None:
        """The devices of this machine; None: not applicable to this request. Raises Unavailable
        with the reason and the remedy when there are none.
        """
