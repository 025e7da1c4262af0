"""The unix socket for the kernels and Jupyter servers of this machine: one JSON object per line,
the first one is a hello.

Who may connect: the agent's own user, every user of the machine, or every Kubernetes pod of this
node (`system.tenancy`). Each is known by what the operating system says about the connection, and
reaches its own kernels only. A kernel must also show the token it was launched with, and its
process must belong to that kernel's process tree. No peer can block the event loop or fill the
agent's memory: lines, connections, messages per second and buffered bytes of one user or pod have
limits, hellos have a deadline, and a peer that does not read is disconnected.
`api.message_handlers` handles the messages.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import structs

from jupyter_gpushare.aio import BackgroundTasks
from jupyter_gpushare.core.model.errors import GpuShareError, InvalidInput
from jupyter_gpushare.messages import (
    FromKernel,
    FromServer,
    KernelHello,
    PeerRefused,
    ServerHello,
    ToKernel,
    ToServer,
    decode,
    encode,
)

from ..state.node import log
from ..system.process_owner import ProcessOwner
from ..system.run_directory import prepare_public_directory
from ..system.tenancy import Tenancy
from .line_stream import LineStream, LineTooLong, UserBudgets
from .peer_log import PeerLog

__all__ = ["SocketConnection", "SocketListener", "SocketServer"]

HELLO: Final[Any] = KernelHello | ServerHello
HELLO_TIMEOUT_S: Final = 5.0
CONNECT_S: Final = 1.0
MAX_PATH_BYTES: Final = 107
"""Longest path of a unix socket in the operating system."""
MAX_HELLO_BYTES: Final = 1 << 14
"""Of a peer that has not authenticated."""
MAX_LINE_BYTES: Final = {"kernel": 1 << 18, "server": 8 << 20}
MAX_UNREAD_BYTES: Final = 8 << 20
"""What a peer may leave unread before it is disconnected."""
MAX_USER_BYTES: Final = 32 << 20
"""What all connections of one user or pod may have in the agent's buffers."""
MAX_LINES_PER_S: Final = 4096
"""Of one user or pod, before they are slowed down."""
MAX_CONNECTIONS: Final = 1024
"""Of one user or pod, when there are others."""
PART_OF_FILES: Final = 4
"""None of them has more connections than this part of the agent's file descriptors."""
NOT_THAT_KERNEL: Final = (
    "the node agent expects no such kernel from this process: it is not registered, its token is"
    " wrong, or the process does not belong to it"
)
"""The same in each case: who knows the id of a foreign kernel learns nothing about it."""
LINES_PER_TURN: Final = 256
"""Lines handled before others have their turn."""


class SocketListener(Protocol):
    """Handles what the socket receives. `greet_*` return why a peer is refused, or None."""

    def greet_kernel(self, hello: KernelHello, connection: SocketConnection) -> str | None: ...
    def greet_server(self, hello: ServerHello, connection: SocketConnection) -> str | None: ...
    def from_kernel(self, kernel_id: str, body: FromKernel) -> None: ...
    def from_server(self, server: str, owner: ProcessOwner, body: FromServer) -> None: ...
    def lost_kernel(self, kernel_id: str, connection: SocketConnection) -> None: ...
    def lost_server(self, server: str, connection: SocketConnection) -> None: ...


class SocketConnection:
    """One connection. `pid` and `owner` come from the operating system, not from the peer."""

    def __init__(self, stream: LineStream) -> None:
        self._stream = stream
        self.pid, self.owner = stream.pid, stream.owner

    def send(self, body: ToKernel | ToServer) -> bool:
        """Send a message; False when the peer is gone. Never blocks."""
        return self._stream.write(encode(body) + b"\n", MAX_UNREAD_BYTES)

    def close(self) -> None:
        """Disconnect."""
        self._stream.close()


class SocketServer:
    """Accepts connections and reads from them. `kernels` and `servers`: those that are open."""

    def __init__(
        self, path: Path, listener: Callable[[], SocketListener], tenancy: Tenancy
    ) -> None:
        self._path, self._listener, self._tenancy = path, listener, tenancy
        self._counts: Counter[ProcessOwner] = Counter()
        self._rates: dict[ProcessOwner, _RateLimit] = {}
        self._files = max(resource.getrlimit(resource.RLIMIT_NOFILE)[0], PART_OF_FILES)
        self.peer_log = PeerLog()
        self.budgets = UserBudgets(MAX_USER_BYTES, self.peer_log)
        self._server: asyncio.Server | None = None
        self._tasks = BackgroundTasks(log)
        self.kernels: dict[str, SocketConnection] = {}
        self.servers: dict[str, SocketConnection] = {}

    # ---- start and stop --------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen. A socket that a dead agent left is replaced; that of a living agent is not.

        Raises InvalidInput (path too long) and GpuShareError (another agent listens).
        """
        if len(os.fsencode(self._path)) > MAX_PATH_BYTES:
            raise InvalidInput(
                f"a unix socket path has at most {MAX_PATH_BYTES} bytes; choose a shorter one",
                field=str(self._path),
            )
        if self._tenancy.is_shared:
            prepare_public_directory(self._path.parent)
        else:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._remove_stale_socket()
        before = os.umask(0o111 if self._tenancy.is_shared else 0o177)
        try:
            self._server = await asyncio.get_running_loop().create_unix_server(
                lambda: LineStream(
                    self.budgets, MAX_HELLO_BYTES, self._accepted, self._tenancy.identify
                ),
                self._path,
            )
        finally:
            os.umask(before)

    async def _remove_stale_socket(self) -> None:
        if not self._path.exists():
            return
        try:
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_unix_connection(self._path)
        except (OSError, TimeoutError):
            self._path.unlink(missing_ok=True)
            return
        writer.close()
        raise GpuShareError(f"another agent listens on {self._path}")

    async def stop(self) -> None:
        """Close all connections; kernels reconnect when an agent is back."""
        if self._server is not None:
            self._server.close()
        await self._tasks.close()
        if self._server is not None:
            self._path.unlink(missing_ok=True)

    # ---- send ------------------------------------------------------------------------------------

    def to_kernel(self, kernel_id: str, body: ToKernel) -> bool:
        """False when it is not connected."""
        connection = self.kernels.get(kernel_id)
        return connection is not None and connection.send(body)

    def to_server(self, server: str, body: ToServer) -> bool:
        """False when it is not connected."""
        connection = self.servers.get(server)
        return connection is not None and connection.send(body)

    # ---- receive ---------------------------------------------------------------------------------

    def _accepted(self, stream: LineStream) -> None:
        self._tasks.spawn(self._converse(stream))

    async def _converse(self, stream: LineStream) -> None:
        try:
            if self._is_allowed(stream):
                await self._counted(stream)
        except LineTooLong:
            self._log_about(stream, "process %d sends too long a line: disconnected")
        except TimeoutError:
            log.debug("process %d sent no hello in time", stream.pid)
        finally:
            await stream.wait_closed()

    def _log_about(self, stream: LineStream, text: str, *args: object) -> None:
        """A warning about the process of a peer."""
        self.peer_log.warning(stream.owner, text, stream.pid, *args)

    def _is_allowed(self, stream: LineStream) -> bool:
        owner = stream.owner
        if stream.peer.problem:
            self._log_about(stream, "process %d of %s is refused: %s", owner, stream.peer.problem)
            _refuse(stream, stream.peer.problem)
            return False
        most = min(MAX_CONNECTIONS, self._files // PART_OF_FILES)
        if self._tenancy.is_shared and self._counts[owner] >= most:
            self._log_about(stream, "process %d: %s has %d connections", owner, most)
            _refuse(stream, f"{owner} has {most} connections already")
            return False
        return True

    async def _counted(self, stream: LineStream) -> None:
        owner = stream.owner
        self._counts[owner] += 1
        try:
            await self._authenticate(stream)
        finally:
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]
                self._rates.pop(owner, None)

    async def _authenticate(self, stream: LineStream) -> None:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            first = await stream.readline()
        try:
            hello: KernelHello | ServerHello = decode(HELLO, first)
        except GpuShareError as error:
            self._log_about(stream, "process %d did not send a hello: %s", error)
            _refuse(stream, f"the first line must be a hello: {error.message}")
            return
        if isinstance(hello, KernelHello):
            await self._serve_kernel(stream, hello)
        else:
            key = self._server_key(hello.server, stream.owner)
            await self._serve_server(stream, structs.replace(hello, server=key))

    async def _serve_kernel(self, stream: LineStream, hello: KernelHello) -> None:
        listener, kernel_id, connection = (
            self._listener(),
            hello.kernel_id,
            SocketConnection(stream),
        )
        problem = listener.greet_kernel(hello, connection)
        if problem:
            self._log_about(stream, "process %d is not kernel %s: %s", kernel_id, problem)
            _refuse(stream, NOT_THAT_KERNEL)
            return
        stream.max_line = MAX_LINE_BYTES["kernel"]
        try:
            await self._read(stream, FromKernel, lambda body: listener.from_kernel(kernel_id, body))
        finally:
            if self.kernels.get(kernel_id) is connection:
                del self.kernels[kernel_id]
            listener.lost_kernel(kernel_id, connection)

    async def _serve_server(self, stream: LineStream, hello: ServerHello) -> None:
        listener, name, connection = self._listener(), hello.server, SocketConnection(stream)
        problem = listener.greet_server(hello, connection)
        if problem:
            self._log_about(stream, "process %d is refused as a server: %s", problem)
            _refuse(stream, problem)
            return
        stream.max_line = MAX_LINE_BYTES["server"]
        try:
            await self._read(
                stream, FromServer, lambda body: listener.from_server(name, stream.owner, body)
            )
        finally:
            if self.servers.get(name) is connection:
                del self.servers[name]
            listener.lost_server(name, connection)

    def _server_key(self, server: str, owner: ProcessOwner) -> str:
        """A server chooses its name itself: the same name of another owner is another server."""
        return server if owner == self._tenancy.default_owner() else f"{owner.key}:{server}"

    async def _read(self, stream: LineStream, kind: Any, handle: Callable[[Any], None]) -> None:
        """Handle all lines. An unreadable line is logged and skipped: a newer peer may have more
        kinds of messages.
        """
        rate, loop = self._rates.setdefault(stream.owner, _RateLimit()), asyncio.get_running_loop()
        count = 0
        while data := await stream.readline():
            try:
                handle(decode(kind, data))
            except GpuShareError as error:
                self._log_about(stream, "process %d: %s", error)
            count += 1
            if count % LINES_PER_TURN == 0:
                # reading does not yield while lines are buffered
                await asyncio.sleep(rate.pause_s(LINES_PER_TURN, loop.time()))


def _refuse(stream: LineStream, message: str) -> None:
    """Says why, if the peer reads it: the connection is closed next."""
    stream.write(encode(PeerRefused(message=message)) + b"\n", MAX_UNREAD_BYTES)


class _RateLimit:
    """Lines of one user or pod, over all connections."""

    def __init__(self) -> None:
        self._count, self._since = 0, 0.0

    def pause_s(self, lines: int, now: float) -> float:
        """So many more were handled: seconds to wait before the next."""
        if now - self._since >= 1:
            self._count, self._since = 0, now
        self._count += lines
        return 0.1 if self._count >= MAX_LINES_PER_S else 0.0
