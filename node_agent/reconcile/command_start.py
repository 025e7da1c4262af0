"""Starts the process of a command, as the user who submitted it."""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
from pathlib import Path

from jupyter_gpushare.messages import CommandRequest

from .command_run import SHELL, USERS_DIR, CommandRun

__all__ = ["command_user", "is_agent_user", "spawn_command", "start_error"]


def is_agent_user(user: str) -> bool:
    """Whether it is the user that the agent runs as."""
    return user == pwd.getpwuid(os.geteuid()).pw_name


def command_user(user: str, mode: str) -> pwd.struct_passwd | None:
    """The user that a command runs as; None: the agent's own. Raises PermissionError."""
    if mode == "off":
        raise PermissionError("this node runs no commands (agent option --run-commands off)")
    if is_agent_user(user):
        return None
    if mode == "users" and os.geteuid() == 0:
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(user)
            if found.pw_uid != 0:
                return found
        raise PermissionError(f"this node has no user {user!r}")
    agent_user = pwd.getpwuid(os.geteuid()).pw_name
    raise PermissionError(
        f"this node runs commands of user {agent_user!r} only, not of {user!r} "
        f"(agent option --run-commands {mode})"
    )


def spawn_command(
    run: CommandRun,
    command: CommandRequest,
    environment: dict[str, str],
    user: pwd.struct_passwd | None,
) -> int:
    """Start it; returns the pid of its shell."""
    _make_dirs(run, user)
    account = user or pwd.getpwuid(os.geteuid())
    basics = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": account.pw_dir,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "LANG": "C.UTF-8",
    }
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    with os.fdopen(os.open(run.log_file, flags, 0o600), "wb") as output:
        child = subprocess.Popen(
            ["/bin/sh", "-c", SHELL, str(run.status_file), *command.argv],
            cwd=command.cwd or account.pw_dir,
            env=basics | command.env | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else os.getgrouplist(user.pw_name, user.pw_gid),
        )
    # it may outlive the agent, and `Popen` would complain: from here on it is reaped by its pid
    child.returncode = 0
    return child.pid


def _make_dirs(run: CommandRun, user: pwd.struct_passwd | None) -> None:
    run.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if user is not None:
        USERS_DIR.mkdir(mode=0o711, exist_ok=True)
        run.status_file.parent.mkdir(mode=0o700, exist_ok=True)
        os.chown(run.status_file.parent, user.pw_uid, user.pw_gid)


def start_error(error: Exception, command: CommandRequest, node: str) -> str:
    """For the person who submitted it."""
    is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    if is_missing and command.cwd and not Path(command.cwd).is_dir():
        return f"The command could not be started: node {node} has no directory {command.cwd}."
    return f"The command could not be started on node {node}: {error}."
