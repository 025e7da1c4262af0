"""Work that a driver may hold up for ever, in a thread of its own: whoever waits for it can say
what hangs, and can end without it.

A call that hangs in the driver cannot be broken off; when it returns, be it hours later, the work
goes on. A second attempt beside it would wait at the same lock of the library, so there is none
before.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from jupyter_gpushare.core.model.errors import GpuShareError

from .call_tracker import hangs

__all__ = ["WatchedCall", "found_patiently"]

T = TypeVar("T")
QUICKLY_S: Final = 0.02
LOOK_S: Final = 0.5


class WatchedCall(Generic[T]):
    """One piece of work. The thread is nobody's to join: a process can end beside it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="gpushare-attempt", daemon=True).start()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # it is raised where somebody waits
            self._error = error
        self._done.set()

    def wait(self, seconds: float) -> bool:
        """Whether it is done."""
        return self._done.wait(seconds)

    def is_done(self) -> bool:
        """Without waiting."""
        return self._done.is_set()

    def result(self) -> T:
        """Of work that is done; raises what the work raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # it is done: None only where T is


async def found_patiently(work: Callable[[], T], tell: Callable[[str], None]) -> T:
    """The result of blocking work; `tell` hears what hangs as soon as something does, and "" when
    it goes on.

    What hung and then failed is tried again: the driver was not itself. Raises what the work raised
    otherwise.
    """
    told = ""
    while True:
        attempt, hung = WatchedCall(work), False
        while not attempt.is_done():
            await asyncio.sleep(LOOK_S if told else QUICKLY_S)
            problem = hangs()
            hung = hung or bool(problem)
            if problem and problem != told:
                told = problem
                tell(told)
        try:
            found = attempt.result()
        except GpuShareError:
            if not hung:
                raise
            await asyncio.sleep(LOOK_S)
            continue
        if told:
            tell("")
        return found
