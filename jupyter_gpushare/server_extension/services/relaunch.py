"""The restart or the end that a node agent orders: Jupyter's own, so that documents and websockets
stay, and no page says that the kernel died.
"""

from __future__ import annotations

import asyncio
import contextlib
from logging import Logger
from typing import Final

from jupyter_gpushare.messages import EndKernel, RelaunchKernel

from .protocols import JupyterAPI

__all__ = ["end_idle", "relaunch"]

SHARE_OF_DEADLINE: Final = 0.6
"""Of the time that the agent gives us for a restart: what is left is for the restart itself."""


async def relaunch(jupyter: JupyterAPI, order: RelaunchKernel, log: Logger) -> None:
    """Restart it. One that cannot be restarted is the agent's to kill, at its deadline."""
    log.info("gpushare: kernel %s is restarted: %s", order.kernel_id, order.message)
    await _until_idle(jupyter, order.kernel_id, order.deadline_ms / 1000 * SHARE_OF_DEADLINE)
    try:
        await jupyter.restart(order.kernel_id)
    except Exception as error:  # whatever Jupyter raises: the agent's deadline is the way out
        log.warning("gpushare: kernel %s could not be restarted: %s", order.kernel_id, error)


async def end_idle(jupyter: JupyterAPI, order: EndKernel, log: Logger) -> None:
    """Jupyter's own shutdown, as its culling of idle kernels does it."""
    log.info("gpushare: kernel %s is shut down: %s", order.kernel_id, order.message)
    try:
        await jupyter.end(order.kernel_id)
    except Exception as error:  # whatever Jupyter raises: the agent's deadline is the way out
        log.warning("gpushare: kernel %s could not be shut down: %s", order.kernel_id, error)


async def _until_idle(jupyter: JupyterAPI, kernel_id: str, within: float) -> None:
    """The running cell is being ended with a sentence; give that a moment to reach the notebook."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            while jupyter.is_busy(kernel_id):  # noqa: ASYNC110 - Jupyter announces no change of it
                await asyncio.sleep(0.01)
