"""Tensors of bytes on a device."""

from __future__ import annotations

from torch.cuda import memory

__all__ = ["Tensor", "empty", "full", "zeros"]


class Tensor:
    """`count` bytes; freed memory returns to the cache of the allocator."""

    def __init__(self, count: int, device: str) -> None:
        from torch import cuda

        kind, _, number = device.partition(":")
        if kind != "cuda":
            raise ValueError(f"only cuda is supported, got {device!r}")
        cuda._lazy_init()
        self.allocator = memory.allocator(int(number) if number else cuda.current_device())
        self.block = self.allocator.take(count)
        self.count = count

    def __del__(self) -> None:
        block = self.__dict__.pop("block", None)
        if block is not None:
            self.allocator.give(block)

    def fill_(self, value: int) -> Tensor:
        """In place, like PyTorch."""
        self.allocator.gpu.write(self.block.pointer, bytes([value]) * min(self.count, 4096))
        return self

    def values(self) -> set[int]:
        """Its distinct bytes, read from the device."""
        return set(self.allocator.gpu.read(self.block.pointer, min(self.count, 4096)))


def empty(count: int, *, device: str = "cuda") -> Tensor:
    """Uninitialised."""
    return Tensor(count, device)


def full(count: int, value: int, *, device: str = "cuda") -> Tensor:
    """Filled."""
    return Tensor(count, device).fill_(value)


def zeros(count: int, *, device: str = "cuda") -> Tensor:
    """Zeros."""
    return full(count, 0, device=device)
