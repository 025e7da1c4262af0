"""Where a kernel's processes live and how all of them end: its cgroup leaf where there are leaves,
its process tree in any case.

The tree is asked even where there is a leaf: a child that was forked before its parent was moved in
is outside.
"""

from __future__ import annotations

import asyncio

from jupyter_gpushare.aio import BackgroundTasks

from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime, log
from ..system.cgroups import Cgroups
from ..system.processes import ProcessId, kill_tree, others_of, tree_of

__all__ = ["ProcessGroups"]


class ProcessGroups:
    """The leaves of one node's kernels. What is slow happens in threads."""

    def __init__(self, node: NodeRuntime, cgroups: Cgroups) -> None:
        self._node, self._cgroups = node, cgroups
        self._tasks = BackgroundTasks(log)

    def open(self, book: KernelRecord) -> None:
        """A fresh one for the launch that begins; the old one is taken away."""
        old, book.leaf = book.leaf, self._cgroups.make(book.launch)
        if old and old != book.leaf:
            self._tasks.spawn(self.close_leaf(old))

    def move_in(self, book: KernelRecord, ident: ProcessId) -> None:
        """The kernel's process has started, or was found again: it and what it has forked so far
        live here from now on.
        """
        book.leaf = book.leaf or self._cgroups.leaf_of(
            ident.pid
        )  # an agent that lost its journal finds it again
        if not book.leaf:
            return
        self._cgroups.join(book.leaf, [ident.pid])
        self._tasks.spawn(self._gather(book.launch, ident, book.leaf, book.uid))

    async def _gather(self, launch: str, ident: ProcessId, leaf: str, uid: int | None) -> None:
        tree = await asyncio.to_thread(tree_of, launch, ident, uid)
        if ident in tree:  # else it is over already
            self._cgroups.join(leaf, [one.pid for one in tree if one.is_alive()])

    async def end(
        self,
        launch: str,
        main: ProcessId | None,
        leaf: str,
        uid: int | None,
        *,
        timeout_s: float = 5.0,
    ) -> bool:
        """Kill everybody; True when nobody is left. Who became another user meanwhile ends with the
        leaf, or is left alone and said.
        """
        others = await asyncio.to_thread(others_of, launch, main, uid)
        inside = await asyncio.to_thread(self._cgroups.kill, leaf, timeout_s)
        ended = await kill_tree(launch, main, uid, timeout_s=timeout_s) and inside
        if left := sorted(one.pid for one in others if one.is_alive()):
            log.warning(
                "launch %s: processes %s run as another user by now and are left alone",
                launch,
                left,
            )
        return ended

    async def close_leaf(self, leaf: str) -> None:
        """Let the driver forget it, then take it away; somebody who is still inside keeps it for
        the next start of the agent.
        """
        if leaf:
            await asyncio.to_thread(self._node.devices.release_cgroup, leaf)
            if not await asyncio.to_thread(self._cgroups.remove, leaf):
                log.warning("the cgroup %s is still in use", leaf)

    async def tidy(self) -> None:
        """What an agent that died left: limits of cgroups whose kernels are gone, and those
        cgroups.
        """
        mine = {book.leaf for book in self._node.books.values() if book.leaf}
        left = {
            leaf
            for leaf in self._cgroups.leaves()
            if leaf not in mine and not self._cgroups.members(leaf)
        }
        for leaf in sorted(left | set(self._node.devices.orphaned_cgroups(mine))):
            await self.close_leaf(leaf)

    async def close(self) -> None:
        """Wait for what is under way."""
        await self._tasks.wait()
