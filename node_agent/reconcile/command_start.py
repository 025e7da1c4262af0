"""Starts the process of a command, as the user who submitted it (see `system.run_as`)."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from jupyter_gpushare.aio import INHERITED_FILES
from jupyter_gpushare.messages import CommandRequest

from ..state.config import AgentConfig
from ..system import run_as
from ..system.accounts import is_system_account
from ..system.processes import MARKER
from ..system.run_as import CommandSpec
from ..system.user_limits import user_limits
from .command_run import SHELL, USERS_DIR, CommandRun

__all__ = ["Launcher", "command_user", "is_agent_user", "spawn_launcher"]

LAUNCHER: Final = (sys.executable, "-I", "-S", str(Path(run_as.__file__).resolve()))


@dataclass(frozen=True, slots=True)
class Launcher:
    """A process that waits to become the command. Without `go` it exits when it is closed, or when
    the agent dies.
    """

    pid: int
    _pipe: int

    def go(self) -> None:
        """Run the command."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, b"g")

    def close(self) -> None:
        """Nothing more will be said to it."""
        os.close(self._pipe)


def is_agent_user(user: str) -> bool:
    """Whether it is the user that the agent runs as."""
    return user == pwd.getpwuid(os.geteuid()).pw_name


def command_user(user: str, config: AgentConfig) -> pwd.struct_passwd | None:
    """The user that a command runs as; None: the agent's own. Raises PermissionError.

    An agent of root that serves other users runs no commands of root, and those of system accounts
    only if they are listed: a token or an admin of the scheduler may submit for any name, and must
    not become root or a service on the nodes by that.
    """
    mode, is_root = config.run_commands, os.geteuid() == 0
    if config.tenancy.no_commands:
        raise PermissionError(config.tenancy.no_commands)
    if mode == "off":
        raise PermissionError("this node runs no commands (agent option --run-commands off)")
    is_shared = mode == "users" or config.tenancy.is_shared
    if is_agent_user(user):
        if is_root and is_shared:
            raise PermissionError(f"this node runs no commands of user {user!r}")
        return None
    if mode == "users" and is_root:
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(user)
            if found.pw_uid != 0 and found.pw_name == user:  # some directories ignore case
                if is_system_account(found) and user not in config.command_accounts:
                    raise PermissionError(
                        f"this node runs no commands of system account {user!r}"
                        f" (agent option --run-commands-of {user})"
                    )
                return found
        raise PermissionError(f"this node has no user {user!r}")
    agent_user = pwd.getpwuid(os.geteuid()).pw_name
    raise PermissionError(
        f"this node runs commands of user {agent_user!r} only, not of {user!r} "
        f"(agent option --run-commands {mode})"
    )


def spawn_launcher(
    run: CommandRun,
    command: CommandRequest,
    environment: dict[str, str],
    user: pwd.struct_passwd | None,
) -> Launcher:
    """Start a launcher. `environment` has the marker of the launch. Raises OSError, ValueError."""
    _make_dirs(run, user)
    spec = _spec(run, command, environment, user)
    reading, writing = os.pipe()
    try:
        with _memory_file(spec) as spec_file, run.open_log() as output:
            child = subprocess.Popen(
                [*LAUNCHER, str(reading), str(spec_file.fileno())],
                cwd="/",
                env={MARKER: environment[MARKER]},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(reading, spec_file.fileno()),
            )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    # it may outlive the agent, and `Popen` would complain: from here on it is reaped by its pid
    child.returncode = 0
    return Launcher(child.pid, writing)


def _memory_file(spec: CommandSpec) -> BinaryIO:
    """The specification where only this process and its child can read it."""
    file = os.fdopen(os.memfd_create("gpushare-command"), "w+b")
    file.write(json.dumps(spec).encode())
    file.flush()
    return file


def _spec(
    run: CommandRun,
    command: CommandRequest,
    environment: dict[str, str],
    user: pwd.struct_passwd | None,
) -> CommandSpec:
    account = user or pwd.getpwuid(os.geteuid())
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    basics = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "LANG": "C.UTF-8",
    }
    return CommandSpec(
        uid=None if user is None else user.pw_uid,
        gid=account.pw_gid,
        groups=groups,
        limits={"RLIMIT_NOFILE": INHERITED_FILES} if user is None else user_limits(account, groups),
        cwd=command.cwd or account.pw_dir,
        env=basics | command.env | environment,
        shell=SHELL,
        argv=list(command.argv),
        started_file=str(run.started_file),
        status_file=str(run.status_file),
        error_file=str(run.error_file),
    )


def _make_dirs(run: CommandRun, user: pwd.struct_passwd | None) -> None:
    run.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if user is not None:
        USERS_DIR.mkdir(mode=0o711, exist_ok=True)
        run.status_file.parent.mkdir(mode=0o700, exist_ok=True)
        os.chown(run.status_file.parent, user.pw_uid, user.pw_gid)
