"""A process that holds memory on GPU 0 and says, word by word, whether every byte of it is right: `python -m tests.gpu.worker KIND`.

KIND: `driver` (ctypes on libcuda alone), `torch`, `torch-expandable`, `cupy`, `jax`. Words on stdin: `hold BYTES`, `check`, `beat` (the
longest pause of a thread that ticks, in ms, since the last `beat`), `busy` and `rest` (work on the GPU without end), `upload BYTES`
(host to device, GB/s). Every answer is one line.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from typing import Any

PERIOD = 4096
PATTERN = bytes((7 * i + i // 251) % 256 for i in range(PERIOD))
CHUNK = 64 << 20


class Pulse(threading.Thread):
    """Ticks every 2 ms as long as the interpreter lives."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.longest, self._last = 0.0, time.monotonic()

    def run(self) -> None:
        while True:
            time.sleep(0.002)
            now = time.monotonic()
            self.longest, self._last = max(self.longest, now - self._last), now

    def take(self) -> str:
        found, self.longest = self.longest, 0.0
        return f"{found * 1000:.0f}"


class ByDriver:
    """No framework: the driver's own calls."""

    def __init__(self) -> None:
        from tests.fakegpu.driver import Gpu

        self.gpu = Gpu(0)
        self.blocks: list[tuple[int, int]] = []
        self._busy = threading.Event()

    def hold(self, size: int) -> None:
        pointer = self.gpu.alloc(size)
        self.blocks.append((pointer, size))
        piece = PATTERN * (min(CHUNK, size) // PERIOD)
        for at in range(0, size, len(piece)):
            self.gpu.write(pointer + at, piece[: size - at])

    def check(self) -> bool:
        return all(self._same(pointer, size) for pointer, size in self.blocks)

    def _same(self, pointer: int, size: int) -> bool:
        step = min(CHUNK, size)
        expected = PATTERN * (step // PERIOD)
        return all(self.gpu.read(pointer + at, min(step, size - at)) == expected[: size - at] for at in range(0, size, step))

    def busy(self) -> None:
        self._busy.clear()
        scratch = self.gpu.alloc(32 << 20)

        def work() -> None:
            while not self._busy.is_set():
                self.gpu.fill(scratch, 1, 32 << 20)
                self.gpu.synchronize()

        threading.Thread(target=work, daemon=True).start()

    def rest(self) -> None:
        self._busy.set()

    def upload(self, size: int) -> float:
        """From pinned memory where the driver gives it: the fastest way there is."""
        pointer = self.gpu.alloc(size)
        library, host = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        pinned = hasattr(library, "cuMemAllocHost_v2") and library.cuMemAllocHost_v2(ctypes.byref(host), ctypes.c_size_t(size)) == 0
        source: Any = host if pinned else ctypes.create_string_buffer(size)
        best = float("inf")
        for _ in range(5):
            begun = time.perf_counter()
            library.cuMemcpyHtoD_v2(ctypes.c_uint64(pointer), source, ctypes.c_size_t(size))
            library.cuCtxSynchronize()
            best = min(best, time.perf_counter() - begun)
        self.gpu.free(pointer)
        return size / best / 1e9


class ByTorch:
    """Tensors, and a matrix product whose result must come again."""

    def __init__(self) -> None:
        import torch

        self.torch, self.tensors = torch, []

    def hold(self, size: int) -> None:
        self.tensors.append(self.torch.full((size,), 7, dtype=self.torch.uint8, device="cuda"))
        self.matrix = self.torch.arange(1024 * 1024, dtype=self.torch.float32, device="cuda").reshape(1024, 1024) / 1e6
        self.product = (self.matrix @ self.matrix).sum().item()

    def check(self) -> bool:
        same = (self.matrix @ self.matrix).sum().item() == self.product
        return same and all(bool((tensor == 7).all().item()) for tensor in self.tensors)


class ByCupy:
    """Arrays of one value."""

    def __init__(self) -> None:
        import cupy

        self.cupy, self.arrays = cupy, []

    def hold(self, size: int) -> None:
        self.arrays.append(self.cupy.full((size,), 7, dtype="uint8"))

    def check(self) -> bool:
        return all(bool((array == 7).all()) for array in self.arrays)


class ByJax:
    """Arrays, and a compiled function that must not be compiled anew."""

    def __init__(self) -> None:
        import jax

        self.jax, self.arrays, self.compiled = jax, [], 0

        def double(x: Any) -> Any:
            self.compiled += 1
            return x * 2

        self.double = jax.jit(double)

    def hold(self, size: int) -> None:
        self.arrays.append(self.jax.numpy.full((size,), 7, dtype="uint8").block_until_ready())
        self.double(self.arrays[-1]).block_until_ready()

    def check(self) -> bool:
        right = all(bool((self.double(array) == 14).all()) for array in self.arrays)
        return right and self.compiled == len({array.shape for array in self.arrays})


KINDS = {"driver": ByDriver, "torch": ByTorch, "torch-expandable": ByTorch, "cupy": ByCupy, "jax": ByJax}


def obey(holder: Any, pulse: Pulse, word: str, args: list[str]) -> str:
    """One word."""
    match word, args:
        case "hold", [size]:
            holder.hold(int(size))
        case "check", []:
            return "right" if holder.check() else "wrong"
        case "beat", []:
            return pulse.take()
        case "busy", []:
            holder.busy()
        case "rest", []:
            holder.rest()
        case "upload", [size]:
            return f"{holder.upload(int(size)):.2f}"
        case _:
            return f"error unknown word {word}"
    return "ok"


def main() -> None:
    """Until the end of the input."""
    kind = sys.argv[1]
    if kind == "torch-expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        holder = KINDS[kind]()
    except ImportError as error:
        sys.stdout.write(f"missing {error.name}\n")
        return
    pulse = Pulse()
    pulse.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        word, *args = line.split()
        try:
            answer = obey(holder, pulse, word, args)
        except Exception as error:  # whatever a framework raises is the answer
            answer = f"error {type(error).__name__}: {error}".replace("\n", " ")
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
