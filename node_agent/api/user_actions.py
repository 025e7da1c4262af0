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

    def __init__(self, node: NodeRuntime, desk: Reconciler, mover: MemoryMover) -> None:
        self._node, self._desk, self._mover = node, desk, mover

    async def grant(self, book: KernelRecord, action: str) -> None:
        """`pin`, `unpin`, `suspend` or `resume`. Raises Conflict with the reason why not."""
        if book.lease is None and book.rest.lease is not None and action == "resume":
            ask_again(self._node, book, self._node.clock())
            return
        if book.lease is None:
            raise Conflict("this kernel has no GPU; ask for one with `%gpu request 0.5`")
        reset(book, self._node.clock())
        if action in ("pin", "unpin"):
            self._pin(book, action == "pin")
        elif action == "suspend":
            await self._suspend(book)
        else:
            await self._resume(book)

    def _pin(self, book: KernelRecord, pinned: bool) -> None:
        if book.pinned == pinned:
            return
        book.pinned, self._node.dirty = pinned, True
        kept = (
            "Pinned: not suspended while idle; who needs its memory above the share gives notice first. It does not protect from rules that"
            " give an idle GPU back or end what runs for too long."
        )
        what = kept if pinned else "Not pinned any more."
        self._node.happened(book, "pinned" if pinned else "unpinned", what)
        self._node.wake()

    async def _suspend(self, book: KernelRecord) -> None:
        if book.holding.suspended:
            return
        if self._node.clock() < book.no_suspend_until:
            raise Conflict(f"this kernel cannot be suspended: {book.no_suspend_why}")
        book.held_back = True
        self._mover.suspend(book, None, "", own=True)
        await self._until(lambda: book.transit is None)
        if book.no_suspend_why and self._node.clock() < book.no_suspend_until:
            book.held_back = False
            raise Conflict(f"this kernel could not be suspended: {book.no_suspend_why}")

    async def _resume(self, book: KernelRecord) -> None:
        book.held_back = False
        if not book.holding.suspended and book.transit is None:
            return
        book.entering = self._node.clock()
        self._node.wake()
        if not await self._until(lambda: not book.holding.suspended and book.transit is None):
            raise Conflict(
                "there is no room on the GPU yet; the kernel is resumed as soon as there is"
            )

    async def _until(self, done: Callable[[], bool]) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RESUME_S
        while not done() and loop.time() < deadline:  # noqa: ASYNC110 - the end of a copy, seen from outside
            await asyncio.sleep(0.01)
        self._desk.try_step()
        return done()
