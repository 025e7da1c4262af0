"""Lazy initialisation, devices and properties."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from torch.cuda import memory
from torch.cuda.memory import (
    OutOfMemoryError,
    empty_cache,
    get_per_process_memory_fraction,
    memory_allocated,
    memory_reserved,
    set_per_process_memory_fraction,
)

__all__ = [
    "OutOfMemoryError",
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "is_available",
    "is_initialized",
    "memory",
    "memory_allocated",
    "memory_reserved",
    "set_device",
    "set_per_process_memory_fraction",
    "synchronize",
]

NO_DEVICE = 100
_initialized = False
_initializing = False
_queued: list[Callable[[], object]] = []
_current = 0
_properties: dict[int, Any] = {}


def is_initialized() -> bool:
    """Not yet while the queued calls run, as in PyTorch."""
    return _initialized


def _lazy_call(callable: Callable[[], object], **_: Any) -> None:  # noqa: A002 - PyTorch's name
    if _initialized:
        callable()
    else:
        _queued.append(callable)


def _driver(name: str, *args: Any) -> None:
    code = getattr(ctypes.CDLL("libcuda.so.1"), name)(*args)
    if code:
        raise RuntimeError(f"{name}: CUDA error {code}")


def _lazy_init() -> None:
    global _initialized, _initializing
    if _initialized or _initializing:
        return
    _driver("cuInit", 0)
    _initializing = True
    try:
        for call in _queued:
            call()
    finally:
        _initializing = False
    _initialized = True


def device_count() -> int:
    """GPUs that this process sees; none is no error."""
    count = ctypes.c_int()
    if ctypes.CDLL("libcuda.so.1").cuInit(0) == NO_DEVICE:
        return 0
    _driver("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def is_available() -> bool:
    """Whether there is any."""
    return device_count() > 0


def get_device_properties(ordinal: int) -> Any:
    """Name, total_memory, uuid (printed without its prefix): as they were when they were first
    asked for.
    """
    import uuid

    _lazy_init()
    if ordinal in _properties:
        return _properties[ordinal]
    raw, total = ctypes.create_string_buffer(16), ctypes.c_size_t()
    _driver("cuDeviceGetUuid_v2", raw, ordinal)
    _driver("cuDeviceTotalMem_v2", ctypes.byref(total), ordinal)
    return _properties.setdefault(
        ordinal,
        SimpleNamespace(
            name=f"cuda:{ordinal}", total_memory=total.value, uuid=uuid.UUID(bytes=raw.raw)
        ),
    )


def current_device() -> int:
    """Ordinal."""
    return _current


def set_device(device: int) -> None:
    """For tensors that name none."""
    global _current
    _current = int(device)


def synchronize() -> None:
    """Waits for the device."""
    memory.allocator(_current).gpu.synchronize()
