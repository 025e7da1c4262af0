"""SIGINT during a wait, and during a cell whose kernel is about to restart."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from .errors import GpuReclaimed

__all__ = ["interruptible", "is_main_thread", "on_idle_interrupt", "raise_on_interrupt"]


def is_main_thread() -> bool:
    """Only the main thread receives SIGINT and may set its handler."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """An interrupt raises KeyboardInterrupt in the block. The handler that ipykernel sets for cells
    with a top-level `await` would only cancel the cell later.
    """
    if not is_main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def on_idle_interrupt(callback: Callable[[], None]) -> None:
    """Call this when an interrupt arrives while no cell of the main thread runs; ipykernel ignores
    the signal then, and restores the handler after every cell.
    """
    if is_main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: callback())


def raise_on_interrupt(take_reclaim_message: Callable[[], str | None]) -> None:
    """Until the end of this cell an interrupt raises `GpuReclaimed` if there is a message, and
    KeyboardInterrupt otherwise. ipykernel restores its own handler after every message.
    """
    if not is_main_thread():
        return
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return

    def handler(number: int, frame: FrameType | None) -> None:
        message = take_reclaim_message()
        if message is not None:
            raise GpuReclaimed(message)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, handler)
