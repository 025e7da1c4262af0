"""Kernels come and go: registered, launched, watched by pidfd, relaunched, ended. A kernel that is
gone is not booked 10 s later.

Jupyter calls no hook when a kernel dies for good or its server is killed; so the truth is the
process. Gone and not registered again within the grace time: what is left of its process tree is
killed, and its lease is let go for good.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import Final

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.errors import InvalidInput, NotAllowed
from jupyter_gpushare.messages import (
    EndCell,
    EndKernel,
    KernelGone,
    KernelLaunched,
    RegisterKernel,
    RelaunchKernel,
)

from ..devices.base.model import TenantMemory
from ..socket.kernel_tokens import KernelTokens
from ..state.kernel_record import KernelRecord, about
from ..state.node import NodeRuntime, log
from ..system.processes import MARKER, ProcessId, WatchedProcess, here
from .process_groups import ProcessGroups

__all__ = ["KernelLifecycle"]

STARTING_MS: Final = 60_000
"""A connected server that registered a kernel may take this long to launch it (a busy machine, a
slow image).
"""
MOST_KERNELS: Final = 512
"""Of one user: what somebody registers and never launches must not fill the journal."""
HIDES, VISIBLE = "GPUSHARE_HIDES_GPUS", "CUDA_VISIBLE_DEVICES"
KERNEL_ID: Final = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")


class KernelLifecycle:
    """Who is here, and what happens when somebody is not any more."""

    def __init__(self, node: NodeRuntime, enclosures: ProcessGroups) -> None:
        self._node, self._enclosures = node, enclosures
        self._tokens = KernelTokens(
            node.config.doors() / "tokens", shared=node.config.users == "all"
        )
        self._tasks = BackgroundTasks(log)

    # ---- coming ----------------------------------------------------------------------------------

    async def register(self, server: str, uid: int, body: RegisterKernel) -> dict[str, str]:
        """A kernel of this user will be launched, or runs already (`pid`): the environment that its
        process gets.

        Raises InvalidInput, NotAllowed (it is somebody else's).
        """
        if not KERNEL_ID.match(body.kernel_id):
            raise InvalidInput(
                f"a kernel id must be letters, digits, '-', '_' or '.', got {body.kernel_id!r}",
                field="kernel_id",
            )
        node = self._node
        book = self._claimed(body.kernel_id, uid)
        book.server, book.name, book.user, book.language = (
            server,
            body.name or book.name,
            body.user or book.user,
            body.language,
        )
        book.wants_gpu, book.registered, book.ending, node.dirty = body.wants_gpu, True, False, True
        book.last_key = None
        if body.pid is not None:
            self._tokens.recall(book)
            self._adopt(book, body.pid)
            node.wake()
            return {}
        if book.launch and not (book.main is not None and book.main.is_alive()):
            # What the old launch left behind holds memory that is not its own now.
            await self._enclosures.end(book.launch, book.main, book.leaf, book.uid, timeout_s=1.0)
        book.gone_at, book.starting = node.clock(), True
        return self._environment(book)

    def _claimed(self, kernel_id: str, uid: int) -> KernelRecord:
        """The book of that kernel, which is this user's from now on. Nobody takes over what was
        somebody else's, nor a command.
        """
        found = self._node.books.get(kernel_id)
        owner = (
            found.uid
            if found is not None and found.uid is not None
            else self._tokens.owner(kernel_id)
        )
        if (owner is not None and owner != uid) or (
            found is not None and found.lease is not None and found.lease.kernel_id is None
        ):
            raise NotAllowed(
                f"kernel {kernel_id} belongs to somebody else on this node", field="kernel_id"
            )
        if (
            found is None
            and sum(book.uid == uid for book in self._node.books.values()) >= MOST_KERNELS
        ):
            raise NotAllowed(
                f"one user may have {MOST_KERNELS} kernels on a node", field="kernel_id"
            )
        book = self._node.book(kernel_id)
        book.uid = uid
        return book

    def _environment(self, book: KernelRecord) -> dict[str, str]:
        node, path = self._node, self._tokens.make(book)
        book.launch = f"{book.kernel_id}.{secrets.token_hex(6)}"
        self._enclosures.open(book)
        return self._visible(book) | {
            "GPUSHARE_KERNEL_ID": book.kernel_id,
            "GPUSHARE_AGENT": str(node.config.socket_path()),
            "GPUSHARE_TOKEN_FILE": str(path),
            MARKER: book.launch,
        }

    def _visible(self, book: KernelRecord) -> dict[str, str]:
        """Who has our extension chooses its GPUs when it has a share; others see those of the share
        that they have when they start.
        """
        found = self._node.devices.environment()
        if HIDES in found and book.language.lower() != "python":
            del found[HIDES], found[VISIBLE]
            found |= (
                {VISIBLE: ",".join(self._node.uuids[gpu] for gpu in book.home)} if book.home else {}
            )
        return found

    def launched(self, body: KernelLaunched) -> None:
        """Its process runs."""
        book = self._node.books.get(body.kernel_id)
        if book is not None:
            self._adopt(book, body.pid)
            self._node.wake()

    def server_lost(self, server: str) -> None:
        """A server that is gone launches nothing any more: its kernels in the making have the usual
        grace.
        """
        for book in self._node.books.values():
            if book.server == server:
                book.starting = False

    def _adopt(self, book: KernelRecord, pid: int) -> None:
        ident, book.starting = here(pid, book.launch, book.uid), False
        if ident is None:
            book.gone_at = book.gone_at or self._node.clock()
            return
        if ident == book.main:
            book.gone_at = None
            return
        relaunched = book.main is not None or book.relaunched
        self.watch(book, ident)
        self._start_anew(book, relaunched)

    def watch(self, book: KernelRecord, ident: ProcessId) -> None:
        """This is its process from now on."""
        if book.watch is not None:
            book.watch.close()
        book.main, book.gone_at = ident, None
        book.watch = WatchedProcess(ident, lambda: self._died(book, ident))
        self._enclosures.move_in(book, ident)
        self._node.dirty = True

    def _start_anew(self, book: KernelRecord, relaunched: bool) -> None:
        """Nothing of an older process counts for the new one."""
        book.launched_at = book.idle_since = self._node.clock()
        book.cells, book.question, book.stalled, book.caches, book.notice, book.notice_stamp = (
            set(),
            None,
            None,
            None,
            None,
            None,
        )
        book.no_suspend_until, book.no_suspend_why, book.unrestorable = 0, "", ""
        book.killing, book.held_back, book.ever_connected = False, False, book.connected
        book.holding = TenantMemory()
        book.relaunched = relaunched and book.lease is not None
        book.attached, book.entering, book.entered, book.bound = False, None, False, ()

    # ---- commands (batch work) -------------------------------------------------------------------

    def prepare(self, book: KernelRecord) -> dict[str, str]:
        """What the environment of its command must say. It has no gate, so it gets no token."""
        self._enclosures.open(book)
        return self._visible(book) | {"GPUSHARE_KERNEL_ID": book.kernel_id, MARKER: book.launch}

    def end_processes(self, book: KernelRecord) -> None:
        """Kill its whole tree."""
        self._tasks.spawn(self._kill_late(book, book.main, 0))

    def leave(self, book: KernelRecord) -> None:
        """Its command is over, and its book closed: what it left running is killed, its enclosure
        taken away.
        """
        if book.watch is not None:
            book.watch.close()
        self._tasks.spawn(self._clear(book.launch, book.main, book.leaf, book.uid))
        self._node.dirty = True

    async def _clear(self, launch: str, main: ProcessId | None, leaf: str, uid: int | None) -> None:
        if launch:
            await self._enclosures.end(launch, main, leaf, uid)
        await self._enclosures.close_leaf(leaf)

    # ---- going -----------------------------------------------------------------------------------

    def gone(self, body: KernelGone) -> None:
        """Its server says that it is over: nothing to wait for. While it restarts, its lease stays."""
        book = self._node.books.get(body.kernel_id)
        if book is None:
            return
        if not body.restarting:
            self._tasks.spawn(self._end(book, "The kernel was shut down."))
        elif book.main is not None:
            book.relaunched = True

    def _died(self, book: KernelRecord, ident: ProcessId) -> None:
        if book.main != ident:
            return
        node, held = self._node, book.held() + book.image()
        if held and not book.killing and not book.relaunched and not book.is_command:
            node.happened(book, "lost", node.story.lost(held))
        book.main, book.watch, book.gone_at = None, None, node.clock()
        book.cells, book.question, book.stalled, book.killing, book.connected = (
            set(),
            None,
            None,
            False,
            False,
        )
        book.attached, book.entering, book.relaunched = False, None, True
        book.notice, book.notice_stamp, book.unrestorable = None, None, ""
        node.dirty = True
        node.wake()

    def check(self, now: int) -> None:
        """End whoever is gone for longer than the grace time."""
        for book in list(self._node.books.values()):
            grace = STARTING_MS if book.starting else self._node.config.grace_ms
            overdue = book.gone_at is not None and now - book.gone_at >= grace
            if (
                overdue
                and book.main is None
                and not book.ending
                and (book.lease is None or book.lease.kernel_id is not None)
            ):
                self._tasks.spawn(self._end(book, "The kernel's process is gone."))
            if book.unrestorable and not book.killing and book.main is not None:
                self.kill(book, None, book.unrestorable)

    async def _end(self, book: KernelRecord, message: str) -> None:
        if book.ending:
            return
        book.ending = True
        node = self._node
        if not await self._enclosures.end(book.launch, book.main, book.leaf, book.uid):
            log.error(
                "kernel %s: processes are left that do not die", book.kernel_id, extra=about(book)
            )
        if not book.ending:  # it was registered again meanwhile
            return
        if book.watch is not None:
            book.watch.close()
        if book.lease is not None and not book.unwanted:
            node.let_go(book.lease.id, ended=True, message=message)
        node.books.pop(book.kernel_id, None)
        self._tasks.spawn(self._enclosures.close_leaf(book.leaf))
        self._tokens.forget(book.kernel_id)
        node.dirty = True
        node.wake()

    # ---- the last rung ---------------------------------------------------------------------------

    def kill(self, book: KernelRecord, asker: KernelRecord | None, reason: str) -> None:
        """End its running cell with a sentence, let its server restart it, and kill what is not
        gone by then.
        """
        if book.killing:
            return
        node = self._node
        why_not = node.unsavable(book, node.clock()) or book.no_suspend_why
        text = node.story.killed(book.held() + book.image(), asker, reason, why_not)
        if book.is_command:
            text = node.story.command_killed(asker, reason)
        book.killing = True
        node.happened(book, "killed", text, tell=False)
        node.ports.to_kernel(book.kernel_id, EndCell(message=text))
        book.told.append(text)
        wait = node.config.kill_after_ms
        asked = node.ports.to_server(
            book.server, RelaunchKernel(kernel_id=book.kernel_id, message=text, deadline_ms=wait)
        )
        self._tasks.spawn(self._kill_late(book, book.main, wait if asked else 0))

    def shut_down(self, book: KernelRecord, text: str) -> None:
        """The idle rule's last step: its server ends it the Jupyter way, or we do."""
        node = self._node
        node.happened(book, "killed", text)
        wait = node.config.grace_ms
        asked = node.ports.to_server(
            book.server, EndKernel(kernel_id=book.kernel_id, message=text, deadline_ms=wait)
        )
        self._tasks.spawn(self._end_late(book, book.main, text, wait if asked else 0))

    async def _end_late(
        self, book: KernelRecord, main: ProcessId | None, message: str, wait_ms: int
    ) -> None:
        deadline = self._node.clock() + wait_ms
        while main is not None and main.is_alive() and self._node.clock() < deadline:  # noqa: ASYNC110 - a process is no event
            await asyncio.sleep(0.05)
        if book.main is None or book.main == main:
            await self._end(book, message)

    async def _kill_late(self, book: KernelRecord, main: ProcessId | None, wait_ms: int) -> None:
        launch, leaf, uid = book.launch, book.leaf, book.uid
        deadline = self._node.clock() + wait_ms
        while main is not None and main.is_alive() and self._node.clock() < deadline:  # noqa: ASYNC110 - a process is no event
            await asyncio.sleep(0.01)
        if not await self._enclosures.end(launch, main, leaf, uid):
            log.error(
                "kernel %s does not die: its GPU memory stays booked",
                book.kernel_id,
                extra=about(book),
            )
        self._node.wake()

    async def close(self) -> None:
        """Stop watching; the kernels live on."""
        for book in self._node.books.values():
            if book.watch is not None:
                book.watch.close()
        await self._tasks.close()
