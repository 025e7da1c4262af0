"""The pool: it keeps freed blocks, and checks its limit for each new block; freeing frees the
current device's only.
"""

from __future__ import annotations

import os

from cupy.cuda import runtime
from tests.fake_driver.driver import CudaError

__all__ = ["MemoryPool", "OutOfMemoryError", "ndarray"]

UNIT = 512


class OutOfMemoryError(MemoryError):
    """`cupy.cuda.memory.OutOfMemoryError`."""


class _DevicePool:
    def __init__(self, ordinal: int) -> None:
        self.gpu = runtime.gpu(ordinal)
        self.limit = int(os.environ.get("CUPY_GPU_MEMORY_LIMIT", "0"))
        self.total = 0
        self.free: dict[int, list[int]] = {}

    def take(self, count: int) -> tuple[int, int]:
        size = -(-count // UNIT) * UNIT
        if self.free.get(size):
            return self.free[size].pop(), size
        if self.limit and self.total + size > self.limit:
            self.free_all()
        if self.limit and self.total + size > self.limit:
            raise OutOfMemoryError(
                f"Out of memory allocating {size:,} bytes (allocated so far: {self.total:,} bytes, "
                f"limit set to: {self.limit:,} bytes)."
            )
        try:
            pointer = self.gpu.alloc(size)
        except CudaError as error:
            raise OutOfMemoryError(
                f"Out of memory allocating {size:,} bytes (allocated so far: {self.total:,} bytes)."
            ) from error
        self.total += size
        return pointer, size

    def free_all(self) -> None:
        for size, pointers in self.free.items():
            for pointer in pointers:
                self.gpu.free(pointer)
                self.total -= size
        self.free.clear()


class MemoryPool:
    """The pools of all devices; calls use that of the current one."""

    def __init__(self) -> None:
        self._pools: dict[int, _DevicePool] = {}

    def here(self) -> _DevicePool:
        """The pool of the current device."""
        ordinal = runtime.getDevice()
        if ordinal not in self._pools:
            self._pools[ordinal] = _DevicePool(ordinal)
        return self._pools[ordinal]

    def set_limit(self, size: int | None = None) -> None:
        """Bytes; 0: no limit."""
        assert size is not None
        self.here().limit = size

    def get_limit(self) -> int:
        """Bytes; 0: no limit."""
        return self.here().limit

    def total_bytes(self) -> int:
        """In use and cached."""
        return self.here().total

    def free_all_blocks(self) -> None:
        """Cached."""
        self.here().free_all()


class ndarray:  # noqa: N801 - CuPy's name
    """`count` bytes of one value."""

    def __init__(self, pool: MemoryPool, count: int, value: int) -> None:
        self._pool, self._count = pool.here(), count
        self._pointer, self._size = self._pool.take(count)
        self._pool.gpu.write(self._pointer, bytes([value]) * min(count, 4096))

    def __del__(self) -> None:
        if "_pointer" in self.__dict__:
            self._pool.free.setdefault(self._size, []).append(self._pointer)

    def values(self) -> set[int]:
        """Its distinct bytes, read from the device."""
        return set(self._pool.gpu.read(self._pointer, min(self._count, 4096)))
