"""Which GPUs this agent serves. Simulated ones only when they were asked for: nobody is ever given a pretence without knowing."""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Callable
from pathlib import Path

from jupyter_gpushare.core.errors import GpuShareError, Unavailable

from .devices import Devices
from .devices.simulated import SimulatedDevices, Simulation

__all__ = ["find_devices", "has_driver", "self_test"]


def has_driver() -> bool:
    """Whether an NVIDIA driver is installed here."""
    return os.path.exists("/proc/driver/nvidia/version") or ctypes.util.find_library("nvidia-ml") is not None


def find_devices(node: str, state_dir: Path, simulation: Simulation | None, *, driver: Callable[[], bool] = has_driver) -> Devices:
    """The devices of this machine. Raises Unavailable with what to do instead."""
    if simulation is not None:
        return SimulatedDevices(state_dir / "simgpu.sqlite", node, simulation)
    if driver():
        raise Unavailable("this machine has an NVIDIA driver, but real GPUs come with a later release; start with --simulate MODEL:N")
    raise Unavailable("no NVIDIA driver was found on this machine; start with --simulate MODEL:N for simulated GPUs")


def self_test(devices: Devices) -> list[tuple[str, bool, str]]:
    """(tier, whether this node has it, why not) for every tier, mildest first."""
    tiers, problems = devices.tiers()
    found = []
    for tier in ("observe", "cooperate", "limit", "suspend", "relocate"):
        why = "" if tier in tiers else problems.get(tier, "not found")
        found.append((tier, tier in tiers, why))
    if not found[0][1]:
        raise GpuShareError("this node cannot even observe its GPUs")
    return found
