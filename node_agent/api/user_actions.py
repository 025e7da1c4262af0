"""What owners ask for their own kernel: pin, unpin, suspend, resume. Asked in the notebook or in
the sidebar, done here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from jupyter_gpushare.core.model.errors import Conflict

from ..reconcile.idle_culler import ask_again, reset
from ..reconcile.memory_mover import MemoryMover
from ..reconcile.reconciler import Reconciler
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime

__all__ = ["UserActions"]

RESUME_S: Final = 20.0
"""Less than the Jupyter server waits for an answer (30 s): who asks hears that there is no room
yet, not that nobody answers.
"""


class UserActions:
    """Grants them, or says why not."""

    def __init__(self, node: NodeRuntime, reconciler: Reconciler, mover: MemoryMover) -> None:
        self._node, self._reconciler, self._mover = node, reconciler, mover

    async def grant(self, kernel: KernelRecord, action: str) -> None:
        """`pin`, `unpin`, `suspend` or `resume`. Raises Conflict with the reason why not."""
        if kernel.lease is None and kernel.idle.released_lease is not None and action == "resume":
            ask_again(self._node, kernel, self._node.clock())
            return
        if kernel.lease is None:
            raise Conflict("this kernel has no GPU; ask for one with `%gpu request 0.5`")
        reset(kernel, self._node.clock())
        if action in ("pin", "unpin"):
            self._pin(kernel, action == "pin")
        elif action == "suspend":
            await self._suspend(kernel)
        else:
            await self._resume(kernel)

    def _pin(self, kernel: KernelRecord, pinned: bool) -> None:
        if kernel.preferences.pinned == pinned:
            return
        kernel.preferences.pinned, self._node.dirty = pinned, True
        kept = (
            "Pinned: not suspended while idle; who needs its memory above the share gives notice first. It does not protect from rules that"
            " give an idle GPU back or end what runs for too long."
        )
        what = kept if pinned else "Not pinned any more."
        self._node.happened(kernel, "pinned" if pinned else "unpinned", what)
        self._node.wake()

    async def _suspend(self, kernel: KernelRecord) -> None:
        if kernel.memory.suspended:
            return
        if self._node.clock() < kernel.memory.no_suspend_until:
            raise Conflict(f"this kernel cannot be suspended: {kernel.memory.no_suspend_reason}")
        kernel.preferences.suspended_by_user = True
        self._mover.suspend(kernel, None, "", own=True)
        await self._until(lambda: kernel.memory.transit is None)
        if kernel.memory.no_suspend_reason and self._node.clock() < kernel.memory.no_suspend_until:
            kernel.preferences.suspended_by_user = False
            raise Conflict(f"this kernel could not be suspended: {kernel.memory.no_suspend_reason}")

    async def _resume(self, kernel: KernelRecord) -> None:
        kernel.preferences.suspended_by_user = False
        if not kernel.memory.suspended and kernel.memory.transit is None:
            return
        kernel.assignment.entering_since = self._node.clock()
        self._node.wake()
        if not await self._until(
            lambda: not kernel.memory.suspended and kernel.memory.transit is None
        ):
            raise Conflict(
                "there is no room on the GPU yet; the kernel is resumed as soon as there is"
            )

    async def _until(self, done: Callable[[], bool]) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RESUME_S
        while not done() and loop.time() < deadline:  # noqa: ASYNC110 - the end of a copy, seen from outside
            await asyncio.sleep(0.01)
        self._reconciler.try_step()
        return done()
