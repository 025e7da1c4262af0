"""Simulated GPUs, only on request: a machine never simulates GPUs on its own."""

from __future__ import annotations

from ...system.run_directory import prepare_public_directory
from ..base.protocols import DiscoveryRequest
from .simulated_devices import SimulatedDevices
from .simulation import read_simulation

__all__ = ["SimulatedVendor"]


class SimulatedVendor:
    """Serves requests with `simulate`."""

    def find(self, request: DiscoveryRequest) -> SimulatedDevices | None:
        """Raises InvalidInput when `simulate`, the memory or the directory is not usable."""
        if not request.simulate:
            return None
        simulation = read_simulation(
            request.simulate, memory=request.gpu_memory, copy_gib_s=request.copy_gib_s
        )
        if request.public is not None:
            prepare_public_directory(request.public)
        return SimulatedDevices(
            (request.public or request.state_dir) / "simgpu.sqlite",
            request.node,
            simulation,
            for_all=request.public is not None,
        )
