"""Background tasks that cannot be lost, pauses between attempts, and the limit of open files.

Only the standard library: the kernel, the node agent, the server extension and the scheduler all
import this module.
"""

from __future__ import annotations

import asyncio
import logging
import random
import resource
from collections.abc import Coroutine
from typing import Any, Final

__all__ = ["INHERITED_FILES", "BackgroundTasks", "Backoff", "raise_file_limit"]

FACTOR: Final = 2.0
MOST_FILES: Final = 1 << 16
INHERITED_FILES: Final = resource.getrlimit(resource.RLIMIT_NOFILE)
"""Soft and hard limit of this process when it started."""


def raise_file_limit() -> None:
    """A service with many connections needs more files than the usual soft limit of 1024."""
    soft, hard = INHERITED_FILES
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class BackgroundTasks:
    """Tasks that nobody awaits. Keeps a reference to each (asyncio keeps only weak ones) and logs
    the exceptions that end them.
    """

    def __init__(self, log: logging.Logger, *, level: int = logging.ERROR) -> None:
        self._log, self._level = log, level
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str = "") -> asyncio.Task[None]:
        """Starts `work` on the running event loop. `name` is used in the log."""
        task = asyncio.get_running_loop().create_task(
            work, name=name or getattr(work, "__qualname__", None)
        )
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.log(
                self._level,
                "background task %s failed: %s",
                task.get_name(),
                error or type(error).__name__,
                exc_info=error,
            )

    def cancel(self) -> None:
        """Cancels all tasks without waiting for their end."""
        for task in list(self._tasks):
            task.cancel()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Waits until all tasks have ended, at most `timeout_s`; cancels none."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def close(self) -> None:
        """Cancels all tasks and waits for their end."""
        tasks = list(self._tasks)
        self.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Backoff:
    """Pauses in seconds: they double from `first_s` up to `longest_s`. Jitter shortens each by up
    to a half, so that many clients of one server do not return at the same moment.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._pause_s = first_s

    def next_s(self) -> float:
        """The next pause."""
        pause_s = self._pause_s
        self._pause_s = min(pause_s * FACTOR, self._longest_s)
        return pause_s * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """An attempt succeeded: the next pause is the first one again."""
        self._pause_s = self._first_s

    async def sleep(self) -> None:
        """Sleeps for the next pause."""
        await asyncio.sleep(self.next_s())
