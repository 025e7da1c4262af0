"""pynvml's own code on a played driver, inside the test's process."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import pynvml
import pytest

from node_agent.devices.nvidia.nvml import Nvml
from tests.fake_driver.fake_gpu_machine import GpuWorld

__all__ = ["loaded", "machine"]


@contextmanager
def loaded(world: GpuWorld) -> Iterator[None]:
    """This process has this machine's driver."""
    with pytest.MonkeyPatch.context() as patch, world.here():
        patch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(world.libraries / "libnvidia-ml.so.1")))
        patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        for name, value in world.environment().items():
            patch.setenv(name, value)
        yield


@contextmanager
def machine(**options: object) -> Iterator[tuple[GpuWorld, Nvml]]:
    """A machine, and its NVML."""
    with GpuWorld(**options) as world, loaded(world):  # type: ignore[arg-type]
        nvml = Nvml()
        try:
            yield world, nvml
        finally:
            nvml.close()
