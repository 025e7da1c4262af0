"""Finds the NVIDIA GPUs of this machine."""

from __future__ import annotations

import logging

from jupyter_gpushare.core.model.errors import Unavailable

from ...system.cgroups import Cgroups
from ..base.protocols import DiscoveryRequest
from .nvidia_devices import NvidiaDevices
from .nvml import Nvml
from .nvml_types import GpuFound

__all__ = ["NvidiaVendor"]

log = logging.getLogger("gpushare.agent")


class NvidiaVendor:
    """NVIDIA GPUs and MIG instances that NVML lists."""

    def find(self, request: DiscoveryRequest) -> NvidiaDevices:
        """Raises Unavailable: no driver, no GPU, or no attribution of memory to processes."""
        nvml = Nvml()
        if not nvml.gpus:
            nvml.close()
            found = "; ".join(nvml.notes) or "the NVIDIA driver runs, but finds no GPU"
            raise Unavailable(f"there is no GPU to share on this machine: {found}")
        cgroups = Cgroups(None, request.no_cgroups) if request.no_cgroups else None
        devices = NvidiaDevices(nvml, request.state_dir, cgroups=cgroups)
        if problem := devices.attribution_problem():
            devices.close()
            raise Unavailable(
                "the GPUs cannot be shared: the driver does not say which process uses them "
                f"(NVML: {problem})"
            )
        for gpu in nvml.gpus:
            log.info("GPU %d: %s", gpu.index, _description(gpu))
        for note in nvml.notes:
            log.warning("%s", note)
        return devices


def _description(gpu: GpuFound) -> str:
    instance = " (MIG instance)" if gpu.mig else ""
    return f"{gpu.model}, {gpu.total_mib} MiB to share, {gpu.uuid}{instance}"
