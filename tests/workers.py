"""What parallel test workers must not share: ports, and the unix users of the machine."""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["add_unix_user", "free_port", "remove_unix_user"]

FIRST_PORT, PORTS_PER_WORKER = 20_000, 1_000
"""Below the ephemeral ports of Linux (32768 and up), so that no outgoing connection takes one."""
LOCK = Path(tempfile.gettempdir()) / "gpushare-tests-users.lock"

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_start = FIRST_PORT + _worker % 10 * PORTS_PER_WORKER
_candidates = itertools.cycle(range(_start, _start + PORTS_PER_WORKER))


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on; no two workers get the same one."""
    for port in _candidates:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable: the ports are tried in a cycle")


def add_unix_user(name: str, *options: str) -> None:
    """`useradd`: raises CalledProcessError when it fails."""
    with _password_files():
        command = ["useradd", *options, name]
        subprocess.run(command, check=True, capture_output=True)


def remove_unix_user(name: str) -> None:
    """`userdel`: does nothing when the user does not exist."""
    with _password_files():
        subprocess.run(["userdel", "--force", name], check=False, capture_output=True)


@contextmanager
def _password_files() -> Iterator[None]:
    """useradd fails, instead of waiting, while another one runs."""
    with LOCK.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
