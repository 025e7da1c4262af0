"""Addresses and keys of a kernel: the front file that clients read, and the back file that the
kernel reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["CHANNELS", "ConnectionFile", "UnsupportedConnection"]

CHANNELS: Final = ("shell", "iopub", "stdin", "control", "hb")
SCHEME: Final = "hmac-"
TRANSPORTS: Final = ("tcp", "ipc")


class UnsupportedConnection(Exception):
    """Raised when the proxy cannot serve a connection file. The message says why."""


@dataclass(frozen=True)
class ConnectionFile:
    """One connection file. `curve_public` and `curve_secret`: the server's keys; None: the
    messages are not encrypted.
    """

    transport: str
    ip: str
    ports: Mapping[str, int]
    key: bytes
    digest: str
    """Name of the hash function of the signatures."""
    curve_public: bytes | None = None
    curve_secret: bytes | None = None

    @classmethod
    def read(cls, path: Path) -> ConnectionFile:
        """Read a file.

        Raises:
            UnsupportedConnection: an unknown transport or signature scheme.
            OSError, ValueError, KeyError: it cannot be read.
        """
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        transport = content.get("transport", "tcp")
        if transport not in TRANSPORTS:
            raise UnsupportedConnection(f"transport {transport!r} is not one of tcp, ipc")
        scheme = content.get("signature_scheme", "hmac-sha256")
        if not scheme.startswith(SCHEME):
            raise UnsupportedConnection(f"signature scheme {scheme!r} is not an HMAC")
        return cls(
            transport=transport,
            ip=content["ip"],
            ports={channel: content[f"{channel}_port"] for channel in CHANNELS},
            key=content.get("key", "").encode(),
            digest=scheme.removeprefix(SCHEME),
            curve_public=_key(content, "curve_publickey"),
            curve_secret=_key(content, "curve_secretkey"),
        )

    def address(self, channel: str) -> str:
        """The ZeroMQ address of a channel."""
        separator = "-" if self.transport == "ipc" else ":"
        return f"{self.transport}://{self.ip}{separator}{self.ports[channel]}"


def _key(content: Mapping[str, Any], name: str) -> bytes | None:
    value = content.get(name)
    return value.encode() if value else None
