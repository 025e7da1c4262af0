"""The unix socket that kernels and Jupyter servers of this machine talk to: one JSON object per
line, the first one says who speaks.

Who may speak: the same user (peer credentials of the socket), or every user of the machine, each of
whom is known by those credentials and reaches their own only; a kernel must also show the token it
was launched with, and its peer process must belong to that kernel's process tree. Nobody can hold
up the loop: lines have a longest length, hellos a deadline, a user's connections a number, floods
are slowed down per user, and a peer that does not read is cut off. What lines mean is decided in
`handlers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import structs

from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput
from jupyter_gpushare.messages import (
    FromKernel,
    FromServer,
    KernelHello,
    ServerHello,
    ToKernel,
    ToServer,
    decode,
    encode,
)

from ..state.node import log
from ..system.run_directory import prepare_public_directory

__all__ = ["SocketServer", "SocketConnection", "SocketListener"]

HELLO: Final[Any] = KernelHello | ServerHello
HELLO_TIMEOUT_S: Final = 5.0
MAX_PATH_BYTES: Final = 107
"""What the operating system has room for."""
CLOSE_S: Final = 1.0
MAX_LINE_BYTES: Final = {"kernel": 1 << 18, "server": 8 << 20}
MAX_BACKLOG_BYTES: Final = 8 << 20
"""Bytes that a peer may leave unread before it is cut off."""
MAX_LINES_PER_S: Final = 4096
"""That one user may say in a second before they are slowed down."""
MAX_CONNECTIONS: Final = 1024
"""Of one user, when there are others."""
LINES_PER_TURN: Final = 256
"""Lines handled in one go before others have their turn."""


class SocketListener(Protocol):
    """What the socket hands on. `greet_*` return why a peer is refused, or None."""

    def greet_kernel(self, hello: KernelHello, connection: SocketConnection) -> str | None: ...
    def greet_server(self, hello: ServerHello, connection: SocketConnection) -> str | None: ...
    def from_kernel(self, kernel_id: str, body: FromKernel) -> None: ...
    def from_server(self, server: str, uid: int, body: FromServer) -> None: ...
    def lost_kernel(self, kernel_id: str, connection: SocketConnection) -> None: ...
    def lost_server(self, server: str, connection: SocketConnection) -> None: ...


class SocketConnection:
    """One connection. `pid` and `uid` are the kernel's word (the operating system's, not the
    peer's).
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        peer: socket.socket = writer.get_extra_info("socket")
        self.pid, self.uid, _ = struct.unpack(
            "3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        )

    def send(self, body: ToKernel | ToServer) -> bool:
        """Hand a line to the operating system; False when the peer is gone. Never waits: a peer
        that does not read is cut off.
        """
        transport = self._writer.transport
        if transport.is_closing():
            return False
        if transport.get_write_buffer_size() > MAX_BACKLOG_BYTES:
            log.warning("process %d does not read what it is told: cut off", self.pid)
            transport.abort()
            return False
        self._writer.write(encode(body) + b"\n")
        return True

    def close(self) -> None:
        """End the conversation."""
        self._writer.close()


class SocketServer:
    """Accepts and reads; `kernels` and `servers` are the lines that stand."""

    def __init__(
        self, path: Path, listener: Callable[[], SocketListener], *, for_all: bool = False
    ) -> None:
        self._path, self._listener, self._for_all = path, listener, for_all
        self._connections: Counter[int] = Counter()
        self._rates: dict[int, _RateLimit] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.kernels: dict[str, SocketConnection] = {}
        self.servers: dict[str, SocketConnection] = {}

    async def start(self) -> None:
        """Listen. A socket that a dead agent left is replaced; a living agent's is not."""
        if len(os.fsencode(self._path)) > MAX_PATH_BYTES:
            raise InvalidInput(
                f"a unix socket's path has at most {MAX_PATH_BYTES} bytes; choose a shorter one",
                field=str(self._path),
            )
        if self._for_all:
            prepare_public_directory(self._path.parent)
        else:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._remove_stale_socket()
        before = os.umask(0o111 if self._for_all else 0o177)
        try:
            self._server = await asyncio.start_unix_server(
                self._accepted, self._path, limit=MAX_LINE_BYTES["server"]
            )
        finally:
            os.umask(before)

    async def _remove_stale_socket(self) -> None:
        if not self._path.exists():
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                _, writer = await asyncio.open_unix_connection(self._path)
        except (OSError, TimeoutError):
            self._path.unlink(missing_ok=True)
            return
        writer.close()
        raise GpuShareError(f"another agent listens on {self._path}")

    async def stop(self) -> None:
        """Close every line; kernels connect again when an agent is back."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            self._path.unlink(missing_ok=True)

    def to_kernel(self, kernel_id: str, body: ToKernel) -> bool:
        """False when it is not connected."""
        connection = self.kernels.get(kernel_id)
        return connection is not None and connection.send(body)

    def to_server(self, server: str, body: ToServer) -> bool:
        """False when it is not connected."""
        connection = self.servers.get(server)
        return connection is not None and connection.send(body)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._converse(reader, SocketConnection(writer))
        except (
            OSError,
            ValueError,
            TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ) as error:
            log.debug("a line to a kernel or server ended: %r", error)
        except asyncio.CancelledError:
            pass  # the agent stops
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await writer.wait_closed()
            writer.transport.abort()  # a peer that does not read would keep the line open for ever

    async def _converse(self, reader: asyncio.StreamReader, connection: SocketConnection) -> None:
        if connection.uid != os.getuid() and not self._for_all:
            log.warning(
                "process %d of user %d may not talk to this agent", connection.pid, connection.uid
            )
            return
        if self._for_all and self._connections[connection.uid] >= MAX_CONNECTIONS:
            log.warning(
                "process %d: user %d has %d connections already",
                connection.pid,
                connection.uid,
                MAX_CONNECTIONS,
            )
            return
        self._connections[connection.uid] += 1
        try:
            await self._authenticate(reader, connection)
        finally:
            self._connections[connection.uid] -= 1
            if not self._connections[connection.uid]:
                del self._connections[connection.uid]
                self._rates.pop(connection.uid, None)

    async def _authenticate(
        self, reader: asyncio.StreamReader, connection: SocketConnection
    ) -> None:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            first = await reader.readline()
        if len(first) > MAX_LINE_BYTES["kernel"]:
            return
        try:
            hello: KernelHello | ServerHello = decode(HELLO, first)
        except GpuShareError as error:
            log.warning("process %d does not introduce itself: %s", connection.pid, error)
            return
        if isinstance(hello, KernelHello):
            await self._serve_kernel(reader, connection, hello)
        else:
            await self._serve_server(
                reader,
                connection,
                structs.replace(hello, server=_server_key(hello.server, connection.uid)),
            )

    async def _serve_kernel(
        self, reader: asyncio.StreamReader, connection: SocketConnection, hello: KernelHello
    ) -> None:
        listener = self._listener()
        problem = listener.greet_kernel(hello, connection)
        if problem:
            log.warning("process %d is not kernel %s: %s", connection.pid, hello.kernel_id, problem)
            return
        try:
            await self._read(
                reader,
                connection,
                "kernel",
                FromKernel,
                lambda body: listener.from_kernel(hello.kernel_id, body),
            )
        finally:
            if self.kernels.get(hello.kernel_id) is connection:
                del self.kernels[hello.kernel_id]
            listener.lost_kernel(hello.kernel_id, connection)

    async def _serve_server(
        self, reader: asyncio.StreamReader, connection: SocketConnection, hello: ServerHello
    ) -> None:
        listener = self._listener()
        problem = listener.greet_server(hello, connection)
        if problem:
            log.warning("process %d is refused as a server: %s", connection.pid, problem)
            return
        try:
            await self._read(
                reader,
                connection,
                "server",
                FromServer,
                lambda body: listener.from_server(hello.server, connection.uid, body),
            )
        finally:
            if self.servers.get(hello.server) is connection:
                del self.servers[hello.server]
            listener.lost_server(hello.server, connection)

    async def _read(
        self,
        reader: asyncio.StreamReader,
        connection: SocketConnection,
        role: str,
        kind: Any,
        handle: Callable[[Any], None],
    ) -> None:
        """Every line until the end; a line that cannot be read is logged and skipped (a newer peer
        may say more), a long one ends it.
        """
        count, rate = 0, self._rates.setdefault(connection.uid, _RateLimit())
        while data := await reader.readline():
            if len(data) > MAX_LINE_BYTES[role]:
                log.warning("process %d sends lines that are too long: cut off", connection.pid)
                return
            try:
                handle(decode(kind, data))
            except GpuShareError as error:
                log.warning("process %d: %s", connection.pid, error)
            count += 1
            if count % LINES_PER_TURN == 0:
                # Reading does not yield while lines are buffered; and nobody honest says thousands
                # of things a second.
                await asyncio.sleep(rate.rest(LINES_PER_TURN, asyncio.get_running_loop().time()))


class _RateLimit:
    """How much one user says, over all their lines."""

    def __init__(self) -> None:
        self._said, self._since = 0, 0.0

    def rest(self, count: int, now: float) -> float:
        """So many more were said: seconds to wait before the next."""
        if now - self._since >= 1:
            self._said, self._since = 0, now
        self._said += count
        return 0.1 if self._said >= MAX_LINES_PER_S else 0.0


def _server_key(server: str, uid: int) -> str:
    """A server's name is its own word: another user's of the same name is another server."""
    return server if uid == os.getuid() else f"{uid}:{server}"
