"""Client of this machine's node agent: one unix socket connection that reconnects."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
from logging import Logger
from typing import Final, Protocol

from msgspec import structs

from jupyter_gpushare.aio import Backoff
from jupyter_gpushare.core.model.errors import GpuShareError, Unavailable
from jupyter_gpushare.messages import (
    FromServer,
    KernelActionDone,
    KernelActionRequest,
    PeerRefused,
    Registered,
    RegisterKernel,
    ServerHello,
    ServerWelcome,
    StartPreviewed,
    StartPreviewRequest,
    TiersFound,
    ToServer,
    decode,
    encode,
    error_of,
)

__all__ = ["AgentClient", "AgentListener"]

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
"""Short: an attempt is cheap, and kernels start without a GPU while the agent is unreachable."""
LONGEST_LINE: Final = 8 << 20
LONGEST_BACKLOG: Final = 4 << 20
"""Bytes that may be queued for an agent that does not read; with more, the client reconnects."""
NO_AGENT: Final = "this server's node shares no GPU"
NO_ANSWER: Final = "the node agent of this machine does not answer"


class AgentListener(Protocol):
    """Receives the agent's messages, in the event loop."""

    def agent_connected(self, welcome: ServerWelcome) -> None:
        """At every (re)connection."""

    def agent_message(self, message: ToServer) -> None:
        """For every message that answers no call."""


class AgentClient:
    """`is_optional`: this server's node may share no GPU, and then has no agent."""

    def __init__(self, path: str, log: Logger, *, is_optional: bool = False) -> None:
        self.path, self._is_optional = path, is_optional
        self.welcome: ServerWelcome | None = None
        """The agent's welcome at the last connection; kept while the agent is unreachable."""
        self.refusal = ""
        """Why the agent refuses this server; "": it does not, or has not been reached."""
        self.connected = asyncio.Event()
        self._log = log
        self._server = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[ToServer]] = {}
        self._writer: asyncio.StreamWriter | None = None

    @property
    def missing(self) -> str | None:
        """Why there is no agent to wait for; None: there is one, or has been."""
        is_expected = not self._is_optional or self.welcome is not None
        return None if is_expected or os.path.exists(self.path) else NO_AGENT

    @property
    def problem(self) -> str | None:
        """Why no agent will welcome this server; None: one does, or may yet."""
        return self.missing or self.refusal or None

    async def run(self, listener: AgentListener) -> None:
        """Connect and reconnect until cancelled."""
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            try:
                await self._converse(listener)
                backoff.reset()
            except (OSError, ValueError, GpuShareError) as error:
                self._log.debug("gpushare: node agent at %s: %s", self.path, error)
            finally:
                self._disconnected()
            await backoff.sleep()

    async def _converse(self, listener: AgentListener) -> None:
        reader, writer = await asyncio.open_unix_connection(self.path, limit=LONGEST_LINE)
        try:
            writer.write(encode(ServerHello(server=self._server, pid=os.getpid())) + b"\n")
            while line := await reader.readline():
                message: ToServer = decode(ToServer, line)  # type: ignore[arg-type]  # a union
                self._received(message, writer, listener)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _received(
        self, message: ToServer, writer: asyncio.StreamWriter, listener: AgentListener
    ) -> None:
        match message:
            case ServerWelcome():
                self.welcome, self._writer, self.refusal = message, writer, ""
                self.connected.set()
                listener.agent_connected(message)
            case PeerRefused(message=why):
                self._refused(f"the node agent of this machine refuses this server: {why}")
            case Registered(n=n) | KernelActionDone(n=n) | StartPreviewed(n=n):
                answer = self._answers.get(n)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case TiersFound(tiers=tiers, tier_problems=problems) if self.welcome is not None:
                self.welcome = structs.replace(self.welcome, tiers=tiers, tier_problems=problems)
                listener.agent_message(message)
            case _:
                listener.agent_message(message)

    def _refused(self, problem: str) -> None:
        if problem != self.refusal:
            self._log.warning("gpushare: %s", problem)
        self.refusal = problem

    def _disconnected(self) -> None:
        self._writer = None
        self.connected.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(
                    Unavailable("the node agent of this machine disconnected before it answered")
                )

    async def known_kernels(self, within: float) -> set[str]:
        """Ids of all kernels that the agent knows now, of any server. Uses a new connection.

        Raises:
            Unavailable: no answer within `within` seconds.
        """
        try:
            async with asyncio.timeout(within):
                reader, writer = await asyncio.open_unix_connection(self.path, limit=LONGEST_LINE)
                try:
                    hello = ServerHello(server=secrets.token_hex(8), pid=os.getpid())
                    writer.write(encode(hello) + b"\n")
                    welcome = decode(ServerWelcome, await reader.readline())
                finally:
                    writer.close()
        except (OSError, ValueError, TimeoutError, GpuShareError):
            raise Unavailable(self.refusal or NO_ANSWER) from None
        return {kernel.kernel_id for kernel in welcome.kernels}

    def send(self, message: FromServer) -> bool:
        """Queue a message; False: not connected. The listener sends the state when it connects."""
        if self._writer is None:
            return False
        self._writer.write(encode(message) + b"\n")
        if self._writer.transport.get_write_buffer_size() > LONGEST_BACKLOG:
            self._writer.transport.abort()
        return True

    def next_number(self) -> int:
        """A number for a message that is answered."""
        return next(self._numbers)

    async def register(self, message: RegisterKernel, within: float) -> Registered:
        """The environment for a kernel, and its token if the agent does not write it to a file.

        Raises:
            Unavailable: no answer within `within` seconds.
            GpuShareError: the agent's error.
        """
        answer = await self._call(message, within)
        assert isinstance(answer, Registered)
        if answer.error is not None:
            raise error_of(answer.error)
        return answer

    async def act(self, message: KernelActionRequest, within: float) -> None:
        """Suspend, resume, pin or unpin a kernel.

        Raises:
            Unavailable: no answer within `within` seconds.
            GpuShareError: the agent's error.
        """
        answer = await self._call(message, within)
        assert isinstance(answer, KernelActionDone)
        if answer.error is not None:
            raise error_of(answer.error)

    async def preview(self, message: StartPreviewRequest, within: float) -> StartPreviewed:
        """What starting a share on this node would change for other notebooks.

        Raises:
            Unavailable: no answer within `within` seconds.
            GpuShareError: the agent's error.
        """
        answer = await self._call(message, within)
        assert isinstance(answer, StartPreviewed)
        if answer.error is not None:
            raise error_of(answer.error)
        return answer

    async def _call(
        self, message: RegisterKernel | KernelActionRequest | StartPreviewRequest, within: float
    ) -> ToServer:
        answer: asyncio.Future[ToServer] = asyncio.get_running_loop().create_future()
        self._answers[message.n] = answer
        try:
            async with asyncio.timeout(within):
                await self.connected.wait()
                self.send(message)
                return await answer
        except TimeoutError:
            raise Unavailable(self.refusal or NO_ANSWER) from None
        finally:
            self._answers.pop(message.n, None)
            answer.cancel()
