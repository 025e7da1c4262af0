"""Which GPUs this agent serves. Simulated ones only when they were asked for: nobody is ever given
a pretence without knowing.
"""

from __future__ import annotations

import logging
from pathlib import Path

from jupyter_gpushare.core.model.errors import Unavailable

from ..devices.base.protocols import Devices
from ..devices.nvidia.nvidia_devices import TIERS, NvidiaDevices
from ..devices.nvidia.nvml import Nvml
from ..devices.simulated.simulated_devices import SimulatedDevices, Simulation
from ..system.run_directory import prepared

__all__ = ["find_devices", "missing_all", "self_test"]

log = logging.getLogger("gpushare.agent")
INSTEAD = "start with --simulate MODEL:N for simulated GPUs"


def find_devices(
    node: str, state_dir: Path, simulation: Simulation | None, public: Path | None = None
) -> Devices:
    """The devices of this machine. `public`: the folder that kernels of all users reach; None:
    there is one user.

    Raises Unavailable with what is wrong, and what to do about it or instead.
    """
    if simulation is not None and public is not None:
        prepared(public)
    if simulation is not None:
        return SimulatedDevices(
            (public or state_dir) / "simgpu.sqlite", node, simulation, for_all=public is not None
        )
    try:
        nvml = Nvml()
    except Unavailable as error:
        raise Unavailable(f"{error.message}; or {INSTEAD}") from None
    if not nvml.gpus:
        found = " ".join(nvml.notes) or "The NVIDIA driver runs, but finds no GPU."
        nvml.close()
        raise Unavailable(f"there is no GPU to share on this machine. {found} Or {INSTEAD}")
    return _real(nvml, state_dir)


def _real(nvml: Nvml, state_dir: Path) -> NvidiaDevices:
    devices = NvidiaDevices(nvml, state_dir)
    if why := devices.blind():
        devices.close()
        raise Unavailable(
            f"the driver does not say which process uses the GPUs (NVML: {why}), so they cannot be shared; {INSTEAD}"
        )
    for gpu in nvml.gpus:
        log.info(
            "GPU %d: %s, %d MiB to share, %s%s",
            gpu.index,
            gpu.model,
            gpu.total_mib,
            gpu.uuid,
            " (MIG instance)" if gpu.mig else "",
        )
    for note in nvml.notes:
        log.warning("%s", note)
    return devices


def self_test(devices: Devices) -> list[tuple[str, bool, str]]:
    """(tier, whether this node has it, why not) for every tier, mildest first; then those that some
    of its GPUs lack.
    """
    if isinstance(devices, NvidiaDevices):
        devices.probe()
    tiers, problems = devices.tiers()
    found = [
        (tier, tier in tiers, "" if tier in tiers else problems.get(tier, "not found"))
        for tier in TIERS
    ]
    return found + [(name, False, why) for name, why in problems.items() if name not in TIERS]


def missing_all(problem: str) -> list[tuple[str, bool, str]]:
    """The same where there is nothing to share: every tier is missing, for this reason."""
    return [
        ("observe", False, problem),
        *((tier, False, "there is no GPU to share here; see observe") for tier in TIERS[1:]),
    ]
