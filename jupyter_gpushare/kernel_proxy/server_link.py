"""Commands of the kernel's provisioner, one JSON object per line over an inherited socket. The end
of the connection means that the provisioner's process has ended.
"""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any

__all__ = ["ServerLink"]


class ServerLink:
    """`interrupt` asks whether the kernel may be interrupted, `kernel` names its process,
    `relaunched` a process that replaced it, and `stop` ends the proxy.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.setblocking(False)
        self._rest = b""
        self.is_open = True

    @property
    def fileno(self) -> int:
        """Readable when `receive` has commands."""
        return self._socket.fileno()

    def receive(self) -> list[dict[str, Any]]:
        """Commands that have arrived; `is_open` is False afterwards when the server is gone."""
        try:
            received = self._socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            received = b""
        if not received:
            self.is_open = False
            return []
        *lines, self._rest = (self._rest + received).split(b"\n")
        return [json.loads(line) for line in lines]

    def send(self, message: dict[str, Any]) -> None:
        """Send an answer or a request. A server that does not read receives nothing."""
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")
