"""Whether this process uses CUDA. The questions change nothing: the driver's library is never
loaded for them.
"""

from __future__ import annotations

import os
from typing import Any

from ..kernel_body import Json

__all__ = ["context_exists", "cuda_started", "match_devices", "uuids"]


def _driver() -> Any:
    """The driver's library if this process has loaded it; None otherwise."""
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
    """Whether this process has its primary context on the device. A call into a framework could
    create one.
    """
    import ctypes

    driver = _driver()
    if driver is None:
        return False
    device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    if driver.cuDeviceGet(ctypes.byref(device), ordinal):
        return False
    failed = driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    return not failed and bool(active.value)


def uuids() -> list[str]:
    """Of the GPUs that this process sees, by ordinal: 32 hexadecimal digits each, "" if unknown.

    Read from the driver every time, because a move changes them and frameworks keep what they read
    first (PyTorch its properties; CuPy cuts the bytes at the first zero).
    """
    import ctypes

    driver, count = _driver(), ctypes.c_int()
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []
    found = []
    for ordinal in range(count.value):
        device, raw = ctypes.c_int(), ctypes.create_string_buffer(16)
        failed = driver.cuDeviceGet(ctypes.byref(device), ordinal)
        failed = failed or driver.cuDeviceGetUuid_v2(raw, device)
        found.append("" if failed else raw.raw.hex())
    return found


def match_devices(visible: list[str], devices: list[Json]) -> list[tuple[int, Json]]:
    """(ordinal in this process, device of the share), by UUID; in order if no UUID is known."""
    matched = []
    for device in devices:
        digits = device["uuid"].partition("-")[2].replace("-", "")
        if digits in visible:
            matched.append((visible.index(digits), device))
    return matched or list(zip(range(len(visible)), devices))
