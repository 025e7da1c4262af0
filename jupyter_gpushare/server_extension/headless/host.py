"""What the provisioner calls in a tool: as in a Jupyter server, but it waits for the GPU before the
kernel starts, since a tool counts the time of its cells and not of its start.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import time
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from jupyter_gpushare.core.model.errors import Conflict
from jupyter_gpushare.messages import Event, Kernel, KernelRequest

from ..launch.launch_plan import LaunchPlan
from .report import report
from .session import ToolSession

__all__ = ["ToolHost"]

T = TypeVar("T")
POLL_S: Final = 0.1
QUIET_S: Final = 1.0
"""A shorter wait reports nothing."""
REPORT_S: Final = 10.0
"""At least between two lines about one wait, unless its reason changes."""
AGENT_S: Final = 5.0
"""Longest wait for the agent to receive a lease."""
FLUSH_S: Final = 2.0


class ToolHost:
    """For the kernels of one process."""

    def __init__(self, session: ToolSession, *, waits: bool) -> None:
        """`waits`: whether kernels start only when their GPU is granted."""
        self._session, self._waits = session, waits

    async def check(self, request: KernelRequest) -> KernelRequest:
        """See `ServerKernelLifecycle.check`."""
        return await self._run(self._session.service.lifecycle.check(request))

    async def register(
        self,
        kernel_id: str,
        *,
        name: str,
        language: str,
        plan: LaunchPlan,
        request: KernelRequest | None,
    ) -> dict[str, str]:
        """The kernel's environment, after the wait for its GPU."""
        self._session.kernels.add(kernel_id, name)
        lifecycle = self._session.service.lifecycle

        def registered(wanted: KernelRequest | None) -> Coroutine[Any, Any, dict[str, str]]:
            return lifecycle.register(
                kernel_id, name=name, language=language, plan=plan, request=wanted
            )

        env = await self._run(registered(request))
        if request is None or not env or not self._waits:
            return env
        self._session.call(lifecycle.submit, kernel_id)
        try:
            await self._run(self._wait_for_grant(kernel_id))
        except BaseException:
            self.ended(kernel_id)
            await self.flush()
            raise
        # registered again: the variables of its devices are those of the granted share
        return {**await self._run(registered(None)), "GPUSHARE_WANTS_GPU": "1"}

    async def _wait_for_grant(self, kernel_id: str) -> None:
        """In the session's loop. Raises Conflict when the request is refused or cancelled."""
        line = _WaitLine()
        kernels = self._session.service.kernels
        while (kernel := kernels.get(kernel_id)).state == "pending":
            line.show(kernel)
            await asyncio.sleep(POLL_S)
        if kernel.workload is None:
            reason = kernel.reason.message if kernel.reason else "the request was cancelled"
            raise Conflict(reason)
        line.done()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AGENT_S):
                while not kernels.has_lease_on_node(kernel_id):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(POLL_S)

    def add_event(self, kernel_id: str, event: Event) -> None:
        """Add an event to the kernel's history."""
        self._session.call(self._session.service.lifecycle.add_event, kernel_id, event)

    def launched(self, kernel_id: str, pid: int) -> None:
        """After a launch."""
        self._session.call(self._session.service.lifecycle.launched, kernel_id, pid)

    def interrupted(self, kernel_id: str) -> None:
        """The kernel was interrupted."""
        self._session.call(self._session.service.lifecycle.interrupted, kernel_id)

    def ending(self, kernel_id: str) -> None:
        """The kernel's process is about to be ended."""
        self._session.call(self._session.service.lifecycle.ending, kernel_id)

    def restarting(self, kernel_id: str) -> None:
        """The kernel's process has ended; it is launched again at once."""
        self._session.call(self._session.service.lifecycle.restarting, kernel_id)

    def ended(self, kernel_id: str) -> None:
        """The kernel has ended for good. May be called again."""
        self._session.kernels.remove(kernel_id)
        self._session.call(self._session.service.lifecycle.ended, kernel_id)

    def is_ungated(self, kernel_id: str) -> bool:  # noqa: ARG002 - a tool starts it once
        """Nothing is remembered."""
        return False

    async def flush(self) -> None:
        """Wait until the ends are sent: the process may exit at once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * FLUSH_S):
                await self._run(self._session.service.flush(FLUSH_S))

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the session's loop; cancelled with the caller."""
        future: concurrent.futures.Future[T] = self._session.submit(work)
        return await asyncio.wrap_future(future)


class _WaitLine:
    """Says on stderr why the kernel does not start yet."""

    def __init__(self) -> None:
        self._started = self._shown_at = time.monotonic()
        self._text = ""

    def show(self, kernel: Kernel) -> None:
        now = time.monotonic()
        text = _wait_text(kernel)
        if now - self._started < QUIET_S or (text == self._text and now < self._shown_at + 60):
            return
        if self._text and now < self._shown_at + REPORT_S:
            return
        self._text, self._shown_at = text, now
        report(f"{text} ({now - self._started:.0f} s)")

    def done(self) -> None:
        if self._text:
            report(f"GPU granted after {time.monotonic() - self._started:.0f} s")


def _wait_text(kernel: Kernel) -> str:
    text = f"waiting for a GPU: {kernel.reason.message if kernel.reason else 'requested'}"
    if kernel.queue_position:
        text += f" Queue position: {kernel.queue_position}."
    return f"{text} {kernel.expected_wait.message}" if kernel.expected_wait else text
