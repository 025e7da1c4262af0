"""Registration, launch, watch, relaunch and end of kernels. Records of ended kernels are removed
after at most 10 s.

Jupyter calls no hook when a kernel dies for good or its server is killed, so the process is what
counts: a kernel whose process is gone and that is not registered again within the grace time is
over, and at once when the pod that it ran in is gone too. What is left of its process tree is
killed, and its lease is given back.
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

from ..socket.kernel_tokens import token_store
from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime, log
from ..system.process_owner import ProcessOwner
from ..system.processes import MARKER, ProcessId, WatchedProcess, find_launched
from .owner_presence import OwnerPresence
from .process_groups import ProcessGroups
from .ungated import UngatedKernels

__all__ = ["KernelLifecycle"]

STARTING_MS: Final = 60_000
"""A connected server that registered a kernel may take this long to launch it (a busy machine, a
slow image).
"""
MAX_KERNELS: Final = 512
"""Of one user or pod: registered kernels that are never launched must not fill the journal."""
KERNEL_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
LAUNCH: Final = re.compile(r"\.[0-9a-f]{1,64}")
"""What follows the kernel's id in the marker of a launch."""


class KernelLifecycle:
    """Follows the kernels of one node."""

    def __init__(self, node: NodeRuntime, process_groups: ProcessGroups) -> None:
        self._node, self._process_groups = node, process_groups
        self._ungated, self._owners = UngatedKernels(node), OwnerPresence()
        self._tokens = token_store(node.config)
        self._tasks = BackgroundTasks(log)

    # ---- registration and launch -----------------------------------------------------------------

    async def register(
        self,
        server: str,
        owner: ProcessOwner,
        body: RegisterKernel,
        ends_with: ProcessId | None = None,
    ) -> tuple[dict[str, str], str]:
        """Register a kernel of this owner that will be launched, or that runs already (`pid`).
        Returns the environment for its process, and its token if no file has it. `ends_with`: the
        process with which the kernel ends.

        Raises InvalidInput, and NotAllowed when it belongs to another owner.
        """
        if not KERNEL_ID.fullmatch(body.kernel_id):
            raise InvalidInput(
                f"a kernel id must be letters, digits, '-', '_' or '.', got {body.kernel_id!r}",
                field="kernel_id",
            )
        kernel = self._claim(body.kernel_id, owner)
        self._fill_in(kernel, server, body)
        kernel.registration.ends_with = ends_with
        if body.pid is not None:
            await self._recall(kernel, body)
            self._adopt(kernel, body.pid)
            self._node.wake()
            return {}, ""
        await self._end_older_launch(kernel)
        kernel.process.gone_at, kernel.process.starting = self._node.clock(), True
        return self._environment(kernel)

    def _fill_in(self, kernel: KernelRecord, server: str, body: RegisterKernel) -> None:
        registration = kernel.registration
        registration.server, registration.language = server, body.language
        registration.gate, registration.gate_reason = body.gate, body.gate_reason
        if body.gate != "bootstrap":
            registration.never_connected = False
        registration.name = body.name or registration.name
        registration.user = body.user or registration.user or self._unix_name(kernel)
        registration.registered = True
        kernel.request_state = body.request or kernel.request_state
        kernel.process.ending, kernel.published.key = False, None
        self._node.dirty = True

    def _unix_name(self, kernel: KernelRecord) -> str:
        """Where the users of the machine are known by the names of their accounts."""
        owner = kernel.registration.owner
        has_names = self._node.config.tenancy.has_unix_names
        return owner.account_name if has_names and owner is not None else ""

    async def _end_older_launch(self, kernel: KernelRecord) -> None:
        """What an older launch left running would hold memory that is not its own now."""
        process = kernel.process
        if process.launch and not (process.main is not None and process.main.is_alive()):
            await self._end_group(kernel, timeout_s=1.0)

    def _claim(self, kernel_id: str, owner: ProcessOwner) -> KernelRecord:
        """The record of that kernel, which is this owner's from now on. Another owner's kernel, and
        a command, cannot be claimed.
        """
        known = self._node.kernels.get(kernel_id)
        other = known.registration.owner if known is not None else None
        if other is None:
            other = self._tokens.owner(kernel_id)
        is_command = known is not None and known.lease is not None and not known.lease.kernel_id
        if is_command or other not in (None, owner):
            raise NotAllowed(
                f"kernel {kernel_id} belongs to another {owner.kind} of this node",
                field="kernel_id",
            )
        if known is None and self._count(owner) >= MAX_KERNELS:
            raise NotAllowed(
                f"too many kernels: one {owner.kind} may have {MAX_KERNELS} on a node",
                field="kernel_id",
            )
        kernel = self._node.open_kernel(kernel_id)
        kernel.registration.owner = owner
        return kernel

    def _count(self, owner: ProcessOwner) -> int:
        return sum(kernel.registration.owner == owner for kernel in self._node.kernels.values())

    def _environment(self, kernel: KernelRecord) -> tuple[dict[str, str], str]:
        issued = self._tokens.make(kernel)
        kernel.process.launch = f"{kernel.kernel_id}.{secrets.token_hex(6)}"
        self._process_groups.open(kernel)
        env = self._ungated.environment(kernel) | {
            "GPUSHARE_KERNEL_ID": kernel.kernel_id,
            "GPUSHARE_AGENT": str(self._node.config.socket_path()),
            MARKER: kernel.process.launch,
        }
        if issued.path is not None:
            env["GPUSHARE_TOKEN_FILE"] = str(issued.path)
        return env, issued.token

    async def _recall(self, kernel: KernelRecord, body: RegisterKernel) -> None:
        """A kernel that runs already: its token and the marker of its launch. Its server knows both
        when it made them while there was no agent.
        """
        registration, process = kernel.registration, kernel.process
        self._tokens.recall(kernel)
        registration.token = body.token_hash or registration.token
        if body.launch and body.launch != process.launch:
            if not LAUNCH.fullmatch(body.launch.removeprefix(kernel.kernel_id)):
                raise InvalidInput(f"a launch cannot be marked {body.launch!r}", field="launch")
            await self._end_older_launch(kernel)
            process.launch = body.launch

    def launched(self, body: KernelLaunched) -> None:
        """Its process runs."""
        kernel = self._node.kernels.get(body.kernel_id)
        if kernel is not None:
            self._adopt(kernel, body.pid)
            self._node.wake()

    def server_lost(self, server: str) -> None:
        """A disconnected server launches nothing: its kernels have the usual grace time."""
        for kernel in self._node.kernels.values():
            if kernel.registration.server == server:
                kernel.process.starting = False

    def _adopt(self, kernel: KernelRecord, pid: int) -> None:
        process = kernel.process
        ident = find_launched(pid, process.launch, kernel.registration.owner)
        process.starting = False
        if ident is None:
            process.gone_at = process.gone_at or self._node.clock()
        elif ident == process.main:
            process.gone_at = None
        else:
            relaunched = process.main is not None or process.relaunched
            self.watch(kernel, ident)
            kernel.process_started(self._node.clock(), relaunched=relaunched)

    def watch(self, kernel: KernelRecord, ident: ProcessId) -> None:
        """This is its process from now on."""
        kernel.process.stop_watching()
        kernel.process.follow(ident, WatchedProcess(ident, lambda: self._exited(kernel, ident)))
        self._process_groups.move_in(kernel, ident)
        self._node.dirty = True

    # ---- commands (batch work) -------------------------------------------------------------------

    def prepare(self, kernel: KernelRecord) -> dict[str, str]:
        """Environment variables of its command. It has no gate, so it gets no token."""
        self._process_groups.open(kernel)
        return self._ungated.environment(kernel) | {
            "GPUSHARE_KERNEL_ID": kernel.kernel_id,
            MARKER: kernel.process.launch,
        }

    def end_processes(self, kernel: KernelRecord) -> None:
        """Kill all of its processes; its record follows what happens."""
        self._tasks.spawn(self._kill_late(kernel, kernel.process.main, 0))

    async def end_launch(self, kernel: KernelRecord) -> bool:
        """End all processes of a command's launch and remove its cgroup; False if some are left."""
        kernel.process.stop_watching()
        if kernel.process.launch and not await self._end_group(kernel):
            log.error(
                "command %s: some of its processes cannot be killed",
                kernel.kernel_id,
                extra=kernel.log_fields(),
            )
            return False
        await self._process_groups.close_cgroup(kernel.process.cgroup)
        return True

    # ---- end -------------------------------------------------------------------------------------

    def gone(self, body: KernelGone) -> None:
        """Its server says that it is over: no grace time. While it restarts, its lease stays."""
        kernel = self._node.kernels.get(body.kernel_id)
        if kernel is None:
            return
        if not body.restarting:
            self._tasks.spawn(self._end(kernel, "The kernel was shut down."))
        elif kernel.process.main is not None:
            kernel.process.relaunched = True

    def _exited(self, kernel: KernelRecord, ident: ProcessId) -> None:
        process = kernel.process
        if process.main != ident:
            return
        node, memory = self._node, kernel.memory
        lost = max(memory.lost_mib, memory.used_mib + memory.saved_mib)
        announced = process.killing or process.relaunched or process.end_requested
        expected = announced or kernel.is_command
        if lost and not expected:
            node.record_event(kernel, "lost", node.text.lost(lost))
        kernel.process_exited(node.clock())
        node.dirty = True
        node.wake()

    def check(self, now: int) -> None:
        """End kernels that are gone for longer than the grace time; restart those whose saved
        memory cannot be restored.
        """
        self._ungated.check(now)
        for kernel in list(self._node.kernels.values()):
            process = kernel.process
            ended = self._end_reason(kernel, now)
            if ended and not process.ending:
                self._tasks.spawn(self._end(kernel, ended))
            if process.unrestorable and not process.killing and process.main is not None:
                self.kill(kernel, None, process.unrestorable)

    def _end_reason(self, kernel: KernelRecord, now: int) -> str:
        """Why this kernel is over; "": it is not."""
        ends_with = kernel.registration.ends_with
        if ends_with is not None and not ends_with.is_alive():
            return "The program that started the kernel has ended."
        return "The kernel's process is gone." if self._is_overdue(kernel, now) else ""

    def _is_overdue(self, kernel: KernelRecord, now: int) -> bool:
        if kernel.process.starting and kernel.has_pending_request:
            return False  # its server waits for the grant before it launches the kernel
        if kernel.process.main is not None or kernel.process.gone_at is None:
            return False
        if kernel.lease is not None and kernel.lease.kernel_id is None:
            return False  # a command: `batch` follows it
        if kernel.process.starting:
            return now - kernel.process.gone_at >= STARTING_MS
        if now - kernel.process.gone_at >= self._node.config.grace_ms:
            return True
        return self._owners.is_gone(kernel.registration.owner, now)

    async def _end(self, kernel: KernelRecord, message: str) -> None:
        if kernel.process.ending:
            return
        kernel.process.ending = True
        node = self._node
        if not await self._end_group(kernel):
            log.error(
                "kernel %s: some of its processes cannot be killed",
                kernel.kernel_id,
                extra=kernel.log_fields(),
            )
        if not kernel.process.ending:  # it was registered again meanwhile
            return
        kernel.process.stop_watching()
        lease = kernel.assignment.active_lease
        if lease is not None:
            node.release_lease(lease.id, ended=True, message=message)
        node.kernels.pop(kernel.kernel_id, None)
        self._tasks.spawn(self._process_groups.close_cgroup(kernel.process.cgroup))
        self._tokens.forget(kernel.kernel_id)
        node.dirty = True
        node.wake()

    # ---- kill ------------------------------------------------------------------------------------

    def kill(self, kernel: KernelRecord, asker: KernelRecord | None, reason: str) -> None:
        """End its running cell with a message, let its server restart it, and kill what is not
        gone by then.
        """
        if kernel.process.killing:
            return
        node, kernel_id = self._node, kernel.kernel_id
        text = self._kill_text(kernel, asker, reason)
        kernel.process.killing = True
        node.record_event(kernel, "killed", text)
        node.ports.to_kernel(kernel_id, EndCell(message=text))
        kernel.published.unsent.append(text)
        wait = node.config.kill_after_ms
        request = RelaunchKernel(kernel_id=kernel_id, message=text, deadline_ms=wait)
        asked = node.ports.to_server(kernel.registration.server, request)
        self._tasks.spawn(self._kill_late(kernel, kernel.process.main, wait if asked else 0))

    def _kill_text(self, kernel: KernelRecord, asker: KernelRecord | None, reason: str) -> str:
        node, memory = self._node, kernel.memory
        if kernel.is_command:
            return node.text.command_killed(kernel, asker, reason)
        problem = node.suspend_problem(kernel, node.clock()) or memory.no_suspend_reason
        mib = memory.used_mib + memory.saved_mib
        return node.text.killed(mib, kernel, asker, reason, problem)

    def shut_down(self, kernel: KernelRecord, text: str) -> None:
        """The idle rule's last step: its server shuts it down, or the agent ends it."""
        node, kernel_id = self._node, kernel.kernel_id
        node.record_event(kernel, "killed", text)
        wait = node.config.grace_ms
        request = EndKernel(kernel_id=kernel_id, message=text, deadline_ms=wait)
        asked = node.ports.to_server(kernel.registration.server, request)
        self._tasks.spawn(self._end_late(kernel, kernel.process.main, text, wait if asked else 0))

    async def _end_late(
        self, kernel: KernelRecord, main: ProcessId | None, message: str, wait_ms: int
    ) -> None:
        await self._wait_for_exit(main, wait_ms)
        if kernel.process.main is None or kernel.process.main == main:
            await self._end(kernel, message)

    async def _kill_late(self, kernel: KernelRecord, main: ProcessId | None, wait_ms: int) -> None:
        launch, cgroup, owner = (
            kernel.process.launch,
            kernel.process.cgroup,
            kernel.registration.owner,
        )
        await self._wait_for_exit(main, wait_ms)
        if not await self._process_groups.end(launch, main, cgroup, owner):
            log.error(
                "kernel %s cannot be killed: its GPU memory stays in use",
                kernel.kernel_id,
                extra=kernel.log_fields(),
            )
        self._node.wake()

    async def _wait_for_exit(self, main: ProcessId | None, wait_ms: int) -> None:
        deadline = self._node.clock() + wait_ms
        if main is None:
            return
        while main.is_alive() and self._node.clock() < deadline:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)

    async def _end_group(self, kernel: KernelRecord, *, timeout_s: float = 5.0) -> bool:
        process, owner = kernel.process, kernel.registration.owner
        return await self._process_groups.end(
            process.launch, process.main, process.cgroup, owner, timeout_s=timeout_s
        )

    async def close(self) -> None:
        """Stop watching; the kernels live on."""
        for kernel in self._node.kernels.values():
            kernel.process.stop_watching()
        await self._tasks.close()
