"""The Jupyter server's line to the node agent of its machine: one unix socket that comes back by
itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
from collections.abc import Callable
from logging import Logger
from typing import Final

from msgspec import structs

from jupyter_gpushare.aio import Backoff
from jupyter_gpushare.core.model.errors import GpuShareError, Unavailable
from jupyter_gpushare.messages import (
    FromServer,
    KernelActionDone,
    KernelActionRequest,
    Registered,
    RegisterKernel,
    ServerHello,
    ServerWelcome,
    TiersFound,
    ToServer,
    decode,
    encode,
    error_of,
)

__all__ = ["AgentClient"]

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
"""Short: an attempt costs next to nothing, and kernels start without a GPU while the line is down.
"""
LONGEST_LINE: Final = 8 << 20
LONGEST_BACKLOG: Final = 4 << 20
"""Bytes that may wait for an agent that does not read; more, and the line is given up and made
anew.
"""


class AgentClient:
    """`on_welcome` is called at every (re)connection, `on_message` for everything else that is no
    answer; both in the event loop.
    """

    def __init__(
        self,
        path: str,
        log: Logger,
        on_welcome: Callable[[ServerWelcome], None],
        on_message: Callable[[ToServer], None],
    ) -> None:
        self.path = path
        self.welcome: ServerWelcome | None = None
        """What the agent said at the last connection; kept while it is away."""
        self.connected = asyncio.Event()
        self._log = log
        self._on_welcome = on_welcome
        self._on_message = on_message
        self._server = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[ToServer]] = {}
        self._writer: asyncio.StreamWriter | None = None

    async def run(self) -> None:
        """Connect and come back until cancelled."""
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            try:
                await self._converse()
                backoff.reset()
            except (OSError, ValueError, GpuShareError) as error:
                self._log.debug("gpushare: node agent at %s: %s", self.path, error)
            finally:
                self._lost()
            await backoff.sleep()

    async def _converse(self) -> None:
        reader, writer = await asyncio.open_unix_connection(self.path, limit=LONGEST_LINE)
        try:
            writer.write(encode(ServerHello(server=self._server, pid=os.getpid())) + b"\n")
            while line := await reader.readline():
                self._received(decode(ToServer, line), writer)  # type: ignore[arg-type]  # a union is a type to msgspec
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _received(self, message: ToServer, writer: asyncio.StreamWriter) -> None:
        match message:
            case ServerWelcome():
                self.welcome, self._writer = message, writer
                self.connected.set()
                self._on_welcome(message)
            case Registered(n=n) | KernelActionDone(n=n):
                answer = self._answers.get(n)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            case TiersFound(tiers=tiers, tier_problems=problems) if self.welcome is not None:
                self.welcome = structs.replace(self.welcome, tiers=tiers, tier_problems=problems)
                self._on_message(message)
            case _:
                self._on_message(message)

    def _lost(self) -> None:
        self._writer = None
        self.connected.clear()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(
                    Unavailable("the node agent of this machine went away before it answered")
                )

    async def known_kernels(self, within: float) -> set[str]:
        """Ids of all kernels that the agent knows now, whichever server started them; asked over a
        line of its own.

        Raises:
            Unavailable: no answer within `within` seconds.
        """
        try:
            async with asyncio.timeout(within):
                reader, writer = await asyncio.open_unix_connection(self.path, limit=LONGEST_LINE)
                try:
                    writer.write(
                        encode(ServerHello(server=secrets.token_hex(8), pid=os.getpid())) + b"\n"
                    )
                    welcome = decode(ServerWelcome, await reader.readline())
                finally:
                    writer.close()
        except (OSError, ValueError, TimeoutError, GpuShareError):
            raise Unavailable("the node agent of this machine does not answer") from None
        return {kernel.kernel_id for kernel in welcome.kernels}

    def tell(self, message: FromServer) -> bool:
        """Whether the line stands; what could not be told is told by `on_welcome` at the next
        connection.
        """
        if self._writer is None:
            return False
        self._writer.write(encode(message) + b"\n")
        if self._writer.transport.get_write_buffer_size() > LONGEST_BACKLOG:
            self._writer.transport.abort()
        return True

    def number(self) -> int:
        """A fresh number for a message whose answer nobody waits for."""
        return next(self._numbers)

    async def register(self, message: RegisterKernel, within: float) -> dict[str, str]:
        """The environment for a kernel.

        Raises:
            Unavailable: no answer within `within` seconds.
            GpuShareError: the agent refused; its words.
        """
        answer = await self._ask(message, within)
        assert isinstance(answer, Registered)
        if answer.error is not None:
            raise error_of(answer.error)
        return answer.env

    async def act(self, message: KernelActionRequest, within: float) -> None:
        """Suspend, resume, pin or unpin.

        Raises:
            Unavailable: no answer within `within` seconds.
            GpuShareError: the agent refused; its words.
        """
        answer = await self._ask(message, within)
        assert isinstance(answer, KernelActionDone)
        if answer.error is not None:
            raise error_of(answer.error)

    async def _ask(self, message: RegisterKernel | KernelActionRequest, within: float) -> ToServer:
        answer: asyncio.Future[ToServer] = asyncio.get_running_loop().create_future()
        self._answers[message.n] = answer
        try:
            async with asyncio.timeout(within):
                await self.connected.wait()
                self.tell(message)
                return await answer
        except TimeoutError:
            raise Unavailable("the node agent of this machine does not answer") from None
        finally:
            self._answers.pop(message.n, None)
            answer.cancel()
