"""Names of headless Services and their pods, for pods: a cluster's DNS, reduced to A records."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Any, Final

import httpx

from tests.kube.api import Api, Refused

__all__ = ["ClusterDns"]

SUFFIX: Final = ".svc.cluster.local"
NAME_ERROR: Final = 3
TYPE_A: Final = 1


class ClusterDns:
    """Answers on UDP port 53 of one address, from the Endpoints of the API server; while that is
    away, with what it was last, as CoreDNS does.
    """

    def __init__(self, address: str, api: Api) -> None:
        self._api = api
        self._known: dict[str, list[Any]] = {}
        """Subsets by path."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 53))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> ClusterDns:
        self._thread.start()
        return self

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)
        self._api.close()

    def _serve(self) -> None:
        while True:
            try:
                query, peer = self._socket.recvfrom(512)
            except OSError:
                return
            if not query:
                return
            with contextlib.suppress(OSError, ValueError, IndexError, struct.error):
                self._socket.sendto(self._reply(query), peer)

    def _reply(self, query: bytes) -> bytes:
        name, end = _name(query)
        (kind,) = struct.unpack_from("!H", query, end)
        addresses = self.resolve(name)
        answers = addresses or []
        records = b"".join(
            struct.pack("!HHHIH", 0xC00C, TYPE_A, 1, 1, 4) + socket.inet_aton(address)
            for address in (answers if kind == TYPE_A else [])
        )
        code = NAME_ERROR if addresses is None else 0
        count = len(answers) if kind == TYPE_A else 0
        header = query[:2] + struct.pack("!HHHHH", 0x8580 | code, 1, count, 0, 0)
        return header + query[12 : end + 4] + records

    def resolve(self, name: str) -> list[str] | None:
        """Addresses of `service.namespace.svc.cluster.local` or of one of its pods."""
        if not name.endswith(SUFFIX):
            return None
        *host, service, namespace = name.removesuffix(SUFFIX).split(".")
        path = f"/api/v1/namespaces/{namespace}/endpoints/{service}"
        try:
            subsets = self._known[path] = self._api.get(path).get("subsets", [])
        except Refused:
            return None
        except httpx.TransportError:
            subsets = self._known.get(path, [])
        found = [
            address
            for subset in subsets
            for key in ("addresses", "notReadyAddresses")
            for address in subset.get(key, [])
            if not host or address.get("hostname") == host[0]
        ]
        return [address["ip"] for address in found] or None


def _name(query: bytes) -> tuple[str, int]:
    """The name of the question, and where it ends."""
    labels, at = [], 12
    while size := query[at]:
        labels.append(query[at + 1 : at + 1 + size].decode("ascii").lower())
        at += 1 + size
    return ".".join(labels), at + 1
