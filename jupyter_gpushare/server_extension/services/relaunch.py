"""Restarts and shuts down kernels for the node agent, with Jupyter's own means.

Documents and WebSockets stay, and no page reports that the kernel died.
"""

from __future__ import annotations

import asyncio
import contextlib
from logging import Logger
from typing import Final

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.messages import EndKernel, RelaunchKernel

from ..clients.jupyter_server import JupyterServer

__all__ = ["KernelRestarter"]

SHARE_OF_DEADLINE: Final = 0.6
"""Share of the agent's deadline for waiting for the running cell; the rest is for the restart."""


class KernelRestarter:
    """Carries out the agent's orders in the background. The agent acts itself at its deadline."""

    def __init__(self, jupyter: JupyterServer, tasks: BackgroundTasks, log: Logger) -> None:
        self._jupyter, self._tasks, self._log = jupyter, tasks, log

    def restart(self, order: RelaunchKernel) -> None:
        """Restart a kernel."""
        self._tasks.spawn(self._restart(order))

    def shut_down(self, order: EndKernel) -> None:
        """Shut a kernel down, as Jupyter's own culling does."""
        self._tasks.spawn(self._shut_down(order))

    async def _restart(self, order: RelaunchKernel) -> None:
        kernel_id = order.kernel_id
        self._log.info("gpushare: restarting kernel %s: %s", kernel_id, order.message)
        await self._until_idle(kernel_id, order.deadline_ms / 1000 * SHARE_OF_DEADLINE)
        try:
            await self._jupyter.restart(kernel_id)
        except Exception as error:  # of any kind: the agent kills the kernel at its deadline
            self._log.warning("gpushare: cannot restart kernel %s: %s", kernel_id, error)

    async def _shut_down(self, order: EndKernel) -> None:
        kernel_id = order.kernel_id
        self._log.info("gpushare: shutting down kernel %s: %s", kernel_id, order.message)
        try:
            await self._jupyter.end(kernel_id)
        except Exception as error:  # of any kind: the agent ends the kernel at its deadline
            self._log.warning("gpushare: cannot shut down kernel %s: %s", kernel_id, error)

    async def _until_idle(self, kernel_id: str, within: float) -> None:
        """Wait for the running cell, which the agent is ending with a message, to finish."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self._jupyter.is_busy(kernel_id):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.01)
