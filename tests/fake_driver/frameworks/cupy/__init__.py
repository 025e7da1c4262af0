"""Replaces CuPy on the fake driver: its pool with a limit, read from the environment when the
pool of a device is made.
"""

from __future__ import annotations

from cupy import cuda
from cupy.cuda.memory import MemoryPool, ndarray

__version__ = "13.6.0+fake"
__all__ = ["cuda", "full", "get_default_memory_pool", "ndarray"]

_pool = MemoryPool()


def get_default_memory_pool() -> MemoryPool:
    """The pool of this process."""
    return _pool


def full(count: int, value: int) -> ndarray:
    """`count` bytes on the current device."""
    return ndarray(_pool, count, value)
