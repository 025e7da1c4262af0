"""The sockets of the five channels: bound in place of the kernel for its clients (front), and
connected to the kernel (back).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from typing import Final

import zmq

from .connection_file import ConnectionFile
from .messages import Frames

__all__ = ["REQUEST_CHANNELS", "KernelChannels"]

REQUEST_CHANNELS: Final = ("shell", "control", "stdin")
RECONNECT_MS: Final = 10
"""The kernel binds its sockets some time after its launch; ZeroMQ's 100 ms would delay it."""
UNREAD_REQUESTS: Final = 100
"""Requests of one client in memory; it waits before it can send more."""
UNREAD_OUTPUTS: Final = 1000
"""Outputs that are kept for a client that does not read, as by the socket of a kernel."""
LINGER_MS: Final = 500
"""The last messages of a kernel (its `shutdown_reply`) reach the clients."""


class KernelChannels:
    """Opens the sockets on creation. Queues of messages that were accepted are unbounded, since
    a dropped one would leave a cell running for ever, except those of clients that do not read
    their outputs: these lose the outputs that they would lose without the proxy.
    """

    def __init__(self, front: ConnectionFile, back: ConnectionFile) -> None:
        """Raises zmq.ZMQError when an address of `front` is in use."""
        self._context = zmq.Context()
        self._front_file, self._back_file = front, back
        self._identity = uuid.uuid4().bytes
        """Of every connection to the kernel: it sends an `input_request` to the identity that
        executes the cell on the shell channel.
        """
        self.front: dict[str, zmq.Socket[bytes]] = {}
        self.back: dict[str, zmq.Socket[bytes]] = {}
        for channel in REQUEST_CHANNELS:
            self.front[channel] = self._bind(zmq.ROUTER, channel)
            self.back[channel] = self._connect(zmq.DEALER, channel)
        self.front["iopub"] = self._bind(zmq.XPUB, "iopub")
        self.back["iopub"] = self._connect(zmq.XSUB, "iopub")
        self._start_heartbeat()

    def _start_heartbeat(self) -> None:
        # in a thread of libzmq, so that it measures the kernel and not this process
        sockets = self._bind(zmq.ROUTER, "hb"), self._connect(zmq.DEALER, "hb")

        def forward() -> None:
            try:
                zmq.proxy(*sockets)
            except zmq.ZMQError:  # the context is closed
                for one in sockets:
                    one.close(0)

        threading.Thread(target=forward, name="gpushare-heartbeat", daemon=True).start()

    def _bind(self, kind: int, channel: str) -> zmq.Socket[bytes]:
        made = self._socket(kind)
        file = self._front_file
        if kind == zmq.ROUTER:
            made.setsockopt(zmq.ROUTER_HANDOVER, 1)
            made.setsockopt(zmq.RCVHWM, UNREAD_REQUESTS)
        if kind == zmq.XPUB:
            # every subscription reaches the kernel, whose `iopub_welcome` each client awaits
            made.setsockopt(zmq.XPUB_VERBOSE, 1)
            made.setsockopt(zmq.SNDHWM, UNREAD_OUTPUTS)
        if file.curve_secret is not None:
            made.curve_server = True
            made.curve_secretkey = file.curve_secret
        made.bind(file.address(channel))
        return made

    def _connect(self, kind: int, channel: str) -> zmq.Socket[bytes]:
        made = self._socket(kind)
        file = self._back_file
        if kind == zmq.DEALER:
            made.setsockopt(zmq.IDENTITY, self._identity)
        if file.curve_public is not None:
            made.curve_publickey, made.curve_secretkey = zmq.curve_keypair()
            made.curve_serverkey = file.curve_public
        made.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        made.connect(file.address(channel))
        return made

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        made = self._context.socket(kind)
        made.setsockopt(zmq.SNDHWM, 0)
        made.setsockopt(zmq.RCVHWM, 0)
        made.setsockopt(zmq.LINGER, LINGER_MS)
        return made

    def to_clients(self, channel: str, frames: Frames | Sequence[bytes]) -> None:
        """Send to the clients of a channel."""
        self.front[channel].send_multipart(frames, copy=False)

    def to_kernel(self, channel: str, frames: Frames | Sequence[bytes]) -> None:
        """Send to the kernel."""
        self.back[channel].send_multipart(frames, copy=False)

    def reconnect(self) -> None:
        """Another process of the kernel binds the same addresses. A message that was sent before
        the loss of the old process is noticed would be lost with it.
        """
        for channel in REQUEST_CHANNELS:
            address = self._back_file.address(channel)
            self.back[channel].disconnect(address)
            self.back[channel].connect(address)

    def close(self) -> None:
        """Deliver what is queued for the clients, and close."""
        for sockets in (self.front, self.back):
            for one in sockets.values():
                one.close(LINGER_MS if sockets is self.front else 0)
        self._context.term()
