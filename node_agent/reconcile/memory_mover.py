"""Copies between GPU and host memory: suspend, resume, recover. Each runs in a thread, one at a
time per kernel, within the host's memory.

The event loop only starts a copy and is notified of its end. The devices undo what fails; here a
failure becomes a pause before the next try, or the note that this kernel cannot be saved, and then
the reclaim ladder takes the next rung.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
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
"""Pause after a failed suspension: a process that did not quiesce in time may be in the middle of a
long GPU kernel.
"""
RESUME_RETRY_MS: Final = 500
"""Pause after a resume for which there was no room in fact: each try quiesces the neighbours."""
THREADS: Final = 8
CLOSE_S: Final = 10.0


class MemoryMover:
    """Moves the memory of one node's kernels."""

    def __init__(self, node: NodeRuntime) -> None:
        self._node = node
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="gpushare-copy")
        self._tasks = BackgroundTasks(log)
        self._host_lock = threading.Lock()
        """Two copies must not reserve the same host memory."""

    # ---- start -----------------------------------------------------------------------------------

    def suspend(
        self,
        kernel: KernelRecord,
        asker: KernelRecord | None,
        reason: str,
        *,
        requested: bool = False,
    ) -> None:
        """Start saving; `requested`: its user (or its own next cell) wants it."""
        if kernel.memory.transit is not None:
            return
        if problem := self._node.missing_suspend():
            # tried again later: the self-test may still be running
            self._forbid(kernel, problem, self._node.clock() + RETRY_MS)
            return
        kernel.memory.transit = "out"
        self._start(kernel, self._suspend(kernel, asker, reason, requested))

    def resume(self, kernel: KernelRecord, gpus: tuple[int, ...]) -> None:
        """Start restoring onto these GPUs; the caller has set `transit` to `in`."""
        self._start(kernel, self._resume(kernel, gpus))

    def recover(self, kernel: KernelRecord) -> None:
        """Finish or undo what an earlier agent left half done."""
        if kernel.memory.transit is None:
            kernel.memory.transit = "out"
            self._start(kernel, self._recover(kernel))

    async def close(self) -> None:
        """Wait for the copies in progress: half a copy is worse than a slow stop. A copy that hangs
        in the driver is abandoned after 10 s.
        """
        await self._tasks.wait(CLOSE_S)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, kernel: KernelRecord, work: Coroutine[None, None, None]) -> None:
        kernel.memory.copying_since = self._node.clock()
        self._tasks.spawn(work)

    # ---- suspend ---------------------------------------------------------------------------------

    def _reserve(self, kernel: KernelRecord, mib: int) -> str:
        """Reserve host memory for an image of this size. Returns the problem if there is not
        enough. Called in the copy's thread.
        """
        node = self._node
        with self._host_lock:
            memories = [other.memory for other in list(node.kernels.values())]
            others = [memory for memory in memories if memory is not kernel.memory]
            problem = refusal(
                mib,
                sum(memory.saved_mib for memory in memories),
                sum(memory.reserved_mib for memory in others),
                node.config.host_memory_mib,
                read_host(pid for pid, _ in kernel.memory.usage.processes)
                if node.devices.traits.images_use_host_memory
                else None,
                node.config.host_reserve_mib,
            )
            if not problem:
                kernel.memory.reserved_mib = mib
        return problem

    def host_problem(self, kernel: KernelRecord) -> str:
        """Why its memory, with that of all kernels that gave way, could not be saved now; "" if it
        can.
        """
        node, memory = self._node, kernel.memory
        others = [
            one.memory for one in node.kernels.values() if one is not kernel and one.is_parked
        ]
        parked = sum(other.used_mib for other in others if other.transit is None)
        uses_host = node.devices.traits.images_use_host_memory
        if not memory.used_mib or (not uses_host and node.config.host_memory_mib is None):
            return ""
        memories = [one.memory for one in node.kernels.values()]
        return refusal(
            memory.used_mib,
            sum(one.saved_mib for one in memories),
            sum(one.reserved_mib for one in memories) + parked,
            node.config.host_memory_mib,
            read_host(pid for pid, _ in memory.usage.processes) if uses_host else None,
            node.config.host_reserve_mib,
        )

    def _forbid(self, kernel: KernelRecord, problem: str, until: int) -> None:
        kernel.memory.forbid_suspend(until, problem)
        fields = kernel.log_fields()
        log.warning("kernel %s cannot be suspended: %s", kernel.kernel_id, problem, extra=fields)
        self._node.wake()

    async def _suspend(
        self, kernel: KernelRecord, asker: KernelRecord | None, reason: str, requested: bool
    ) -> None:
        node, old, begun = self._node, kernel.assignment.current_gpus, self._node.clock()
        kernel_id = kernel.kernel_id
        try:
            mib = await self._run(
                node.devices.suspend, kernel_id, lambda needed: self._reserve(kernel, needed)
            )
        except CopyFailed as error:
            if error.lost:
                self._note_loss(kernel, str(error))
            until = NEVER if error.for_good else node.clock() + RETRY_MS
            self._forbid(kernel, str(error), until)
            return
        finally:
            kernel.memory.transit = None
            node.wake()
        if mib:
            node.copied(mib, node.clock() - begun)
            node.durations["suspend"].append(node.clock() - begun)
            text = node.text.suspended(mib, kernel, asker, reason, requested)
            node.record_event(kernel, "suspended", text)
        if kernel.notice.deadline is not None:
            kernel.notice = ReclaimNotice()
            node.ports.to_kernel(kernel_id, NoticeEnded(message=""))
        if kernel.computes(node.clock()) and not kernel.preferences.suspended_by_user:
            kernel.memory.stalled_since = node.clock()
        self.note_move(kernel, old, asker)

    def note_move(
        self, kernel: KernelRecord, old: tuple[int, ...], asker: KernelRecord | None
    ) -> None:
        """Its memory has left its old GPUs. If it is assigned to others, it has moved."""
        new = kernel.assignment.assigned_gpus
        if not old or not new or new == old or not kernel.assignment.attached:
            return
        kernel.assignment.arrive()
        self._node.dirty = True
        if asker is not None:
            self._node.reclaims["moved"] += 1
        text = self._node.text.moved(old, new, asker, kernel)
        self._node.record_event(kernel, "moved", text, notify=True)

    def _note_loss(self, kernel: KernelRecord, problem: str) -> None:
        """The driver has lost its state: it has to be restarted."""
        kernel.process.unrestorable = problem
        mib = kernel.memory.saved_mib or kernel.memory.used_mib
        text = self._node.text.unrestorable(mib, problem)
        self._node.record_event(kernel, "lost", text, notify=True)

    # ---- resume ----------------------------------------------------------------------------------

    async def _resume(self, kernel: KernelRecord, gpus: tuple[int, ...]) -> None:
        node, begun = self._node, self._node.clock()
        try:
            mib = await self._run(node.devices.resume, kernel.kernel_id, gpus)
        except CopyFailed as error:
            if error.lost:
                self._note_loss(kernel, str(error))
            else:
                self._retry_resume(kernel, str(error))
            return
        finally:
            kernel.memory.transit = None
            node.wake()
        kernel.preferences.suspended_by_user = False
        kernel.memory.stalled_since = None
        kernel.residence.begin(node.clock())
        kernel.turn.begin(node.clock())
        if mib:
            took = node.clock() - begun
            node.copied(mib, took)
            node.durations["resume"].append(took)
            kernel.memory.resumed_text = node.text.resumed(mib, gpus, took)
            node.record_event(kernel, "resumed", kernel.memory.resumed_text)

    def _retry_resume(self, kernel: KernelRecord, problem: str) -> None:
        """It is as it was before."""
        fields = kernel.log_fields()
        log.warning("kernel %s is not resumed yet: %s", kernel.kernel_id, problem, extra=fields)
        kernel.memory.no_resume_until = self._node.clock() + RESUME_RETRY_MS

    async def _recover(self, kernel: KernelRecord) -> None:
        try:
            await self._run(self._node.devices.recover, kernel.kernel_id)
        except CopyFailed as error:
            self._note_loss(kernel, str(error))
        finally:
            kernel.memory.transit = None
            self._node.wake()

    async def _run(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *args)
