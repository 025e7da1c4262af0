"""Starts a command as its user. Runs as a program of its own, with the standard library only:
`python -I -S run_as.py GO SPEC`, with two inherited file descriptors.

The agent starts this launcher with its own rights and an environment that holds nothing but the
marker of the launch, and records it in its journal. Only then it writes to GO, and the launcher
continues. When the agent dies first, GO is closed and the launcher exits: a command never runs
without a journal entry.

SPEC is JSON (see `CommandSpec`). The launcher takes the user's groups, resource limits and user id,
and only then touches anything that the user named: the environment, the working directory, the
program. So the operating system checks each of them against the user's own rights, whatever
symbolic links are swapped meanwhile.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import TypedDict

CANNOT_RUN = 126
NAME = "jupyter gpushare run"
"""The shell prints it before its errors, such as that of a missing program."""
UMASK = 0o022


class CommandSpec(TypedDict):
    """What to start. `uid`: None for the agent's own user."""

    uid: int | None
    gid: int
    groups: list[int]
    limits: dict[str, tuple[int, int]]
    """Names of the `resource` module to soft and hard limits."""
    cwd: str
    env: dict[str, str]
    shell: str
    """Script for /bin/sh that runs its arguments after the first one, and writes the exit status to
    the file that the first one names.
    """
    argv: list[str]
    started_file: str
    """In a folder of the agent; exists once the command may have run."""
    status_file: str
    error_file: str


def main(go: int, spec_file: int) -> None:
    """Wait for the agent, then become the command."""
    if os.read(go, 1) != b"g":
        os._exit(0)  # the agent is gone: nothing was started
    os.close(go)
    with os.fdopen(spec_file, "rb") as file:
        file.seek(0)
        spec: CommandSpec = json.load(file)
    os.close(os.open(spec["started_file"], os.O_WRONLY | os.O_CREAT, 0o600))
    become_user(spec)
    try:
        os.chdir(spec["cwd"])
    except OSError as error:
        fail(spec, f"working directory {spec['cwd']}: {error.strerror}")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and a child would inherit that
    arguments = ["/bin/sh", "-c", spec["shell"], NAME, spec["status_file"], *spec["argv"]]
    try:
        # runs the program with the rights of its user
        os.execve("/bin/sh", arguments, spec["env"])  # noqa: S606
    except (OSError, ValueError) as error:
        fail(spec, str(error))


def become_user(spec: CommandSpec) -> None:
    """Give up the agent's rights for good."""
    os.umask(UMASK)
    for name, (soft, hard) in spec["limits"].items():
        set_limit(getattr(resource, name), soft, hard)
    if spec["uid"] is None:
        return
    os.setgroups(spec["groups"])
    os.setresgid(spec["gid"], spec["gid"], spec["gid"])
    os.setresuid(spec["uid"], spec["uid"], spec["uid"])


def set_limit(number: int, soft: int, hard: int) -> None:
    """Set a limit; without the right to raise it, as high as possible."""
    try:
        resource.setrlimit(number, (soft, hard))
    except (ValueError, OSError):
        highest = resource.getrlimit(number)[1]
        resource.setrlimit(number, (lower(soft, highest), lower(hard, highest)))


def lower(one: int, other: int) -> int:
    """The smaller limit; RLIM_INFINITY is the largest."""
    finite = [limit for limit in (one, other) if limit != resource.RLIM_INFINITY]
    return min(finite, default=resource.RLIM_INFINITY)


def fail(spec: CommandSpec, problem: str) -> None:
    """Leave the reason and the exit status in files, as the user."""
    for path, text in ((spec["error_file"], problem), (spec["status_file"], str(CANNOT_RUN))):
        with open(path + ".new", "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.replace(path + ".new", path)
    os._exit(CANNOT_RUN)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
