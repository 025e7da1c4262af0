"""Stands for PyTorch on the played driver: the functions that sharing a GPU depends on, with the
documented behaviour of its caching allocator. Tensors are runs of one byte value; that is enough to
see whether memory came back right.
"""

from __future__ import annotations

from torch import cuda
from torch._tensors import Tensor, empty, full, zeros
from torch.cuda.memory import OutOfMemoryError

__version__ = "2.9.0+played"
__all__ = ["OutOfMemoryError", "Tensor", "cuda", "empty", "full", "zeros"]
