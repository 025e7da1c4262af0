"""Lines over a unix socket, with bounds on the memory that each user or pod occupies in the agent:
on the length of a line, and on all that its connections have sent without a line's end, or left
unread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from ..system.peers import Peer
from ..system.process_owner import ProcessOwner
from .peer_log import PeerLog

__all__ = ["LineStream", "LineTooLong", "UserBudget", "UserBudgets"]

HIGH_WATER: Final = 1 << 18
"""Bytes of complete lines that wait to be handled before reading pauses."""
CLOSE_S: Final = 1.0


class LineTooLong(Exception):
    """Raised when a peer sends a longer line than its role allows."""


class UserBudget:
    """Bytes of one owner's connections, both ways. When they exceed the limit, the connection with
    the most is closed.
    """

    def __init__(self, owner: ProcessOwner, limit: int, peer_log: PeerLog) -> None:
        self._owner, self._limit, self._peer_log = owner, limit, peer_log
        self._total = 0
        self.streams: set[LineStream] = set()

    @property
    def total(self) -> int:
        """Bytes that are buffered now."""
        return self._total

    def change(self, delta: int) -> None:
        """A buffer has grown or shrunk."""
        self._total += delta
        if self._total <= self._limit:
            return
        self._total = sum(stream.recount() for stream in self.streams)
        while self._total > self._limit and self.streams:
            largest = max(self.streams, key=lambda stream: stream.buffered)
            self._peer_log.warning(
                self._owner,
                "%s has more than %d MiB in unfinished or unread messages: the connection of "
                "process %d is closed",
                self._owner,
                self._limit >> 20,
                largest.pid,
            )
            largest.abort()


class UserBudgets:
    """One budget per owner that is connected."""

    def __init__(self, limit: int, peer_log: PeerLog) -> None:
        self._limit, self.peer_log = limit, peer_log
        self._budgets: dict[ProcessOwner, UserBudget] = {}

    def open(self, stream: LineStream) -> UserBudget:
        """A connection of its owner."""
        owner = stream.owner
        budget = self._budgets.setdefault(owner, UserBudget(owner, self._limit, self.peer_log))
        budget.streams.add(stream)
        return budget

    def close(self, stream: LineStream) -> None:
        """The connection is over."""
        budget = self._budgets.get(stream.owner)
        if budget is not None:
            budget.streams.discard(stream)
            if not budget.streams:
                del self._budgets[stream.owner]

    def total(self, owner: ProcessOwner) -> int:
        """Bytes of one owner."""
        budget = self._budgets.get(owner)
        return budget.total if budget is not None else 0


class LineStream(asyncio.Protocol):
    """One connection. `peer` comes from the operating system, not from the other side."""

    def __init__(
        self,
        budgets: UserBudgets,
        max_line: int,
        accepted: Callable[[LineStream], None],
        identify: Callable[[socket.socket], Peer],
    ) -> None:
        self.max_line = max_line
        """Longest line, in bytes with its end; changed once the peer's role is known."""
        self._budgets, self._accepted, self._identify = budgets, accepted, identify
        self._partial = bytearray()
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._counted = 0
        self._is_over = False
        self._changed = asyncio.Event()
        self._closed = asyncio.Event()

    @property
    def pid(self) -> int:
        """The process of the peer."""
        return self.peer.pid

    @property
    def owner(self) -> ProcessOwner:
        """Whose process it is."""
        return self.peer.owner

    @property
    def buffered(self) -> int:
        """Bytes in its buffers."""
        return self._counted

    # ---- called by the event loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = self._identify(transport.get_extra_info("socket"))
        self._budget = self._budgets.open(self)
        self._accepted(self)

    def data_received(self, data: bytes) -> None:
        start = len(self._partial)
        self._partial += data
        end = self._partial.rfind(b"\n", start) + 1
        if end:
            lines = bytes(self._partial[: end - 1]).split(b"\n")
            del self._partial[:end]
            self._lines.extend(line + b"\n" for line in lines)
            self._waiting_bytes += end
            self._changed.set()
        if len(self._partial) > self.max_line:
            self._changed.set()  # `readline` closes the connection
        if self._waiting_bytes > HIGH_WATER or len(self._partial) > self.max_line:
            self._transport.pause_reading()
        self._count()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol
        self._is_over = True
        self._partial.clear()
        self._lines.clear()
        self._waiting_bytes = 0
        self._count()
        self._budgets.close(self)
        self._changed.set()
        self._closed.set()

    def eof_received(self) -> bool:
        self._is_over = True
        self._changed.set()
        return True  # what was sent before is still handled; the server closes

    def _count(self) -> None:
        before = self._counted
        self._budget.change(self.recount() - before)

    def recount(self) -> int:
        """Bytes in its buffers now: output leaves without a call."""
        output = 0 if self._closed.is_set() else self._transport.get_write_buffer_size()
        self._counted = len(self._partial) + self._waiting_bytes + output
        return self._counted

    # ---- called by the server --------------------------------------------------------------------

    async def readline(self) -> bytes:
        """The next line with its end; b"" at the end of the stream. Raises LineTooLong."""
        while not self._lines:
            if len(self._partial) > self.max_line:
                raise LineTooLong
            if self._is_over:
                return b""
            self._changed.clear()
            await self._changed.wait()
        line = self._lines.popleft()
        self._waiting_bytes -= len(line)
        self._count()
        if self._waiting_bytes <= HIGH_WATER and not self._transport.is_closing():
            self._transport.resume_reading()
        if len(line) > self.max_line:
            raise LineTooLong
        return line

    def write(self, data: bytes, max_unread: int) -> bool:
        """Pass on a line. Never blocks: a peer that leaves more than `max_unread` bytes unread is
        disconnected. False when the peer is gone.
        """
        if self._transport.is_closing():
            return False
        if self._transport.get_write_buffer_size() > max_unread:
            self._budgets.peer_log.warning(
                self.owner, "process %d does not read its messages: disconnected", self.pid
            )
            self.abort()
            return False
        self._transport.write(data)
        self._count()
        return not self._transport.is_closing()

    def close(self) -> None:
        """Close once all is sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._budget.streams.discard(self)
        self._transport.abort()
        self._partial.clear()
        self._lines.clear()
        self._waiting_bytes, self._is_over = 0, True
        delta, self._counted = -self._counted, 0
        self._budget.change(delta)
        self._changed.set()

    async def wait_closed(self) -> None:
        """Wait a moment for what is being sent, then close at once."""
        self._transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._closed.wait()
        self._transport.abort()
