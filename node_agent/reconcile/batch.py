"""Batch work: runs the command of every lease that has one, reports its output and its end.

A command is a tenant like a kernel: it has a record, a process tree and GPUs, and the reclaim
ladder knows it as a tenant that always runs. This file holds what differs: the agent starts it,
sends SIGTERM before it is killed, and starts it again when it was killed to make room.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Final

from jupyter_gpushare.messages import LeaseBody, LogAcknowledged, LogChunk, stamp

from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime
from ..state.wall_clock import wall_ms
from ..system.processes import ProcessId, process_at
from .command_run import CommandRun, command_dirs
from .command_start import command_user, is_agent_user, spawn_command, start_error
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


class BatchRunner:
    """The commands of one node. `step` is called a few times a second and never blocks."""

    def __init__(self, node: NodeRuntime, lifecycle: KernelLifecycle) -> None:
        self._node, self._lifecycle = node, lifecycle
        self._runs: dict[str, CommandRun] = {}
        self._children: set[int] = set()
        """Pids that this process has to reap."""
        self._orphans: set[str] = set()
        """Leases whose commands an earlier agent was ending."""

    async def run(self) -> None:
        """Run forever."""
        while True:
            self.step(self._node.clock())
            await asyncio.sleep(STEP_S)

    def acknowledged(self, body: LogAcknowledged) -> None:
        """The scheduler has stored a log up to here."""
        run = self._runs.get(body.lease)
        if run is not None:
            run.acknowledged, run.sent_at = body.stop, None
            self._send_log(run, self._node.clock())

    def step(self, now: int) -> None:
        """Start, follow and end commands."""
        for kernel in list(self._node.kernels.values()):
            lease = kernel.lease
            if lease is None:
                self._end_orphan(kernel)
            elif lease.command is not None and lease.id not in self._runs:
                self._begin(kernel, lease)
        for run in list(self._runs.values()):
            self._follow(run, now)
        self._reap()

    # ---- follow ----------------------------------------------------------------------------------

    def _begin(self, kernel: KernelRecord, lease: LeaseBody) -> None:
        run, kernel.registration.language = self._new_run(lease), "command"
        assignment = kernel.assignment
        if run.log_file.exists():  # an earlier agent started it, and it may be over since
            self._runs[lease.id] = run
        elif assignment.active_lease is None or assignment.evicted:
            return  # never started: there is nothing to end
        elif assignment.attached or not lease.planned_gpus:
            self._start(kernel, lease)

    def _end_orphan(self, kernel: KernelRecord) -> None:
        """A command that was stopping when an earlier agent ended; its lease is gone."""
        kernel_id, process = kernel.kernel_id, kernel.process
        is_command = kernel.registration.language == "command" and process.main is not None
        if is_command and kernel_id not in self._runs and kernel_id not in self._orphans:
            self._orphans.add(kernel_id)
            self._lifecycle.end_processes(kernel)
            for folder in command_dirs(self._node.config.state_dir, kernel_id):
                shutil.rmtree(folder, ignore_errors=True)

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
            self._restart(run, kernel)
            return
        run.over_at = now if run.over_at is None else run.over_at
        self._send_log(run, now)
        if run.acknowledged < run.log_size() and now - run.over_at < FLUSH_MS:
            return
        message = "" if code is not None else "Its processes were killed from outside."
        self._end(run, KILLED if code is None else code, message)

    @staticmethod
    def _was_killed(run: CommandRun, kernel: KernelRecord) -> bool:
        """Whether the agent killed this run to make room."""
        events = kernel.published.events
        return any(event.kind == "killed" and event.time >= run.begun for event in events)

    def _restart(self, run: CommandRun, kernel: KernelRecord) -> None:
        """It starts again as soon as it is attached again."""
        text = "The command was stopped to make room and starts again from the beginning."
        self._node.record_event(kernel, "reattached", text)
        self._forget(run)
        kernel.process.gone_at, kernel.process.relaunched = None, False
        self._node.wake()

    def _end(self, run: CommandRun, code: int, message: str) -> None:
        node = self._node
        node.release_lease(run.lease.id, ended=True, message=message, exit_code=code)
        kernel = node.kernels.pop(run.lease.id, None)
        if kernel is not None:
            self._lifecycle.remove_command(kernel)
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

    # ---- start -----------------------------------------------------------------------------------

    def _new_run(self, lease: LeaseBody) -> CommandRun:
        config = self._node.config
        folder, users_folder = command_dirs(config.state_dir, lease.id)
        is_theirs = config.run_commands == "users" and not is_agent_user(lease.user)
        return CommandRun(lease, folder, (users_folder if is_theirs else folder) / "status")

    def _start(self, kernel: KernelRecord, lease: LeaseBody) -> None:
        assert lease.command is not None
        node = self._node
        run = self._runs[lease.id] = self._new_run(lease)
        run.begun = stamp(wall_ms())
        try:
            user = command_user(lease.user, node.config.run_commands)
            kernel.registration.user, kernel.registration.name = lease.user, lease.name
            kernel.registration.uid = os.geteuid() if user is None else user.pw_uid
            kernel.process.launch = f"batch.{secrets.token_hex(8)}"
            pod = {"GPUSHARE_WORKLOAD": lease.workload, "GPUSHARE_POD": lease.pod}
            environment = pod | self._lifecycle.prepare(kernel)
            pid = spawn_command(run, lease.command, environment, user)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._end(run, CANNOT_RUN, start_error(error, lease.command, node.config.node))
            return
        self._children.add(pid)
        self._lifecycle.watch(kernel, process_at(pid) or ProcessId(pid, 0))
        kernel.process.launched_at = node.clock()
        node.record_event(kernel, "attached", f"Running on {node.config.node}.")

    def _reap(self) -> None:
        for pid in list(self._children):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    continue
            self._children.discard(pid)

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
