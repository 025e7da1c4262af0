"""Runs blocking work that may hang in the driver, in a thread that nothing has to join.

A call that hangs in the driver cannot be cancelled; when it returns, perhaps hours later, the work
continues. There is no second attempt meanwhile: it would wait for the same lock of the library.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from jupyter_gpushare.core.model.errors import GpuShareError

from .call_tracker import hang_problem

__all__ = ["WatchedCall", "run_watched"]

T = TypeVar("T")
POLL_S: Final = 0.02
HUNG_POLL_S: Final = 0.5


class WatchedCall(Generic[T]):
    """Runs `work` in a daemon thread: the process can exit while it hangs."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="gpushare-watched-call", daemon=True).start()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # `result` raises it in the caller's thread
            self._error = error
        self._done.set()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; returns whether the work is done."""
        return self._done.wait(seconds)

    def is_done(self) -> bool:
        """Returns at once."""
        return self._done.is_set()

    def result(self) -> T:
        """The result of work that is done. Raises what the work raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # None only where T includes None


async def run_watched(work: Callable[[], T], report: Callable[[str], None]) -> T:
    """The result of blocking work. `report` receives a sentence when a driver call hangs, and ""
    when it continues.

    Work that failed after a hang is retried: the driver was not in a normal state. Raises what the
    work raised otherwise.
    """
    reported = ""
    while True:
        call, hung = WatchedCall(work), False
        while not call.is_done():
            await asyncio.sleep(HUNG_POLL_S if reported else POLL_S)
            problem = hang_problem()
            hung = hung or bool(problem)
            if problem and problem != reported:
                reported = problem
                report(problem)
        try:
            result = call.result()
        except GpuShareError:
            if not hung:
                raise
            await asyncio.sleep(HUNG_POLL_S)
            continue
        if reported:
            report("")
        return result
