"""Replaces PyTorch on the fake driver: the functions on which GPU sharing depends, with the
documented behaviour of its caching allocator. A tensor repeats one byte, which suffices to check
restored memory.
"""

from __future__ import annotations

from torch import cuda
from torch._tensors import Tensor, empty, full, zeros
from torch.cuda.memory import OutOfMemoryError

__version__ = "2.9.0+fake"
__all__ = ["OutOfMemoryError", "Tensor", "cuda", "empty", "full", "zeros"]
