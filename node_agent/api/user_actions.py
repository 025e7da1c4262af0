"""What users ask for their own kernel (`KernelAction`). Requested in the notebook or in the
sidebar, carried out here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from jupyter_gpushare.core.model.errors import Conflict
from jupyter_gpushare.messages import KernelAction

from ..reconcile.idle_culler import request_again
from ..reconcile.memory_mover import MemoryMover
from ..reconcile.reconciler import Reconciler
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime

__all__ = ["UserActions"]

RESUME_S: Final = 20.0
"""Less than the 30 s that the Jupyter server waits for a response, so that the user learns that
there is no room yet, not that the agent did not respond.
"""
PINNED: Final = (
    "Pinned: not suspended while idle. Memory above the share is reclaimed only after a notice. "
    "Pinning does not prevent rules that release idle GPUs or limit the run time."
)


class UserActions:
    """Carries them out, or says why not."""

    def __init__(self, node: NodeRuntime, reconciler: Reconciler, mover: MemoryMover) -> None:
        self._node, self._reconciler, self._mover = node, reconciler, mover

    async def perform(self, kernel: KernelRecord, action: KernelAction) -> None:
        """Carry it out. Raises Conflict with the reason why not."""
        now = self._node.clock()
        if not kernel.preferences.actions.take(now / 1000):
            raise Conflict("too many actions of this kernel; try again in a few seconds")
        if action == "run-without-gpu":
            self._run_without_gpu(kernel, now)
            return
        if kernel.lease is None and kernel.idle.released_lease is not None and action == "resume":
            request_again(self._node, kernel, now)
            return
        if kernel.lease is None:
            raise Conflict("this kernel has no GPU; request one with `%gpu request 0.5`")
        kernel.idle.restart(now)
        if action in ("pin", "unpin"):
            self._pin(kernel, action == "pin")
        elif action == "suspend":
            await self._suspend(kernel)
        else:
            await self._resume(kernel)

    def _run_without_gpu(self, kernel: KernelRecord, now: int) -> None:
        """Cells run without a GPU until one is granted; the request stays pending."""
        if kernel.lease is not None:
            raise Conflict("this kernel's GPU is granted; its cells run with it")
        if not kernel.wants_gpu():
            raise Conflict("this kernel does not wait for a GPU")
        kernel.gate.gave_up = True
        for n in list(kernel.gate.waiting):
            self._reconciler.cells.admit(kernel, n, now, without_gpu=True)
        self._node.wake()

    def _pin(self, kernel: KernelRecord, pinned: bool) -> None:
        if kernel.preferences.pinned == pinned:
            return
        kernel.preferences.pinned, self._node.dirty = pinned, True
        if pinned:
            self._node.record_event(kernel, "pinned", PINNED)
        else:
            self._node.record_event(kernel, "unpinned", "No longer pinned.")
        self._node.wake()

    async def _suspend(self, kernel: KernelRecord) -> None:
        memory = kernel.memory
        if memory.suspended:
            return
        if not memory.can_suspend(self._node.clock()):
            raise Conflict(f"this kernel cannot be suspended: {memory.no_suspend_reason}")
        kernel.preferences.suspended_by_user = True
        self._mover.suspend(kernel, None, "", requested=True)
        await self._wait_until(lambda: kernel.memory.transit is None)
        if not kernel.memory.can_suspend(self._node.clock()):
            kernel.preferences.suspended_by_user = False
            reason = kernel.memory.no_suspend_reason
            raise Conflict(f"this kernel could not be suspended: {reason}")

    async def _resume(self, kernel: KernelRecord) -> None:
        kernel.preferences.suspended_by_user = False
        if not kernel.memory.suspended and kernel.memory.transit is None:
            return
        kernel.assignment.entering_since = self._node.clock()
        self._node.wake()
        if not await self._wait_until(lambda: _is_resumed(kernel)):
            raise Conflict("the GPU has no room yet; the kernel is resumed as soon as it has")

    async def _wait_until(self, done: Callable[[], bool]) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RESUME_S
        while not done() and loop.time() < deadline:  # noqa: ASYNC110 - has no event
            await asyncio.sleep(0.01)
        self._reconciler.try_step()
        return done()


def _is_resumed(kernel: KernelRecord) -> bool:
    return not kernel.memory.suspended and kernel.memory.transit is None
