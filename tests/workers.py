"""What parallel test workers must not share: ports, and the unix users of the machine."""

from __future__ import annotations

import fcntl
import random
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

__all__ = ["add_unix_user", "free_port", "remove_unix_user"]

PORTS = range(20_000, 30_000)
"""Below the ephemeral ports of Linux (32768 and up), so that no outgoing connection takes one."""
RESERVATIONS = Path(tempfile.gettempdir()) / "gpushare-tests-ports"
LOCK = Path(tempfile.gettempdir()) / "gpushare-tests-users.lock"

_candidates = iter(random.sample(PORTS, len(PORTS)))
_reserved: list[TextIO] = []
"""Locked files; the operating system releases the locks when the process ends."""


def free_port() -> int:
    """A port of 127.0.0.1 that is not in use, reserved for this process: no other test process
    gets the same one.
    """
    RESERVATIONS.mkdir(exist_ok=True)
    for port in _candidates:
        file = (RESERVATIONS / str(port)).open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            file.close()
            continue
        _reserved.append(file)
        return port
    raise AssertionError("all ports are in use")


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
