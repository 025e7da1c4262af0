"""What the agent asks of the GPUs of its machine, whatever they are. Amounts are MiB, GPUs are
indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from jupyter_gpushare.messages import DeviceReport

if TYPE_CHECKING:
    from ...system.cgroups import Cgroups

__all__ = [
    "Admit",
    "CopyFailed",
    "Devices",
    "DevicesBusy",
    "DeviceFault",
    "TenantMemory",
    "KernelProcesses",
    "NodeReading",
]


class DevicesBusy(Exception):
    """Raised when the driver does not answer at once; nothing was changed, and the same call may
    succeed a moment later.
    """


class CopyFailed(Exception):
    """Raised when memory could not be saved or brought back; the kernel is as it was before.

    `for_good`: trying again is useless (not supported, or broken). `lost`: the image can never be
    brought back.
    """

    def __init__(self, message: str, *, for_good: bool, lost: bool = False) -> None:
        super().__init__(message)
        self.for_good, self.lost = for_good, lost


@dataclass(frozen=True, slots=True)
class TenantMemory:
    """What one kernel's processes hold: per GPU, and per device ordinal in host memory.
    `half_done`: a copy was cut off in the middle.
    """

    held: Mapping[int, int] = field(default_factory=dict)
    image: tuple[int, ...] = ()
    suspended: bool = False
    half_done: bool = False
    processes: tuple[tuple[int, int], ...] = ()
    busy_ms: int = 0
    is_timed: bool = True
    """Whether `busy_ms` is measured at all: instances (MIG) do not tell."""


@dataclass(frozen=True, slots=True)
class NodeReading:
    """All GPUs at one moment; `used` is what the driver says, which may lag behind what the kernels
    hold. `foreign`: held by processes that are no kernel's (in `used` it is not counted). `taken`:
    when this was true (monotonic ms); None: now.
    """

    used: Mapping[int, int]
    kernels: Mapping[str, TenantMemory]
    foreign: Mapping[int, int] = field(default_factory=dict)
    taken: int | None = None


@dataclass(frozen=True, slots=True)
class KernelProcesses:
    """By what a kernel's processes are known: its main one (pid and start time), the mark of its
    launch; its own cgroup (v2, full path; "": none) and what its lease guarantees per device, for
    limits of the driver; its unix user (None: the agent's).
    """

    main: tuple[int, int] | None = None
    launch: str = ""
    leaf: str = ""
    guarantee_mib: int = 0
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """An error that a program caused on a GPU. `kernel_id`: whose it was, when only one can have
    been it; else "".
    """

    gpu: int
    kernel_id: str
    message: str


Admit = Callable[[int], str]
"""Asked in the copy's thread when it is known how many MiB will be saved and nothing of that can
grow any more; answers why not, or "".
"""


class Devices(Protocol):
    """One machine's GPUs. Everything but `suspend`, `resume` and `settle` returns at once or raises
    DevicesBusy; those three are called in a thread.
    """

    simulated: bool
    cgroups: Cgroups
    """Where kernels get one of their own, if anywhere."""

    def reports(self) -> list[DeviceReport]:
        """The devices by index."""

    def environment(self) -> dict[str, str]:
        """What a kernel's environment must say so that it finds these GPUs."""

    def tiers(self) -> tuple[list[str], dict[str, str]]:
        """Capability tiers that this node has, and for each missing one the reason."""

    def driver(self) -> str:
        """Version of the driver; "" where there is none."""

    def follow(self, kernels: Mapping[str, KernelProcesses]) -> None:
        """These are the kernels of this node from now on, by id."""

    def listen(self, wake: Callable[[], None]) -> None:
        """`wake` is called, from any thread, when there is a new reading."""

    def hurry(self) -> None:
        """A decision waits for a reading newer than the last one: take it now."""

    def pace(self, closely: bool) -> None:
        """Whether memory is being moved or waited for: look often."""

    def faults(self) -> list[DeviceFault]:
        """What programs did to the GPUs since this was last asked."""

    def version(self) -> int:
        """Changes when a reading may have changed."""

    def read(self) -> NodeReading:
        """Everything at one moment."""

    def attach(self, kernels: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        """(GPU, cap) per device ordinal for these kernels; an empty sequence detaches."""

    def attached(self) -> set[str]:
        """The kernels that are attached to something."""

    def vacate(self, leaf: str) -> None:
        """A kernel's cgroup is about to be removed: the driver has to forget it first. Called in a
        thread.
        """

    def abandoned(self, alive: set[str]) -> list[str]:
        """Cgroups that the driver was told about in an earlier life, without these."""

    def suspend(self, kernel_id: str, admit: Admit) -> int:
        """Save all memory of a kernel in host memory; returns MiB. Raises CopyFailed, also when
        `admit` has an objection.
        """

    def resume(self, kernel_id: str, gpus: Sequence[int]) -> int:
        """Bring a kernel's memory back onto these GPUs and let it run; returns MiB. Raises
        CopyFailed.
        """

    def settle(self, kernel_id: str) -> None:
        """Finish or undo a copy that was cut off by the agent's death. Raises CopyFailed when the
        state is lost.
        """

    def unsavable(self, gpu: int) -> str:
        """Why nothing on this GPU can be saved, whatever the node's tiers say; "": nothing speaks
        against it.
        """

    def patience_s(self, mib: int) -> float:
        """How long (seconds) a copy of so much may take before it counts as hung."""

    def close(self) -> None:
        """Let go of the driver; the memory stays as it is."""
