"""A process that holds a little memory on one GPU, for the self-test: `python -m
node_agent.devices.nvidia.selftest_worker UUID`. One line in, one line out.

It says "ready", then answers every line with "right" or "wrong" (whether its bytes are what it
wrote) and the UUID of the GPU that it finds itself on. An error ends it with the driver's words.
"""

from __future__ import annotations

import ctypes
import sys
import uuid
from typing import Any, Final

__all__ = ["main"]

SIZE: Final = 4 << 20
PATTERN: Final = bytes(range(256)) * (SIZE // 256)


class _WorkerGpu:
    def __init__(self, name: str) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        self._device = self._find(name)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        self._pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(self._pointer), ctypes.c_size_t(SIZE))
        self._call("cuMemcpyHtoD_v2", self._pointer, PATTERN, ctypes.c_size_t(SIZE))

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self._cuda, name)(*args)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorName(code, ctypes.byref(text))
            raise SystemExit(f"{name}: {text.value.decode() if text.value else code}")

    def _find(self, name: str) -> ctypes.c_int:
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        for ordinal in range(count.value):
            device = ctypes.c_int()
            self._call("cuDeviceGet", ctypes.byref(device), ordinal)
            if self._uuid(device) == name:
                return device
        raise SystemExit(f"CUDA does not see {name}")

    def _uuid(self, device: ctypes.c_int) -> str:
        raw = ctypes.create_string_buffer(16)
        self._call("cuDeviceGetUuid_v2", raw, device)
        return f"GPU-{uuid.UUID(bytes=raw.raw)}"

    def check(self) -> str:
        back = ctypes.create_string_buffer(SIZE)
        self._call("cuMemcpyDtoH_v2", back, self._pointer, ctypes.c_size_t(SIZE))
        return f"{'right' if _same(back.raw) else 'wrong'} {self._uuid(self._device)}"


def _same(data: bytes) -> bool:
    return data[: len(PATTERN)] == PATTERN


def main() -> None:
    """Until its input ends."""
    gpu = _WorkerGpu(sys.argv[1])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(gpu.check() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
