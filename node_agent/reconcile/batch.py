"""Batch work: runs the command of every lease that has one, reports what it prints and how it ends.

A command is a lodger like a kernel: it has a book, a process tree, a place on the GPUs, and the
ladder knows it as one that always runs. What differs is here: the agent starts it, asks it to stop
(SIGTERM) before it is killed, and starts it anew when it was killed for room. The process belongs
to the machine, not to us: an agent that comes back finds it, its log and its exit status in files.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jupyter_gpushare.messages import CommandRequest, LeaseBody, LogAcknowledged, LogChunk, stamp

from ..state.kernel_record import KernelRecord
from ..state.node import NodeRuntime
from ..state.wall_clock import wall_ms
from ..system.processes import ProcessId, process_at
from .lifecycle import KernelLifecycle

__all__ = ["BatchRunner"]

STEP_S: Final = 0.25
CHUNK: Final = 2**15
"""Bytes of a log that are sent at once."""
AGAIN_MS: Final = 5_000
"""After so long a piece that was not taken is sent again."""
FLUSH_MS: Final = 30_000
"""How long the end of a command waits for the last of its log to be taken."""
STOP_MS: Final = 5_000
"""How long a command that was cancelled may take to end by itself."""
CANNOT_RUN: Final = 126
"""Exit status for a command that could not be process_at, as a shell gives it."""
KILLED: Final = 137
THEIRS: Final = Path("/run/gpushare")
"""Where commands that run as somebody else leave their exit status: a folder that only root can
make, with one for each of them.
"""
SHELL: Final = 'trap : HUP INT TERM; "$@"; code=$?; printf %s "$code" > "$0.new"; mv "$0.new" "$0"; exit "$code"'
"""Outlives us and keeps the exit status; signals are for the command, which a shell waits for."""


@dataclass(slots=True)
class _CommandRun:
    """One start of a command."""

    lease: LeaseBody
    folder: Path
    """Ours: nobody else can put another file in the place of the log."""
    status_file: Path
    begun: str = ""
    """Stamp; "": before this agent began."""
    taken: int = 0
    sent_at: int | None = None
    """When the piece under way was sent."""
    stopping: int | None = None
    """When it will be killed; None: it may run."""
    asked: bool = False
    """It has been sent SIGTERM."""
    over_at: int | None = None

    @property
    def log_file(self) -> Path:
        return self.folder / "log"


class BatchRunner:
    """On one node. `step` is called a few times a second and never waits."""

    def __init__(self, node: NodeRuntime, lifecycle: KernelLifecycle) -> None:
        self._node, self._lifecycle = node, lifecycle
        self._runs: dict[str, _CommandRun] = {}
        self._children: set[int] = set()
        """Pids that are ours to reap."""
        self._orphans: set[str] = set()
        """Leases whose commands an agent before us was ending."""

    async def run(self) -> None:
        """For ever."""
        while True:
            self.step(self._node.clock())
            await asyncio.sleep(STEP_S)

    def acknowledged(self, order: LogAcknowledged) -> None:
        """The scheduler has kept a log up to here."""
        run = self._runs.get(order.lease)
        if run is not None:
            run.taken, run.sent_at = order.stop, None
            self._tell(run, self._node.clock())

    def step(self, now: int) -> None:
        for kernel in list(self._node.kernels.values()):
            lease = kernel.lease
            if lease is not None and lease.command is not None and lease.id not in self._runs:
                self._begin(kernel, lease)
            elif (
                lease is None
                and kernel.registration.language == "command"
                and kernel.process.main is not None
                and kernel.kernel_id not in self._runs
            ):
                self._end_orphan(kernel)
        for run in list(self._runs.values()):
            self._look_after(run, now)
        self._reap()

    # -- one command --

    def _begin(self, kernel: KernelRecord, lease: LeaseBody) -> None:
        run, kernel.registration.language = self._new(lease), "command"
        if run.log_file.exists():  # it began before this agent did, and may be over since
            self._runs[lease.id] = run
        elif kernel.assignment.lease_revoked or lease.wanted == "evict":
            return  # never started: there is nothing to end
        elif kernel.assignment.attached or not lease.planned_gpus:
            self._start(kernel, lease)

    def _end_orphan(self, kernel: KernelRecord) -> None:
        """It had been asked to stop when the agent before us ended; the lease is gone, and with it
        whoever would have killed it.
        """
        if kernel.kernel_id not in self._orphans:
            self._orphans.add(kernel.kernel_id)
            self._lifecycle.end_processes(kernel)
            for folder in self._folders(kernel.kernel_id):
                shutil.rmtree(folder, ignore_errors=True)

    def _look_after(self, run: _CommandRun, now: int) -> None:
        kernel = self._node.kernels.get(run.lease.id)
        if kernel is not None and kernel.process.main is not None:
            self._tell(run, now)
            if (
                kernel.lease is None
                or kernel.assignment.lease_revoked
                or kernel.lease.wanted == "evict"
            ):
                self._stop(run, kernel, now)
            return
        if kernel is None or kernel.lease is None or kernel.assignment.lease_revoked:
            self._forget(run)
        elif kernel.lease.wanted == "evict" and (
            run.stopping is not None or _exit_code(run) is None
        ):
            return  # the ladder gives the lease back, now that nothing is held
        else:
            self._over(run, kernel, now)

    def _over(self, run: _CommandRun, kernel: KernelRecord, now: int) -> None:
        """Its process is gone, and nobody asked for that here."""
        code = _exit_code(run)
        if code is None and any(
            event.kind == "killed" and event.time >= run.begun for event in kernel.published.events
        ):
            self._node.happened(
                kernel,
                "reattached",
                "It was ended to make room, and starts again from the beginning.",
            )
            self._forget(run)
            kernel.process.gone_at, kernel.process.relaunched = (
                None,
                False,
            )  # it is started as soon as it is attached again
            self._node.wake()
            return
        run.over_at = now if run.over_at is None else run.over_at
        self._tell(run, now)
        if run.taken < _size(run.log_file) and now - run.over_at < FLUSH_MS:
            return
        message = "" if code is not None else "Its processes were killed from outside."
        self._end(run, KILLED if code is None else code, message)

    def _end(self, run: _CommandRun, code: int, message: str) -> None:
        node = self._node
        node.let_go(run.lease.id, ended=True, message=message, exit_code=code)
        kernel = node.kernels.pop(run.lease.id, None)
        if kernel is not None:
            self._lifecycle.remove_command(kernel)
        self._forget(run)
        node.wake()

    def _stop(self, run: _CommandRun, kernel: KernelRecord, now: int) -> None:
        """First it is asked to end, then it is made to."""
        if run.stopping is None:
            evicted = kernel.lease is not None and not kernel.assignment.lease_revoked
            run.stopping = now + (
                kernel.lease.notice_ms if kernel.lease is not None and evicted else STOP_MS
            )
        if not run.asked:
            run.asked = _ask_to_end(kernel)
        if now >= run.stopping:
            run.stopping = now + STOP_MS
            self._lifecycle.end_processes(kernel)

    def _forget(self, run: _CommandRun) -> None:
        self._runs.pop(run.lease.id, None)
        for folder in {run.folder, run.status_file.parent}:
            shutil.rmtree(folder, ignore_errors=True)

    # -- starting --

    def _new(self, lease: LeaseBody) -> _CommandRun:
        folder, theirs = self._folders(lease.id)
        is_theirs = self._node.config.run_commands == "users" and not _is_me(lease.user)
        return _CommandRun(lease, folder, (theirs if is_theirs else folder) / "status")

    def _folders(self, lease_id: str) -> tuple[Path, Path]:
        """Ours, and where the status of somebody else's command would be. Ids are other people's
        words; folders are named by us.
        """
        name = hashlib.sha256(lease_id.encode()).hexdigest()[:24]
        return self._node.config.state_dir / "batch" / name, THEIRS / name

    def _start(self, kernel: KernelRecord, lease: LeaseBody) -> None:
        assert lease.command is not None
        run = self._runs[lease.id] = self._new(lease)
        run.begun = stamp(wall_ms())
        try:
            as_user = _permitted(lease.user, self._node.config.run_commands)
            _make_folders(run, as_user)
            kernel.registration.user, kernel.registration.name, kernel.registration.uid = (
                lease.user,
                lease.name,
                os.geteuid() if as_user is None else as_user.pw_uid,
            )
            kernel.process.launch = f"batch.{secrets.token_hex(8)}"
            pid = self._spawn(run, kernel, lease.command, as_user)
        except (OSError, PermissionError, ValueError, subprocess.SubprocessError) as error:
            self._end(run, CANNOT_RUN, _why(error, lease.command, self._node.config.node))
            return
        self._children.add(pid)
        ident = process_at(pid) or ProcessId(pid, 0)
        self._lifecycle.watch(kernel, ident)
        kernel.process.launched_at = self._node.clock()
        self._node.happened(kernel, "attached", f"Runs on {self._node.config.node}.")

    def _spawn(
        self,
        run: _CommandRun,
        kernel: KernelRecord,
        command: CommandRequest,
        as_user: pwd.struct_passwd | None,
    ) -> int:
        """Its pid."""
        me = as_user or pwd.getpwuid(os.geteuid())
        basics = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": me.pw_dir,
            "USER": me.pw_name,
            "LOGNAME": me.pw_name,
            "LANG": "C.UTF-8",
        }
        pods = {"GPUSHARE_WORKLOAD": run.lease.workload, "GPUSHARE_POD": run.lease.pod}
        cwd = command.cwd or me.pw_dir
        argv = ["/bin/sh", "-c", SHELL, str(run.status_file), *command.argv]
        user, group = (None, None) if as_user is None else (me.pw_uid, me.pw_gid)
        groups = None if as_user is None else os.getgrouplist(me.pw_name, me.pw_gid)
        with os.fdopen(
            os.open(run.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb"
        ) as printed:
            child = subprocess.Popen(
                argv,
                cwd=cwd,
                env=basics | command.env | pods | self._lifecycle.prepare(kernel),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
                group=group,
                extra_groups=groups,
            )
        # it may outlive us, and `Popen` would complain: from here on we wait for it by its pid
        child.returncode = 0
        return child.pid

    def _reap(self) -> None:
        for pid in list(self._children):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    continue
            self._children.discard(pid)

    # -- reporting --

    def _tell(self, run: _CommandRun, now: int) -> None:
        """Sends the next piece of the log, one at a time."""
        if run.sent_at is not None and now - run.sent_at < AGAIN_MS:
            return
        data = _read(run.log_file, run.taken, CHUNK)
        if not data:
            return
        text = data.decode(errors="replace")
        chunk = LogChunk(lease=run.lease.id, start=run.taken, stop=run.taken + len(data), text=text)
        run.sent_at = now if self._node.ports.to_scheduler(chunk) else None


def _exit_code(run: _CommandRun) -> int | None:
    """None: its shell was killed with it."""
    try:
        with os.fdopen(
            os.open(run.status_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        ) as file:
            return int(file.read(8))
    except (OSError, ValueError):
        return None


def _make_folders(run: _CommandRun, as_user: pwd.struct_passwd | None) -> None:
    run.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if as_user is not None:
        THEIRS.mkdir(mode=0o711, exist_ok=True)
        run.status_file.parent.mkdir(mode=0o700, exist_ok=True)
        os.chown(run.status_file.parent, as_user.pw_uid, as_user.pw_gid)


def _is_me(user: str) -> bool:
    return user == pwd.getpwuid(os.geteuid()).pw_name


def _permitted(user: str, how: str) -> pwd.struct_passwd | None:
    """As whom a command runs; None: as we do. Raises PermissionError."""
    me = pwd.getpwuid(os.geteuid())
    if how == "off":
        raise PermissionError("this node runs no commands (its agent says --run-commands off)")
    if _is_me(user):
        return None
    if how == "users" and os.geteuid() == 0:
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(user)
            if found.pw_uid != 0:
                return found
        raise PermissionError(f"this node has no user {user!r}")
    raise PermissionError(
        f"this node runs commands of {me.pw_name!r} only, not of {user!r} (its agent says --run-commands {how})"
    )


def _why(error: Exception, command: CommandRequest, node: str) -> str:
    """A sentence for the one who asked."""
    if (
        isinstance(error, FileNotFoundError | NotADirectoryError)
        and command.cwd
        and not Path(command.cwd).is_dir()
    ):
        return f"It could not be started: there is no directory {command.cwd} on node {node}."
    return f"It could not be started on node {node}: {error}."


def _ask_to_end(kernel: KernelRecord) -> bool:
    """SIGTERM to the command's process group: it may save what it wants to keep. False: it has not
    begun, and would not hear of it.
    """
    if kernel.process.main is None or not kernel.process.main.is_alive():
        return True
    if not _has_begun(kernel.process.main.pid):
        return False
    with contextlib.suppress(OSError):
        os.killpg(kernel.process.main.pid, signal.SIGTERM)
    return True


def _has_begun(shell: int) -> bool:
    """Whether our shell has started the command. Before that it would take the signal for itself,
    and start the command afterwards.
    """
    try:
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        ours = Path(f"/proc/{shell}/cmdline").read_bytes()
        return any(
            Path(f"/proc/{child}/cmdline").read_bytes() != ours for child in children
        )  # a child that is still a copy of the shell has not
    except OSError:
        return True  # gone meanwhile, or a system that does not tell


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(path: Path, start: int, most: int) -> bytes:
    """Whole characters only, unless what follows is no text."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(most)
    except OSError:
        return b""
    for cut in range(min(4, len(data))):
        part = data[: len(data) - cut]
        with contextlib.suppress(UnicodeDecodeError):
            part.decode()
            return part
    return data
