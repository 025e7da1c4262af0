"""The caching allocator: it keeps freed blocks, and checks its fraction for each new segment, not
for each tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.fake_driver.driver import CudaError, Gpu

__all__ = [
    "OutOfMemoryError",
    "allocator",
    "empty_cache",
    "get_per_process_memory_fraction",
    "memory_allocated",
    "memory_reserved",
    "set_per_process_memory_fraction",
]

SEGMENT = 2 << 20
"""Unit of sizes."""


class OutOfMemoryError(RuntimeError):
    """`torch.OutOfMemoryError`."""


def _gib(size: float) -> str:
    return f"{size / (1 << 30):.2f}"


@dataclass
class _Block:
    pointer: int
    size: int


class _Allocator:
    """Memory of one device."""

    def __init__(self, ordinal: int) -> None:
        self.gpu = Gpu(ordinal)
        self.ordinal, self.fraction = ordinal, 1.0
        self.free: list[_Block] = []
        self.reserved = self.allocated = 0

    def take(self, count: int) -> _Block:
        size = -(-count // SEGMENT) * SEGMENT
        cached = min(
            (block for block in self.free if block.size >= size),
            key=lambda block: block.size,
            default=None,
        )
        if cached is not None:
            self.free.remove(cached)
            self.allocated += cached.size
            return cached
        block = self._segment(size)
        if block is None:
            self.empty_cache()
            block = self._segment(size)
        if block is None:
            left, total = self.gpu.memory()
            raise OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {_gib(size)} GiB. "
                f"GPU {self.ordinal} has a total capacity of {_gib(total)} GiB "
                f"of which {_gib(left)} GiB is free. {_gib(self.fraction * total)} GiB allowed; "
                f"this process has {_gib(self.reserved)} GiB in use by PyTorch."
            )
        self.allocated += size
        return block

    def _segment(self, size: int) -> _Block | None:
        _, total = self.gpu.memory()
        if self.fraction < 1.0 and self.reserved + size > int(self.fraction * total):
            return None
        try:
            pointer = self.gpu.alloc(size)
        except CudaError as error:
            if error.code != 2:
                raise RuntimeError(f"CUDA error {error.code}") from error
            return None
        self.reserved += size
        return _Block(pointer, size)

    def give(self, block: _Block) -> None:
        self.allocated -= block.size
        self.free.append(block)

    def empty_cache(self) -> None:
        for block in self.free:
            self.gpu.free(block.pointer)
            self.reserved -= block.size
        self.free.clear()


_allocators: dict[int, _Allocator] = {}


def allocator(ordinal: int) -> _Allocator:
    """Created by the first use, together with the context of the device."""
    if ordinal not in _allocators:
        _allocators[ordinal] = _Allocator(ordinal)
    return _allocators[ordinal]


def _ordinal(device: Any) -> int:
    from torch import cuda

    return cuda.current_device() if device is None else int(device)


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Initialises CUDA, like PyTorch."""
    from torch import cuda

    cuda._lazy_init()
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    allocator(_ordinal(device)).fraction = fraction


def get_per_process_memory_fraction(device: Any = None) -> float:
    """Rounded to whole bytes, like PyTorch."""
    from torch import cuda

    cuda._lazy_init()
    one = allocator(_ordinal(device))
    _, total = one.gpu.memory()
    return int(one.fraction * total) / total


def empty_cache() -> None:
    """No effect before CUDA is initialised."""
    from torch import cuda

    if cuda.is_initialized():
        for one in _allocators.values():
            one.empty_cache()


def memory_allocated(device: Any = None) -> int:
    """Bytes in tensors."""
    return allocator(_ordinal(device)).allocated


def memory_reserved(device: Any = None) -> int:
    """Bytes in segments."""
    return allocator(_ordinal(device)).reserved
