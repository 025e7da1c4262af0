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
from ..state.kernel_record import KernelRecord, about
from ..state.node import NodeRuntime, log
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
        self, book: KernelRecord, asker: KernelRecord | None, reason: str, *, own: bool = False
    ) -> None:
        """Start saving; `own`: its owner (or its own next cell) wants it."""
        if book.transit is not None:
            return
        tiers, problems = self._node.devices.capabilities()
        if "suspend" not in tiers:  # asked again later: the self-test may still be on its way
            self._cannot(
                book,
                problems.get("suspend", "this node cannot save GPU memory").partition(";")[0],
                self._node.clock() + RETRY_MS,
            )
            return
        book.transit = "out"
        self._start(book, self._suspend(book, asker, reason, own))

    def resume(self, book: KernelRecord, home: Sequence[int]) -> None:
        """Start bringing it back onto these GPUs; the caller has noted that it is on its way in."""
        self._start(book, self._resume(book, tuple(home)))

    def settle(self, book: KernelRecord) -> None:
        """Finish or undo what a dead agent left half done."""
        if book.transit is None:
            book.transit = "out"
            self._start(book, self._settle(book))

    async def close(self) -> None:
        """Wait for the copies under way: half a copy is worse than a slow stop. A copy that hangs
        in the driver is left after 10 s.
        """
        await self._tasks.wait(timeout_s=10)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, book: KernelRecord, work: Coroutine[None, None, None]) -> None:
        book.copying_since = self._node.clock()
        self._tasks.spawn(work)

    def _admit(self, book: KernelRecord, mib: int) -> str:
        """Why the host has no memory for an image of this size; if it has, it is promised. In the
        copy's thread.

        Images outside host memory count against the stated budget only.
        """
        node = self._node
        with self._ledger:
            books = list(node.books.values())
            host = (
                read_host(pid for pid, _ in book.holding.processes)
                if node.devices.traits.images_use_host_memory
                else None
            )
            saved, on_the_way = (
                sum(one.image() for one in books),
                sum(one.promised for one in books if one is not book),
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
                book.promised = mib
        return problem

    def _cannot(self, book: KernelRecord, why: str, until: int) -> None:
        book.no_suspend_until, book.no_suspend_why = until, why
        log.warning("kernel %s cannot be suspended: %s", book.kernel_id, why, extra=about(book))
        self._node.wake()

    async def _suspend(
        self, book: KernelRecord, asker: KernelRecord | None, reason: str, own: bool
    ) -> None:
        node, old, begun = self._node, book.site, self._node.clock()
        try:
            mib = await self._run(
                node.devices.suspend, book.kernel_id, lambda needed: self._admit(book, needed)
            )
        except CopyFailed as error:
            if error.lost:
                self._lost(book, str(error))
            self._cannot(book, str(error), NEVER if error.for_good else node.clock() + RETRY_MS)
            return
        finally:
            book.transit = None
            node.wake()
        if mib:
            node.took["suspend"].append(node.clock() - begun)
            node.happened(book, "suspended", node.story.suspended(mib, asker, reason, own))
        if book.notice is not None:
            book.notice, book.notice_stamp = None, None
            node.ports.to_kernel(book.kernel_id, NoticeEnded(message=""))
        if book.computes(node.clock()) and not book.held_back:
            book.stalled = node.clock()
        self.moved(book, old, asker)

    def moved(self, book: KernelRecord, old: tuple[int, ...], asker: KernelRecord | None) -> None:
        """Its memory has left its old place and its home is another one: it has moved."""
        if old and book.home and book.home != old and book.attached:
            book.generation += 1
            book.site = book.home
            self._node.dirty = True
            if asker is not None:
                self._node.rungs["moved"] += 1
            self._node.happened(
                book, "moved", self._node.story.moved(old, book.home, asker), tell=True
            )

    def _lost(self, book: KernelRecord, problem: str) -> None:
        """The driver has its state no more: it is restarted, and its owner is told why."""
        book.unrestorable = problem
        self._node.happened(
            book,
            "lost",
            self._node.story.unrestorable(book.image() or book.held(), problem),
            tell=True,
        )

    async def _resume(self, book: KernelRecord, home: tuple[int, ...]) -> None:
        node, begun = self._node, self._node.clock()
        try:
            mib = await self._run(node.devices.resume, book.kernel_id, home)
        except CopyFailed as error:
            if not error.lost:  # it is as it was: the desk tries again
                log.warning(
                    "kernel %s is not resumed yet: %s", book.kernel_id, error, extra=about(book)
                )
                book.no_resume_until = node.clock() + RESUME_RETRY_MS
                return
            self._lost(book, str(error))
            return
        finally:
            book.transit = None
            node.wake()
        book.held_back = False
        book.stalled = None
        if mib:
            node.took["resume"].append(node.clock() - begun)
            book.resumed = node.story.resumed(mib, home, node.clock() - begun)
            node.happened(book, "resumed", book.resumed)

    async def _settle(self, book: KernelRecord) -> None:
        try:
            await self._run(self._node.devices.recover, book.kernel_id)
        except CopyFailed as error:
            self._lost(book, str(error))
        finally:
            book.transit = None
            self._node.wake()

    async def _run(self, call: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, *args)
