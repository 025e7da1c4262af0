"""Whether this process uses CUDA already, asked so that the question changes nothing: the driver's library is never loaded for it."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["context_exists", "cuda_started"]


def _driver() -> Any:
    """The driver's library if somebody in this process has loaded it; None otherwise."""
    import ctypes

    try:
        return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None


def cuda_started() -> bool:
    """Whether `cuInit` was called in this process."""
    import ctypes

    driver, count = _driver(), ctypes.c_int()
    return driver is not None and driver.cuDeviceGetCount(ctypes.byref(count)) == 0


def context_exists(ordinal: int) -> bool:
    """Whether this process has its primary context on the device: asking a framework for anything would make one otherwise."""
    import ctypes

    driver = _driver()
    if driver is None:
        return False
    device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    if driver.cuDeviceGet(ctypes.byref(device), ordinal):
        return False
    failed = driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    return not failed and bool(active.value)
