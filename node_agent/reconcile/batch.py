"""Batch work: runs the command of every lease that has one, reports its output and its end.

A command is a tenant like a kernel: it has a record, a process tree and GPUs, and the reclaim
ladder knows it as a tenant that always runs. This file holds what differs: the agent starts it,
sends SIGTERM before it is killed, and starts it again when it was killed to make room.

The agent may die at any moment. So the journal has the marker of a launch before its process
exists, and the process id before the command runs; and it has the end of a command before its files
are removed. A record without a lease is removed only when no process of its launch is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import secrets
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.messages import LeaseBody, LogAcknowledged, LogChunk, stamp

from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime, log
from ..state.wall_clock import wall_ms
from ..system.process_owner import UnixUser
from ..system.processes import ProcessId, process_at
from .command_run import CommandRun, command_dirs, remove_files
from .command_start import Launcher, command_user, is_agent_user, spawn_launcher
from .lifecycle import KernelLifecycle

__all__ = ["BatchRunner"]

STEP_S: Final = 0.25
CHUNK_BYTES: Final = 2**15
RESEND_MS: Final = 5_000
"""After so long a part of the log that was not acknowledged is sent again."""
FLUSH_MS: Final = 30_000
"""How long the end of a command waits for the rest of its log to be acknowledged."""
STOP_MS: Final = 5_000
"""How long a cancelled command may take to end after SIGTERM."""
CANNOT_RUN: Final = 126
"""Exit status of a command that could not be started, as in a shell."""
KILLED: Final = 137
MIN_LOG_BYTES: Final = 2**20


class BatchRunner:
    """The commands of one node. `step` is called a few times a second and never blocks. `keep`
    writes the journal.
    """

    def __init__(
        self, node: NodeRuntime, lifecycle: KernelLifecycle, keep: Callable[[], None]
    ) -> None:
        self._node, self._lifecycle, self._keep = node, lifecycle, keep
        self._runs: dict[str, CommandRun] = {}
        self._clearing: set[str] = set()
        """Records whose processes are being ended."""
        self._tasks = BackgroundTasks(log)

    async def run(self) -> None:
        """Run forever."""
        while True:
            self.step(self._node.clock())
            await asyncio.sleep(STEP_S)

    async def close(self) -> None:
        """Follow commands no longer; they continue."""
        await self._tasks.close()

    def acknowledged(self, body: LogAcknowledged) -> None:
        """The scheduler has stored a log up to here."""
        run = self._runs.get(body.lease)
        if run is not None:
            run.acknowledged, run.sent_at = body.stop, None
            self._send_log(run, self._node.clock())

    def step(self, now: int) -> None:
        """Start, follow and end commands."""
        self._reap()
        for kernel in list(self._node.kernels.values()):
            lease = kernel.lease
            if lease is None:
                self._remove_ended(kernel)
            elif lease.command is not None and lease.id not in self._runs:
                self._begin(kernel, lease)
        for run in list(self._runs.values()):
            self._follow(run, now)
        self._bound_logs()

    # ---- follow ----------------------------------------------------------------------------------

    def _begin(self, kernel: KernelRecord, lease: LeaseBody) -> None:
        run, kernel.registration.language = self._new_run(lease), "command"
        assignment = kernel.assignment
        if kernel.process.main is not None or run.started_file.exists():
            self._runs[lease.id] = run  # an earlier agent started it, and it may be over since
        elif kernel.process.launch:
            self._clear(kernel)  # what is left of a launch that never ran, or was killed
        elif assignment.active_lease is None or assignment.evicted:
            return  # never started: there is nothing to end
        elif assignment.attached or not lease.planned_gpus:
            self._start(kernel, lease)

    def _follow(self, run: CommandRun, now: int) -> None:
        kernel = self._node.kernels.get(run.lease.id)
        if kernel is None:
            self._forget(run)
            return
        has_lease, evicted = kernel.assignment.active_lease is not None, kernel.assignment.evicted
        if kernel.process.main is not None:
            self._send_log(run, now)
            if not has_lease or evicted:
                self._stop(run, kernel, now)
        elif not has_lease:
            self._forget(run)
        elif evicted and (run.kill_at is not None or run.exit_code() is None):
            return  # the reclaim ladder releases the lease, now that nothing is held
        else:
            self._ended(run, kernel, now)

    def _ended(self, run: CommandRun, kernel: KernelRecord, now: int) -> None:
        """Its process is gone, without a request of the agent."""
        code = run.exit_code()
        if code is None and self._was_killed(run, kernel):
            text = "The command was stopped to make room and starts again from the beginning."
            self._restart(run, kernel, text)
            return
        if code is None and not run.pid and not run.started_file.exists():
            self._restart(run, kernel)  # an earlier agent died before the command ran
            return
        run.over_at = now if run.over_at is None else run.over_at
        self._send_log(run, now)
        if run.acknowledged < run.log_size() and now - run.over_at < FLUSH_MS:
            return
        if code is None:
            self._end(run, KILLED, _unknown_end(run))
        else:
            self._end(run, code, self._start_error(run) if code == CANNOT_RUN else "")

    def _start_error(self, run: CommandRun) -> str:
        """A command may exit with 126 itself; then there is no reason."""
        problem, name = run.error(), self._node.config.node
        return f"The command could not be started on node {name}: {problem}." if problem else ""

    @staticmethod
    def _was_killed(run: CommandRun, kernel: KernelRecord) -> bool:
        """Whether the agent killed this run to make room."""
        events = kernel.published.events
        return any(event.kind == "killed" and event.time >= run.begun for event in events)

    def _restart(self, run: CommandRun, kernel: KernelRecord, text: str = "") -> None:
        """It starts again as soon as it is attached again."""
        if text:
            self._node.record_event(kernel, "reattached", text)
        self._forget(run)
        kernel.process.gone_at, kernel.process.relaunched = None, False
        self._node.dirty = True
        self._node.wake()

    def _end(self, run: CommandRun, code: int, message: str) -> None:
        node = self._node
        node.release_lease(run.lease.id, ended=True, message=message, exit_code=code)
        kernel = node.kernels.get(run.lease.id)
        if kernel is not None:
            kernel.drop_lease()
        self._keep()  # before the files are gone: without them, the command would run again
        self._forget(run)
        node.wake()

    def _stop(self, run: CommandRun, kernel: KernelRecord, now: int) -> None:
        """First SIGTERM, then SIGKILL."""
        if run.kill_at is None:
            lease = kernel.assignment.active_lease
            run.kill_at = now + (lease.notice_ms if lease is not None else STOP_MS)
        if not run.terminated:
            run.terminated = _terminate(kernel)
        if now >= run.kill_at:
            run.kill_at = now + STOP_MS
            self._lifecycle.end_processes(kernel)

    def _forget(self, run: CommandRun) -> None:
        self._runs.pop(run.lease.id, None)
        run.remove_files()

    # ---- remove ----------------------------------------------------------------------------------

    def _remove_ended(self, kernel: KernelRecord) -> None:
        """Its lease is over, and no run follows it any more."""
        registration = kernel.registration
        is_command = registration.language == "command" and not registration.registered
        if is_command and kernel.kernel_id not in self._runs:
            self._clear(kernel)

    def _clear(self, kernel: KernelRecord) -> None:
        if kernel.kernel_id not in self._clearing:
            self._clearing.add(kernel.kernel_id)
            self._tasks.spawn(self._end_launch(kernel))

    async def _end_launch(self, kernel: KernelRecord) -> None:
        """End all processes of its launch. The record of an ended lease is removed after that."""
        try:
            if not await self._lifecycle.end_launch(kernel):
                return  # tried again at the next step
        finally:
            self._clearing.discard(kernel.kernel_id)
        kernel.process.launch, kernel.process.cgroup = "", ""
        if kernel.lease is None:
            remove_files(*command_dirs(self._node.config.state_dir, kernel.kernel_id))
            self._node.kernels.pop(kernel.kernel_id, None)
        self._node.dirty = True
        self._node.wake()

    # ---- start -----------------------------------------------------------------------------------

    def _new_run(self, lease: LeaseBody) -> CommandRun:
        config = self._node.config
        folder, users_folder = command_dirs(config.state_dir, lease.id)
        is_theirs = config.run_commands == "users" and not is_agent_user(lease.user)
        return CommandRun(lease, folder, (users_folder if is_theirs else folder) / "status")

    def _start(self, kernel: KernelRecord, lease: LeaseBody) -> None:
        node, run = self._node, self._new_run(lease)
        run.begun = stamp(wall_ms())
        run.remove_files()
        try:
            user = command_user(lease.user, node.config)
            environment = self._prepare(kernel, lease, user)
            self._keep()
            if node.dirty:
                return  # the journal cannot be written: tried again at the next step
            assert lease.command is not None
            launcher = spawn_launcher(run, lease.command, environment, user)
        except (OSError, ValueError) as error:
            problem = f"The command could not be started on node {node.config.node}: {error}."
            self._end(run, CANNOT_RUN, problem)
            return
        self._launch(run, kernel, launcher)

    def _prepare(
        self, kernel: KernelRecord, lease: LeaseBody, user: pwd.struct_passwd | None
    ) -> dict[str, str]:
        """Note whose it is and how its processes are marked; returns its environment."""
        registration = kernel.registration
        registration.user, registration.name = lease.user, lease.name
        registration.owner = UnixUser(os.geteuid() if user is None else user.pw_uid)
        kernel.process.launch = f"batch.{secrets.token_hex(8)}"
        pod = {"GPUSHARE_WORKLOAD": lease.workload, "GPUSHARE_POD": lease.pod}
        self._node.dirty = True
        return pod | self._lifecycle.prepare(kernel)

    def _launch(self, run: CommandRun, kernel: KernelRecord, launcher: Launcher) -> None:
        """The launcher runs: the journal gets its process id, then it may become the command."""
        node = self._node
        run.pid = launcher.pid
        try:
            ident = process_at(launcher.pid) or ProcessId(launcher.pid, 0)
            self._lifecycle.watch(kernel, ident)
            kernel.process.launched_at = node.clock()
            self._runs[run.lease.id] = run
            self._keep()
            launcher.go()
        finally:
            launcher.close()
        node.record_event(kernel, "attached", f"Running on {node.config.node}.")

    def _reap(self) -> None:
        """Collect how the shells of commands ended."""
        for run in self._runs.values():
            if run.pid and run.wait_status is None:
                with contextlib.suppress(ChildProcessError):
                    pid, status = os.waitpid(run.pid, os.WNOHANG)
                    run.wait_status = status if pid else None

    # ---- output ----------------------------------------------------------------------------------

    def _send_log(self, run: CommandRun, now: int) -> None:
        """Send the next part of the log, one at a time."""
        if run.sent_at is not None and now - run.sent_at < RESEND_MS:
            return
        data = run.read_log(CHUNK_BYTES)
        if not data:
            return
        start = run.acknowledged
        text = data.decode(errors="replace")
        chunk = LogChunk(lease=run.lease.id, start=start, stop=start + len(data), text=text)
        run.sent_at = now if self._node.ports.to_scheduler(chunk) else None

    def _bound_logs(self) -> None:
        """Every log has a limit, and the logs of one user have one together."""
        config = self._node.config
        counts = Counter(run.lease.user for run in self._runs.values())
        for run in self._runs.values():
            share = (config.user_logs_mib << 20) // counts[run.lease.user]
            run.bound_log(max(MIN_LOG_BYTES, min(config.command_log_mib << 20, share)))


def _unknown_end(run: CommandRun) -> str:
    """What is known of a command that left no exit status."""
    if not run.pid:
        return (
            "The command ended while the node agent was not running, without an exit status: "
            "its processes were killed."
        )
    if run.wait_status is not None and os.WIFSIGNALED(run.wait_status):
        name = signal.Signals(os.WTERMSIG(run.wait_status)).name
        return f"The processes of the command were killed from outside ({name})."
    return "The processes of the command were killed from outside."


def _terminate(kernel: KernelRecord) -> bool:
    """SIGTERM to the command's process group, so that it can save its state. False: the shell has
    not started the command yet, and the signal would not reach it.
    """
    main = kernel.process.main
    if main is None or not main.is_alive():
        return True
    if not _has_started(main.pid):
        return False
    with contextlib.suppress(OSError):
        os.killpg(main.pid, signal.SIGTERM)
    return True


def _has_started(shell: int) -> bool:
    """Whether the shell has started the command. Before that it would take the signal for itself,
    and start the command afterwards.
    """
    try:
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        own = Path(f"/proc/{shell}/cmdline").read_bytes()
        commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
    except OSError:
        return True  # gone meanwhile, or a system that does not tell
    return any(command != own for command in commands)  # equal: a child that has not called exec
