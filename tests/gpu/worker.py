"""A process that holds memory on GPU 0 and checks all of its bytes on request: `python -m
tests.gpu.worker KIND`.

KIND: `driver` (ctypes on libcuda alone), `holds-lock` (the same, but GPU calls block the
interpreter), `counter` (only counted the GPUs), `torch`, `torch-expandable`, `cupy`, `jax`.
Commands on stdin, one line each; every answer is a line: `hold BYTES` (fill with a pattern), `take
BYTES` (allocate only), `managed BYTES` (unified memory), `fork` (an idle child; its pid), `check`,
`beat` (the longest pause of a ticking thread, in ms, since the last `beat`), `touch` (start a GPU
call in a thread), `touched` (wait for its end), `busy MS` (kernels of that length, endlessly),
`copy BYTES` (GB/s host to device and back), `cap MIB TOTAL_MIB` (the cap of the product for this
framework), `drop` (release caches).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from typing import Any

from tests.fake_driver.driver import count_gpus
from tests.gpu.blocks import Blocks


class Heartbeat(threading.Thread):
    """Ticks every 2 ms while the interpreter runs."""

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


class ByDriver(Blocks):
    """No framework, only driver calls; every page of the memory is different."""

    def managed(self, size: int) -> None:
        self.gpu.fill(self.gpu.alloc(size, managed=True), 1, size)

    def touch(self) -> None:
        self.gpu.synchronize()


class HoldsLock(ByDriver):
    """Like a library that keeps the GIL while it waits for the driver."""

    def touch(self) -> None:
        self.gpu._use_context()
        ctypes.PyDLL("libcuda.so.1").cuCtxSynchronize()


class Counter:
    """Initialises CUDA without a context."""

    def __init__(self) -> None:
        count_gpus()


class ByTorch:
    """Tensors, and a matrix product with a reproducible result."""

    def __init__(self) -> None:
        import torch

        self.torch, self.tensors = torch, []

    def hold(self, size: int) -> None:
        count = size // 8
        self.tensors.append(
            self.torch.arange(count, dtype=self.torch.int64, device="cuda").mul_(2654435761)
        )
        self.matrix = (
            self.torch.arange(1024 * 1024, dtype=self.torch.float32, device="cuda").reshape(
                1024, 1024
            )
            / 1e6
        )
        self.product = (self.matrix @ self.matrix).sum().item()

    def take(self, size: int) -> None:
        self.tensors.append(self.torch.empty(size // 8, dtype=self.torch.int64, device="cuda"))
        self.tensors.pop()

    def check(self) -> bool:
        same = (self.matrix @ self.matrix).sum().item() == self.product
        return same and all(self._right(tensor) for tensor in self.tensors)

    def _right(self, tensor: Any, piece: int = 1 << 26) -> bool:
        """In pieces, because the expected values use memory too."""
        torch = self.torch
        for at in range(0, tensor.numel(), piece):
            wanted = torch.arange(
                at, min(at + piece, tensor.numel()), dtype=torch.int64, device="cuda"
            ).mul_(2654435761)
            if not torch.equal(tensor[at : at + piece], wanted):
                return False
        return True

    def touch(self) -> None:
        self.torch.ones(16, device="cuda").sum().item()


class ByCupy:
    """Arrays whose values depend on their index."""

    def __init__(self) -> None:
        import cupy

        self.cupy, self.arrays = cupy, []

    def hold(self, size: int) -> None:
        self.arrays.append(self.cupy.arange(size // 8, dtype="uint64"))

    def take(self, size: int) -> None:
        self.cupy.empty(size // 8, dtype="uint64")

    def check(self) -> bool:
        return all(self._right(array) for array in self.arrays)

    def _right(self, array: Any, piece: int = 1 << 26) -> bool:
        pieces = range(0, array.size, piece)
        return all(
            bool(
                (
                    array[at : at + piece]
                    == self.cupy.arange(at, min(at + piece, array.size), dtype="uint64")
                ).all()
            )
            for at in pieces
        )

    def touch(self) -> None:
        float(self.cupy.ones(16).sum())


class ByJax:
    """Arrays, and a compiled function that must not be compiled again."""

    def __init__(self) -> None:
        import jax

        self.jax, self.arrays, self.compiled = jax, [], 0

        def twice(x: Any) -> Any:
            self.compiled += 1
            return x * 2

        self.twice = jax.jit(twice)

    def _on_gpu(self) -> None:
        """Raises RuntimeError: without its CUDA plugin, JAX silently uses the CPU."""
        if self.jax.default_backend() != "gpu":
            raise RuntimeError(f"JAX uses the {self.jax.default_backend()} backend")

    def hold(self, size: int) -> None:
        self._on_gpu()
        self.arrays.append(self.jax.numpy.arange(size // 4, dtype="uint32").block_until_ready())
        self.sums = [int(self._sum(array)) for array in self.arrays]
        self.shapes = len({array.shape for array in self.arrays})

    def _sum(self, array: Any) -> Any:
        return self.twice(array).sum()

    def take(self, size: int) -> None:
        self._on_gpu()
        self.jax.numpy.zeros(size // 4, dtype="uint32").block_until_ready()

    def check(self) -> bool:
        same = [int(self._sum(array)) for array in self.arrays] == self.sums
        ordered = all(bool((array[1:] > array[:-1]).all()) for array in self.arrays)
        return same and ordered and self.compiled == self.shapes

    def touch(self) -> None:
        float(self.jax.numpy.ones(16).sum())


KINDS = {
    "driver": ByDriver,
    "holds-lock": HoldsLock,
    "counter": Counter,
    "torch": ByTorch,
    "torch-expandable": ByTorch,
    "cupy": ByCupy,
    "jax": ByJax,
}


class Product:
    """The caps of the kernel extension for frameworks."""

    def __init__(self) -> None:
        from jupyter_gpushare.kernel.frameworks.caps import FrameworkCaps

        self.frameworks = FrameworkCaps()

    def cap(self, mib: int, total_mib: int) -> None:
        self.frameworks.set_devices(
            [{"uuid": "", "cap_mib": mib, "total_mib": total_mib, "visible": "0"}], running=False
        )
        self.frameworks.apply()

    def drop(self) -> None:
        done = threading.Event()
        self.frameworks.drop_caches(done.set)
        done.wait()


class Commands:
    """Executes commands."""

    def __init__(self, holder: Any) -> None:
        self.holder, self.heartbeat, self.thread = holder, Heartbeat(), threading.Thread()
        self.product: Product | None = None
        self.heartbeat.start()

    def execute(self, word: str, args: list[str]) -> str:
        """Returns the answer."""
        match word, args:
            case "hold" | "take" | "managed" | "busy", [number]:
                getattr(self.holder, word)(int(number))
            case "fork", []:
                return str(os.fork() or _sleep_forever())
            case "check", []:
                return "right" if self.holder.check() else "wrong"
            case "beat", []:
                return self.heartbeat.take()
            case "touch", []:
                self.thread = threading.Thread(target=self.holder.touch, daemon=True)
                self.thread.start()
            case "touched", []:
                self.thread.join()
            case "copy", [size]:
                return "{:.2f} {:.2f}".format(*self.holder.copy(int(size)))
            case "cap", [mib, total]:
                self.product = self.product or Product()
                self.product.cap(int(mib), int(total))
            case "drop", []:
                self.product = self.product or Product()
                self.product.drop()
            case _:
                return f"error unknown command {word}"
        return "ok"


def _sleep_forever() -> int:
    """In a child process, until it is killed."""
    while True:
        signal.pause()


def main() -> None:
    """Execute commands until the end of the input."""
    kind = sys.argv[1]
    if kind == "torch-expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        commands = Commands(KINDS[kind]())
    except ImportError as error:
        sys.stdout.write(f"missing {error.name}\n")
        return
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        word, *args = line.split()
        try:
            answer = commands.execute(word, args)
        except Exception as error:  # any exception of a framework is an answer
            answer = f"error {type(error).__name__}: {error}".replace("\n", " ")
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
