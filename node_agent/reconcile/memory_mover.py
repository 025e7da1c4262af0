"""Copies between GPU and host: suspend, resume, settle, each in a thread, one at a time per kernel,
with the host's memory as a budget.

The event loop only starts a copy and hears of its end. What fails was undone by the devices; here
it becomes a pause before the next try, or the word that this kernel cannot be saved, and then the
ladder takes the next rung.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.messages import NoticeEnded

from ..devices.base.model import CopyFailed
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime, log
from ..state.notices import ReclaimNotice
from ..system.host_memory import read_host, refusal

__all__ = ["MemoryMover"]

T = TypeVar("T")
NEVER: Final = 1 << 62
RETRY_MS: Final = 5_000
"""Pause after a failed suspension: a process that did not come to rest in time may be in the middle
of a long kernel.
"""
RESUME_RETRY_MS: Final = 500
"""Pause after a resume for which there was no room in fact, whatever the books say: each try makes
the neighbours hold still.
"""
THREADS: Final = 8


class MemoryMover:
    """Executes what the ladder decided about memory."""

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="gpushare-copy")
        self._tasks = BackgroundTasks(log)
        self._ledger = threading.Lock()
        """Two copies must not be promised the same memory."""

    def suspend(
        self, kernel: KernelRecord, asker: KernelRecord | None, reason: str, *, own: bool = False
    ) -> None:
        """Start saving; `own`: its owner (or its own next cell) wants it."""
        if kernel.memory.transit is not None:
            return
        tiers, problems = self._node.devices.capabilities()
        if "suspend" not in tiers:  # asked again later: the self-test may still be on its way
            self._cannot(
                kernel,
                problems.get("suspend", "this node cannot save GPU memory").partition(";")[0],
                self._node.clock() + RETRY_MS,
            )
            return
        kernel.memory.transit = "out"
        self._start(kernel, self._suspend(kernel, asker, reason, own))

    def resume(self, kernel: KernelRecord, home: Sequence[int]) -> None:
        """Start bringing it back onto these GPUs; the caller has noted that it is on its way in."""
        self._start(kernel, self._resume(kernel, tuple(home)))

    def recover(self, kernel: KernelRecord) -> None:
        """Finish or undo what a dead agent left half done."""
        if kernel.memory.transit is None:
            kernel.memory.transit = "out"
            self._start(kernel, self._recover(kernel))

    async def close(self) -> None:
        """Wait for the copies under way: half a copy is worse than a slow stop. A copy that hangs
        in the driver is left after 10 s.
        """
        await self._tasks.wait(timeout_s=10)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, kernel: KernelRecord, work: Coroutine[None, None, None]) -> None:
        kernel.memory.copying_since = self._node.clock()
        self._tasks.spawn(work)

    def _admit(self, kernel: KernelRecord, mib: int) -> str:
        """Why the host has no memory for an image of this size; if it has, it is promised. In the
        copy's thread.

        Images outside host memory count against the stated budget only.
        """
        node = self._node
        with self._ledger:
            kernels = list(node.kernels.values())
            host = (
                read_host(pid for pid, _ in kernel.memory.usage.processes)
                if node.devices.traits.images_use_host_memory
                else None
            )
            saved, on_the_way = (
                sum(one.memory.saved_mib for one in kernels),
                sum(one.memory.reserved_mib for one in kernels if one is not kernel),
            )
            problem = refusal(
                mib,
                saved,
                on_the_way,
                node.config.host_memory_mib,
                host,
                node.config.host_reserve_mib,
            )
            if not problem:
                kernel.memory.reserved_mib = mib
        return problem

    def _cannot(self, kernel: KernelRecord, why: str, until: int) -> None:
        kernel.memory.no_suspend_until, kernel.memory.no_suspend_reason = until, why
        log.warning(
            "kernel %s cannot be suspended: %s", kernel.kernel_id, why, extra=kernel.log_fields()
        )
        self._node.wake()

    async def _suspend(
        self, kernel: KernelRecord, asker: KernelRecord | None, reason: str, own: bool
    ) -> None:
        node, old, begun = self._node, kernel.assignment.current_gpus, self._node.clock()
        try:
            mib = await self._run(
                node.devices.suspend, kernel.kernel_id, lambda needed: self._admit(kernel, needed)
            )
        except CopyFailed as error:
            if error.lost:
                self._lost(kernel, str(error))
            self._cannot(kernel, str(error), NEVER if error.for_good else node.clock() + RETRY_MS)
            return
        finally:
            kernel.memory.transit = None
            node.wake()
        if mib:
            node.durations["suspend"].append(node.clock() - begun)
            node.happened(kernel, "suspended", node.text.suspended(mib, asker, reason, own))
        if kernel.notice.deadline is not None:
            kernel.notice = ReclaimNotice()
            node.ports.to_kernel(kernel.kernel_id, NoticeEnded(message=""))
        if kernel.computes(node.clock()) and not kernel.preferences.suspended_by_user:
            kernel.memory.stalled_since = node.clock()
        self.moved(kernel, old, asker)

    def moved(self, kernel: KernelRecord, old: tuple[int, ...], asker: KernelRecord | None) -> None:
        """Its memory has left its old place and its home is another one: it has moved."""
        if (
            old
            and kernel.assignment.assigned_gpus
            and kernel.assignment.assigned_gpus != old
            and kernel.assignment.attached
        ):
            kernel.assignment.generation += 1
            kernel.assignment.current_gpus = kernel.assignment.assigned_gpus
            self._node.dirty = True
            if asker is not None:
                self._node.rungs["moved"] += 1
            self._node.happened(
                kernel,
                "moved",
                self._node.text.moved(old, kernel.assignment.assigned_gpus, asker),
                tell=True,
            )

    def _lost(self, kernel: KernelRecord, problem: str) -> None:
        """The driver has its state no more: it is restarted, and its owner is told why."""
        kernel.process.unrestorable = problem
        self._node.happened(
            kernel,
            "lost",
            self._node.text.unrestorable(
                kernel.memory.saved_mib or kernel.memory.used_mib, problem
            ),
            tell=True,
        )

    async def _resume(self, kernel: KernelRecord, home: tuple[int, ...]) -> None:
        node, begun = self._node, self._node.clock()
        try:
            mib = await self._run(node.devices.resume, kernel.kernel_id, home)
        except CopyFailed as error:
            if not error.lost:  # it is as it was: the desk tries again
                log.warning(
                    "kernel %s is not resumed yet: %s",
                    kernel.kernel_id,
                    error,
                    extra=kernel.log_fields(),
                )
                kernel.memory.no_resume_until = node.clock() + RESUME_RETRY_MS
                return
            self._lost(kernel, str(error))
            return
        finally:
            kernel.memory.transit = None
            node.wake()
        kernel.preferences.suspended_by_user = False
        kernel.memory.stalled_since = None
        if mib:
            node.durations["resume"].append(node.clock() - begun)
            kernel.memory.resumed_text = node.text.resumed(mib, home, node.clock() - begun)
            node.happened(kernel, "resumed", kernel.memory.resumed_text)

    async def _recover(self, kernel: KernelRecord) -> None:
        try:
            await self._run(self._node.devices.recover, kernel.kernel_id)
        except CopyFailed as error:
            self._lost(kernel, str(error))
        finally:
            kernel.memory.transit = None
            self._node.wake()

    async def _run(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *args)
