"""Who is at the other end of a unix socket, by what the operating system says."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from jupyter_gpushare.kernel.simnode import start_of

from .pods import pod_of
from .process_owner import KubernetesPod, ProcessOwner, UnixUser

__all__ = ["Peer", "credentials_of", "peer_pod"]

SO_PEERPIDFD: Final = 77
"""Linux 6.5: a descriptor of the process that connected. Not in Python's `socket` yet."""


class Peer(NamedTuple):
    """The process that connected. `problem`: why it is refused; "": it is welcome."""

    pid: int
    owner: ProcessOwner
    problem: str = ""


def credentials_of(sock: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the process that connected, at that moment. The pid is this namespace's."""
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid


def peer_pod(sock: socket.socket) -> Peer:
    """The pod of the process that connected."""
    pid, uid = credentials_of(sock)
    if pid <= 0:
        return Peer(pid, UnixUser(uid), "it is in another pid namespace; set hostPID: true")
    pod = _pod(sock, pid)
    if pod is None:
        return Peer(pid, UnixUser(uid), "it belongs to no pod, and this agent serves pods only")
    return Peer(pid, KubernetesPod(pod))


def _pod(sock: socket.socket, pid: int) -> str | None:
    """The pod, read while the process lived: a pid that was used again must not count."""
    try:
        with _peer_descriptor(sock) as descriptor:
            before = start_of(pid)
            pod = pod_of(pid)
            if descriptor is None:
                return pod if before is not None and start_of(pid) == before else None
            return None if _has_exited(descriptor) else pod
    except OSError:
        return None


@contextlib.contextmanager
def _peer_descriptor(sock: socket.socket) -> Iterator[int | None]:
    """A pidfd of the process; None on older kernels. Raises OSError when it is gone."""
    try:
        descriptor = sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _has_exited(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
