"""A process that holds memory on GPU 0 and says, word by word, whether every byte of it is right:
`python -m tests.gpu.worker KIND`.

KIND: `driver` (ctypes on libcuda alone), `stubborn` (the same, and its calls stop the whole
interpreter), `counter` (has only counted the GPUs), `torch`, `torch-expandable`, `cupy`, `jax`.
Words on stdin, one line each; every answer is a line: `hold BYTES` (fill and remember), `take
BYTES` (allocate only), `managed BYTES` (unified memory), `fork` (a child that rests; its pid),
`check`, `beat` (the longest pause of a thread that ticks, in ms, since the last `beat`), `touch`
(begin a call to the GPU in a thread of its own), `touched` (wait for its end), `busy MS` (kernels
of that length, without end), `copy BYTES` (GB/s host to device and back), `cap MIB TOTAL_MIB` (as
the product caps this framework), `drop` (give caches back).
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


class ByDriver(Blocks):
    """No framework: the driver's own calls, and every page of the memory unlike every other."""

    def managed(self, size: int) -> None:
        self.gpu.fill(self.gpu.alloc(size, managed=True), 1, size)

    def touch(self) -> None:
        self.gpu.synchronize()


class Stubborn(ByDriver):
    """As a library that keeps the interpreter's lock while it waits for the driver."""

    def touch(self) -> None:
        self.gpu._use_context()
        ctypes.PyDLL("libcuda.so.1").cuCtxSynchronize()


class Counter:
    """CUDA is initialised, and there is no context."""

    def __init__(self) -> None:
        count_gpus()


class ByTorch:
    """Tensors, and a matrix product whose result must come again."""

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
        """In pieces: what is expected takes room, too."""
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
    """Arrays whose values depend on their place."""

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
    """Arrays, and a compiled function that must not be compiled anew."""

    def __init__(self) -> None:
        import jax

        self.jax, self.arrays, self.compiled = jax, [], 0

        def twice(x: Any) -> Any:
            self.compiled += 1
            return x * 2

        self.twice = jax.jit(twice)

    def _on_gpu(self) -> None:
        """Without its plugin for CUDA it computes on the processor and says nothing."""
        if self.jax.default_backend() != "gpu":
            raise RuntimeError(f"JAX computes on the {self.jax.default_backend()} here")

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
    "stubborn": Stubborn,
    "counter": Counter,
    "torch": ByTorch,
    "torch-expandable": ByTorch,
    "cupy": ByCupy,
    "jax": ByJax,
}


class Product:
    """What the kernel extension does to frameworks, by its own code."""

    def __init__(self) -> None:
        from jupyter_gpushare.kernel.frameworks.caps import FrameworkCaps

        self.frameworks = FrameworkCaps()

    def cap(self, mib: int, total_mib: int) -> None:
        self.frameworks.told(
            [{"uuid": "", "cap_mib": mib, "total_mib": total_mib, "visible": "0"}], running=False
        )
        self.frameworks.apply()

    def drop(self) -> None:
        done = threading.Event()
        self.frameworks.drop_caches(done.set)
        done.wait()


class Obedience:
    """The words."""

    def __init__(self, holder: Any) -> None:
        self.holder, self.pulse, self.thread = holder, Pulse(), threading.Thread()
        self.product: Product | None = None
        self.pulse.start()

    def obey(self, word: str, args: list[str]) -> str:
        """One line's answer."""
        match word, args:
            case "hold" | "take" | "managed" | "busy", [number]:
                getattr(self.holder, word)(int(number))
            case "fork", []:
                return str(os.fork() or _rest())
            case "check", []:
                return "right" if self.holder.check() else "wrong"
            case "beat", []:
                return self.pulse.take()
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
                return f"error unknown word {word}"
        return "ok"


def _rest() -> int:
    """For a child: until it is killed."""
    while True:
        signal.pause()


def main() -> None:
    """Until the end of the input."""
    kind = sys.argv[1]
    if kind == "torch-expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        words = Obedience(KINDS[kind]())
    except ImportError as error:
        sys.stdout.write(f"missing {error.name}\n")
        return
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        word, *args = line.split()
        try:
            answer = words.obey(word, args)
        except Exception as error:  # whatever a framework raises is the answer
            answer = f"error {type(error).__name__}: {error}".replace("\n", " ")
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
