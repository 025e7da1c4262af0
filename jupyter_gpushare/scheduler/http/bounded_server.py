"""An HTTP server whose connections are bounded per peer: one user or address with thousands of open
connections must not take the file descriptors that others need.
"""

from __future__ import annotations

import logging
import resource
from collections import Counter
from collections.abc import Hashable
from typing import Any, Final

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream

from ..auth.peer_credentials import uid_of_peer

__all__ = ["BoundedHTTPServer"]

log = logging.getLogger("gpushare.scheduler")
MOST: Final = 4096
"""HTTP connections of one peer. WebSockets are counted per caller, after their handshake."""
PART: Final = 4
"""No peer has more than this part of the process's file descriptors."""


class BoundedHTTPServer(HTTPServer):
    """Closes connections beyond the limit of their peer: a unix user, or a network address."""

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        super().initialize(*args, **kwargs)
        self._open: Counter[Hashable] = Counter()
        self._peers: dict[int, Hashable] = {}
        """Peers by the identity of their stream."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.most_per_peer = MOST if files < 0 else min(MOST, files // PART)

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        try:
            uid = uid_of_peer(stream.socket)
        except OSError:
            stream.close()
            return
        peer: Hashable = uid if uid is not None else address[0]
        if self._open[peer] >= self.most_per_peer:
            log.debug("%s has %d connections: another one is refused", peer, self._open[peer])
            stream.close()
            return
        self._open[peer] += 1
        self._peers[id(stream)] = peer
        super().handle_stream(stream, address)

    def on_close(self, server_conn: Any) -> None:
        peer = self._peers.pop(id(server_conn.stream), None)
        if peer is not None:
            self._open[peer] -= 1
            if not self._open[peer]:
                del self._open[peer]
        super().on_close(server_conn)
