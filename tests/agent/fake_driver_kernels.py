"""pynvml with a fake driver in the process of the test."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import pynvml
import pytest

from node_agent.devices.nvidia.nvml import Nvml
from tests.fake_driver.fake_gpu_machine import FakeGpuMachine

__all__ = ["loaded", "fake_nvml"]


@contextmanager
def loaded(machine: FakeGpuMachine) -> Iterator[None]:
    """This process uses the driver of this machine."""
    with pytest.MonkeyPatch.context() as patch, machine.active():
        patch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(machine.libraries / "libnvidia-ml.so.1")))
        patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        for name, value in machine.environment().items():
            patch.setenv(name, value)
        yield


@contextmanager
def fake_nvml(**options: object) -> Iterator[tuple[FakeGpuMachine, Nvml]]:
    """A fake GPU machine and its NVML."""
    with FakeGpuMachine(**options) as machine, loaded(machine):  # type: ignore[arg-type]
        nvml = Nvml()
        try:
            yield machine, nvml
        finally:
            nvml.close()
