"""Returns the memory that frameworks cache and do not use."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from .cuda import context_exists, cuda_started

__all__ = ["DROP_BUDGET_S", "drop_caches"]

DROP_BUDGET_S: Final = 0.25


def drop_caches(done: Callable[[], object], *, suspended: bool = False) -> None:
    """Return cached memory, in a thread. `done` is called once: when the memory is returned, or
    after the budget. In a suspended process the driver would block the interpreter.
    """
    called = threading.Lock()

    def call_once() -> None:
        if called.acquire(blocking=False):
            done()

    def work() -> None:
        with contextlib.suppress(Exception):
            if not suspended:
                _drop()
        call_once()

    timer = threading.Timer(DROP_BUDGET_S, call_once)
    timer.daemon = True
    timer.start()
    threading.Thread(target=work, name="gpushare-drop", daemon=True).start()


def _drop() -> None:
    gc.collect()
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None:
        with contextlib.suppress(Exception):
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
    if cupy is not None and cuda_started():
        with contextlib.suppress(Exception):
            _drop_cupy(cupy)


def _drop_cupy(cupy: Any) -> None:
    for ordinal in range(cupy.cuda.runtime.getDeviceCount()):
        if context_exists(ordinal):
            with cupy.cuda.Device(ordinal):
                cupy.get_default_memory_pool().free_all_blocks()
