"""Defaults for vendors: memory is shared cooperatively, without limits, copies or events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...system.cgroups import Cgroups
from .model import (
    TIERS,
    Capabilities,
    CopyAdmission,
    CopyFailed,
    DeviceFault,
    DeviceTraits,
    KernelProcesses,
)

__all__ = ["BasicDevices"]

UNSUPPORTED = "these GPUs do not support it"


class BasicDevices:
    """Every protocol but `DeviceInventory.reports`, `MemoryReader` and `DeviceAttachment`, which a
    subclass implements.
    """

    traits = DeviceTraits()
    cgroups = Cgroups(None, UNSUPPORTED)

    def driver(self) -> str:
        """No driver."""
        return ""

    def sensors(self, gpu: int, utilization: float) -> tuple[int | None, int | None]:  # noqa: ARG002 - protocol
        """Nothing is measured."""
        return None, None

    def environment(self) -> dict[str, str]:
        """No variables."""
        return {}

    def capabilities(self) -> Capabilities:
        """`observe` and `cooperate`."""
        return Capabilities(list(TIERS[:2]), dict.fromkeys(TIERS[2:], UNSUPPORTED))

    def suspend_problem(self, gpu: int) -> str:  # noqa: ARG002 - protocol
        """No differences between the GPUs of a node."""
        return ""

    def probe(self) -> None:
        """Nothing to test."""

    def advice(self, tier: str, problem: str) -> tuple[str, str]:  # noqa: ARG002 - protocol
        """A problem may contain its remedy, after a semicolon."""
        reason, _, remedy = problem.partition("; ")
        return reason, remedy

    def start(self, wake: Callable[[], None]) -> None:
        """Every reading is current."""

    def refresh(self) -> None:
        """Every reading is current."""

    def sample_fast(self, enabled: bool) -> None:
        """Every reading is current."""

    def take_faults(self) -> list[DeviceFault]:
        """No errors are reported."""
        return []

    def track_kernels(self, kernels: Mapping[str, KernelProcesses]) -> None:
        """Processes are not attributed here."""

    def when_limits_are_set(self, kernel_id: str, action: Callable[[], None]) -> None:  # noqa: ARG002 - protocol
        """There are no limits to wait for."""
        action()

    def release_cgroup(self, leaf: str) -> None:
        """There are no limits per cgroup."""

    def orphaned_cgroups(self, alive: set[str]) -> list[str]:  # noqa: ARG002 - protocol
        """There are no limits per cgroup."""
        return []

    def suspend(self, kernel_id: str, admit: CopyAdmission) -> int:  # noqa: ARG002 - protocol
        """Not supported. Raises CopyFailed."""
        raise CopyFailed(UNSUPPORTED, for_good=True)

    def resume(self, kernel_id: str, gpus: Sequence[int]) -> int:  # noqa: ARG002 - protocol
        """Not supported. Raises CopyFailed."""
        raise CopyFailed(UNSUPPORTED, for_good=True)

    def recover(self, kernel_id: str) -> None:
        """Nothing was copied."""

    def copy_timeout_s(self, mib: int) -> float:  # noqa: ARG002 - protocol
        """Not used without copies."""
        return 0.0

    def close(self) -> None:
        """Nothing to release."""
