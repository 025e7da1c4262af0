"""Finds connections of a process that delay small packets (Nagle's algorithm: 40 ms with delayed
acknowledgements).
"""

from __future__ import annotations

import ctypes
import os
import socket
from contextlib import suppress
from pathlib import Path

__all__ = ["delays_small_packets"]

PIDFD_GETFD = 438
"""Linux 5.6: copies a descriptor of another process; requires ptrace permission."""


def delays_small_packets(pid: int, port: int) -> list[bool]:
    """One per TCP connection that this process accepted on this port and has open."""
    found, process, libc = [], os.pidfd_open(pid), ctypes.CDLL(None, use_errno=True)
    try:
        for name in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                if not os.readlink(name).startswith("socket:"):
                    continue
                copy = libc.syscall(PIDFD_GETFD, process, int(name.name), 0)
                if copy < 0:
                    continue  # closed meanwhile
                with socket.socket(fileno=copy) as link, suppress(OSError):
                    if (
                        link.family in (socket.AF_INET, socket.AF_INET6)
                        and link.getsockname()[1] == port
                        and link.getpeername()
                    ):
                        found.append(link.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0)
    finally:
        os.close(process)
    return found
