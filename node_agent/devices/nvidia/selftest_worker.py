"""A process with a little memory on one GPU, for the self-test: `python -m
node_agent.devices.nvidia.selftest_worker UUID`.

It prints "ready", then answers every input line with "right" or "wrong" (whether its memory is
intact) and the UUID of its GPU. On an error it exits with the driver's message.
"""

from __future__ import annotations

import ctypes
import sys
import uuid
from typing import Any, Final

__all__ = ["main"]

SIZE: Final = 4 << 20
PATTERN: Final = bytes(range(256)) * (SIZE // 256)


class _GpuMemory:
    """Four MiB with a pattern."""

    def __init__(self, gpu_uuid: str) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        self._device = self._find(gpu_uuid)
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

    def _find(self, gpu_uuid: str) -> ctypes.c_int:
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        for ordinal in range(count.value):
            device = ctypes.c_int()
            self._call("cuDeviceGet", ctypes.byref(device), ordinal)
            if self._uuid(device) == gpu_uuid:
                return device
        raise SystemExit(f"CUDA does not see {gpu_uuid}")

    def _uuid(self, device: ctypes.c_int) -> str:
        raw = ctypes.create_string_buffer(16)
        self._call("cuDeviceGetUuid_v2", raw, device)
        return f"GPU-{uuid.UUID(bytes=raw.raw)}"

    def check(self) -> str:
        data = ctypes.create_string_buffer(SIZE)
        self._call("cuMemcpyDtoH_v2", data, self._pointer, ctypes.c_size_t(SIZE))
        result = "right" if data.raw == PATTERN else "wrong"
        return f"{result} {self._uuid(self._device)}"


def main() -> None:
    """Answer until the input ends."""
    memory = _GpuMemory(sys.argv[1])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(memory.check() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
