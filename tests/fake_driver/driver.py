"""A GPU as user code uses it, by ctypes on libcuda.so.1: allocate, fill, read, compute. For workers
and kernels of tests.
"""

from __future__ import annotations

import ctypes
import uuid

__all__ = ["CudaError", "Gpu", "count_gpus"]


class CudaError(Exception):
    """Raised with the error code of the driver."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: error {code}")
        self.code = code


class Gpu:
    """One GPU of this process, by ordinal. Pointers are integers."""

    def __init__(self, ordinal: int = 0) -> None:
        self._c = ctypes.CDLL("libcuda.so.1")
        self._device = ctypes.c_int()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(self._device), ordinal)
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)

    def _call(self, name: str, *args: object) -> None:
        code = getattr(self._c, name)(*args)
        if code:
            raise CudaError(name, code)

    def _use_context(self) -> None:
        self._call("cuCtxSetCurrent", self._context)

    def alloc(self, size: int, *, managed: bool = False) -> int:
        """Returns a pointer to `size` zero bytes."""
        self._use_context()
        pointer = ctypes.c_uint64()
        if managed:
            self._call("cuMemAllocManaged", ctypes.byref(pointer), ctypes.c_size_t(size), 1)
        else:
            self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def free(self, pointer: int) -> None:
        """Release memory."""
        self._use_context()
        self._call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def write(self, pointer: int, data: bytes) -> None:
        """Host to device."""
        self._use_context()
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), data, ctypes.c_size_t(len(data)))

    def read(self, pointer: int, size: int) -> bytes:
        """Device to host."""
        self._use_context()
        data = ctypes.create_string_buffer(size)
        self._call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(pointer), ctypes.c_size_t(size))
        return data.raw

    def fill(self, pointer: int, value: int, size: int) -> None:
        """Set every byte."""
        self._use_context()
        self._call(
            "cuMemsetD8_v2", ctypes.c_uint64(pointer), ctypes.c_ubyte(value), ctypes.c_size_t(size)
        )

    def launch(self, milliseconds: int) -> None:
        """Start a kernel with this running time; returns at once."""
        self._use_context()
        self._call(
            "cuLaunchKernel", ctypes.c_void_p(milliseconds), 1, 1, 1, 1, 1, 1, 0, None, None, None
        )

    def synchronize(self) -> None:
        """Wait for launched kernels."""
        self._use_context()
        self._call("cuCtxSynchronize")

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes."""
        self._use_context()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def uuid(self) -> str:
        """UUID of the GPU with its memory now."""
        raw = (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetUuid_v2", raw, self._device)
        return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def count_gpus() -> int:
    """Initialises CUDA, but creates no context."""
    library, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    for code in (library.cuInit(0), library.cuDeviceGetCount(ctypes.byref(count))):
        if code:
            raise CudaError("cuDeviceGetCount", code)
    return count.value
