"""Where a kernel's processes live and how all of them end: its own cgroup where kernels have one,
its process tree in any case.

The process tree is read even where there is a cgroup: a child that was forked before its parent was
moved there is outside of it.
"""

from __future__ import annotations

import asyncio

from jupyter_gpushare.aio import BackgroundTasks

from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime, log
from ..system.cgroups import Cgroups
from ..system.process_owner import ProcessOwner
from ..system.processes import ProcessId, foreign_descendants, kill_tree, tree_of

__all__ = ["ProcessGroups"]


class ProcessGroups:
    """The cgroups and process trees of one node's kernels. Slow work happens in threads."""

    def __init__(self, node: NodeRuntime, cgroups: Cgroups) -> None:
        self._node, self._cgroups = node, cgroups
        self._tasks = BackgroundTasks(log)

    def open(self, kernel: KernelRecord) -> None:
        """Make a new cgroup for the launch that begins; the old one is removed."""
        old, kernel.process.cgroup = (
            kernel.process.cgroup,
            self._cgroups.make(kernel.process.launch),
        )
        if old and old != kernel.process.cgroup:
            self._tasks.spawn(self.close_cgroup(old))

    def move_in(self, kernel: KernelRecord, ident: ProcessId) -> None:
        """The kernel's process has started, or was found again: move it, and what it has forked so
        far, into its cgroup. An agent that lost its journal finds the cgroup by the process.
        """
        process = kernel.process
        process.cgroup = process.cgroup or self._cgroups.leaf_of(ident.pid)
        if not process.cgroup:
            return
        self._cgroups.join(process.cgroup, [ident.pid])
        owner = kernel.registration.owner
        self._tasks.spawn(self._gather(process.launch, ident, process.cgroup, owner))

    async def _gather(
        self, launch: str, ident: ProcessId, cgroup: str, owner: ProcessOwner | None
    ) -> None:
        tree = await asyncio.to_thread(tree_of, launch, ident, owner)
        if ident in tree:  # else it is over already
            self._cgroups.join(cgroup, [one.pid for one in tree if one.is_alive()])

    async def end(
        self,
        launch: str,
        main: ProcessId | None,
        cgroup: str,
        owner: ProcessOwner | None,
        *,
        timeout_s: float = 5.0,
    ) -> bool:
        """Kill all processes; True when none is left. A process that has changed its user is killed
        with the cgroup; without one it is left alone and logged.
        """
        others = await asyncio.to_thread(foreign_descendants, launch, main, owner)
        inside = await asyncio.to_thread(self._cgroups.kill, cgroup, timeout_s)
        ended = await kill_tree(launch, main, owner, timeout_s=timeout_s) and inside
        if left := sorted(one.pid for one in others if one.is_alive()):
            log.warning(
                "launch %s: processes %s run as another user now and are left alone", launch, left
            )
        return ended

    async def close_cgroup(self, cgroup: str) -> None:
        """Remove the driver's limits of this cgroup, then the cgroup. One that is still in use is
        removed at the next start of the agent.
        """
        if cgroup:
            await asyncio.to_thread(self._node.devices.release_cgroup, cgroup)
            if not await asyncio.to_thread(self._cgroups.remove, cgroup):
                log.warning("the cgroup %s is still in use", cgroup)

    async def remove_abandoned(self) -> None:
        """Remove cgroups of kernels that ended while no agent ran, and the driver's limits of
        them.
        """
        known = {kernel.process.cgroup for kernel in self._node.kernels.values()} - {""}
        empty = {
            cgroup
            for cgroup in self._cgroups.leaves()
            if cgroup not in known and not self._cgroups.members(cgroup)
        }
        for cgroup in sorted(empty | set(self._node.devices.orphaned_cgroups(known))):
            await self.close_cgroup(cgroup)

    async def close(self) -> None:
        """Wait for work under way."""
        await self._tasks.wait()
