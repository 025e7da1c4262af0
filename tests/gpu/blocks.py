"""GPU memory in which every page is different, by driver calls: filled, compared and copied."""

from __future__ import annotations

import array
import ctypes
import os
import random
import threading
import time
from typing import Any, Final

from tests.fake_driver.driver import Gpu

__all__ = ["SPIN", "Blocks"]

PAGE: Final = 4096
CHUNK: Final = 64 << 20
SPIN: Final = b"""
.version 6.4
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 length) {
  .reg .u64 %t<4>;
  .reg .pred %p;
  ld.param.u64 %t0, [length];
  mov.u64 %t1, %globaltimer;
  add.u64 %t1, %t1, %t0;
again:
  mov.u64 %t2, %globaltimer;
  setp.lt.u64 %p, %t2, %t1;
  @%p bra again;
  ret;
}
"""
"""A kernel that runs for `length` nanoseconds on one thread; the driver compiles it."""


class Blocks:
    """Blocks on GPU 0. The fake driver stores 4 KiB per block, so all pages are equal."""

    def __init__(self) -> None:
        self.gpu = Gpu(0)
        self.library = ctypes.CDLL("libcuda.so.1")
        self.fake = "GPUSHARE_FAKE_GPU" in os.environ
        self.blocks: list[tuple[int, int, int]] = []
        base = random.Random(7).randbytes(PAGE if self.fake else CHUNK)
        self._base = base * (CHUNK // len(base))
        self._wanted, self._found = self._host(CHUNK), self._host(CHUNK)
        ctypes.memmove(self._wanted, self._base, CHUNK)
        self._memcmp = ctypes.CDLL(None).memcmp

    def _host(self, size: int) -> Any:
        """Pinned memory if available, for the fastest copies."""
        at = ctypes.c_void_p()
        self.gpu._use_context()
        if (
            hasattr(self.library, "cuMemAllocHost_v2")
            and self.library.cuMemAllocHost_v2(ctypes.byref(at), ctypes.c_size_t(size)) == 0
        ):
            return ctypes.c_void_p(at.value)
        return ctypes.cast(ctypes.create_string_buffer(size), ctypes.c_void_p)

    def _stamp(self, first: int) -> None:
        """Write the number of each page to its first eight bytes."""
        if self.fake:
            return
        words = (
            memoryview((ctypes.c_ubyte * CHUNK).from_address(self._wanted.value))
            .cast("B")
            .cast("Q")
        )
        words[:: PAGE // 8] = memoryview(array.array("Q", range(first, first + CHUNK // PAGE)))

    def _call(self, name: str, *args: Any) -> None:
        self.gpu._use_context()
        self.gpu._call(name, *args)

    def hold(self, size: int) -> None:
        """Allocate and fill `size` bytes."""
        pointer, first = self.gpu.alloc(size), sum(held for _, held, _ in self.blocks) // PAGE
        self.blocks.append((pointer, size, first))
        for at in range(0, size, CHUNK):
            self._stamp(first + at // PAGE)
            self._call(
                "cuMemcpyHtoD_v2",
                ctypes.c_uint64(pointer + at),
                self._wanted,
                ctypes.c_size_t(min(CHUNK, size - at)),
            )

    def take(self, size: int) -> None:
        """Allocate without filling."""
        self.gpu.alloc(size)

    def check(self) -> bool:
        """Whether all bytes of all blocks are unchanged."""
        return all(self._same(*block) for block in self.blocks)

    def _same(self, pointer: int, size: int, first: int) -> bool:
        for at in range(0, size, CHUNK):
            part = min(CHUNK, size - at)
            self._stamp(first + at // PAGE)
            ctypes.memset(self._found, 0, part)
            self._call(
                "cuMemcpyDtoH_v2", self._found, ctypes.c_uint64(pointer + at), ctypes.c_size_t(part)
            )
            if self._memcmp(self._wanted, self._found, ctypes.c_size_t(part)):
                return False
        return True

    def copy(self, size: int) -> tuple[float, float]:
        """GB/s to the device and back, the best of five."""
        pointer, host = self.gpu.alloc(size), self._host(size)
        ctypes.memset(host, 1, size)
        up = self._best(
            lambda: self._call(
                "cuMemcpyHtoD_v2", ctypes.c_uint64(pointer), host, ctypes.c_size_t(size)
            )
        )
        down = self._best(
            lambda: self._call(
                "cuMemcpyDtoH_v2", host, ctypes.c_uint64(pointer), ctypes.c_size_t(size)
            )
        )
        self.gpu.free(pointer)
        return size / up / 1e9, size / down / 1e9

    def _best(self, work: Any) -> float:
        best = float("inf")
        for _ in range(5):
            begun = time.perf_counter()
            work()
            self.gpu.synchronize()
            best = min(best, time.perf_counter() - begun)
        return best

    def busy(self, milliseconds: int) -> None:
        """Run kernels of that length until the process ends."""
        launch = self._launcher(milliseconds)

        def work() -> None:
            while True:
                launch()
                self.gpu.synchronize()

        launch()
        threading.Thread(target=work, daemon=True).start()

    def _launcher(self, milliseconds: int) -> Any:
        if self.fake:
            return lambda: self.gpu.launch(milliseconds)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(SPIN))
        self._call("cuModuleGetFunction", ctypes.byref(function), module, b"spin")
        length = ctypes.c_uint64(milliseconds * 1_000_000)
        values = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(length), ctypes.c_void_p))
        self._keep = length, values
        return lambda: self._call(
            "cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, values, None
        )
