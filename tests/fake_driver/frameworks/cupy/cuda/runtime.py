"""The runtime's calls; setting a device makes its context, as in CUDA 12 and newer."""

# ruff: noqa: N802 - CuPy's names

from __future__ import annotations

import ctypes
from typing import Any

from tests.fake_driver.driver import Gpu

__all__ = ["getDevice", "getDeviceCount", "getDeviceProperties", "gpu", "setDevice"]

_gpus: dict[int, Gpu] = {}
_current = 0


def _driver(name: str, *args: Any) -> None:
    library = ctypes.CDLL("libcuda.so.1")
    library.cuInit(0)
    code = getattr(library, name)(*args)
    if code:
        raise RuntimeError(f"{name}: CUDA error {code}")


def gpu(ordinal: int) -> Gpu:
    """With a context."""
    if ordinal not in _gpus:
        _gpus[ordinal] = Gpu(ordinal)
    return _gpus[ordinal]


def getDevice() -> int:
    """Ordinal."""
    return _current


def setDevice(ordinal: int) -> None:
    """Makes its context."""
    global _current
    gpu(ordinal)
    _current = ordinal


def getDeviceCount() -> int:
    """GPUs that this process sees."""
    count = ctypes.c_int()
    _driver("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def getDeviceProperties(ordinal: int) -> dict[str, Any]:
    """`uuid` as bytes that end before their first zero, as Cython makes them."""
    raw, total = ctypes.create_string_buffer(16), ctypes.c_size_t()
    _driver("cuDeviceGetUuid_v2", raw, ordinal)
    _driver("cuDeviceTotalMem_v2", ctypes.byref(total), ordinal)
    return {"uuid": raw.value, "totalGlobalMem": total.value}
