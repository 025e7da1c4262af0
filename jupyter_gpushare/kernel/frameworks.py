"""Caches of GPU memory that frameworks keep: given back when the agent asks. Touches only what the notebook imported itself."""

from __future__ import annotations

import contextlib
import gc
import sys

__all__ = ["drop_caches"]


def drop_caches() -> None:
    """Empty the caches of the frameworks that are loaded. A framework's own trouble stays its own."""
    gc.collect()
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None:
        with contextlib.suppress(Exception):
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
    if cupy is not None:
        with contextlib.suppress(Exception):
            cupy.get_default_memory_pool().free_all_blocks()
