"""A network with character between clients and a scheduler: slow, cut, and late."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class RoughNetwork:
    """A TCP proxy; port 0: to a unix socket of that name. `delay_s`: the longest that a piece
    waits, each for a time of its own (so connections overtake one another).

    `cut` ends every connection on the client's side at once. On the server's side they live on for
    `late_s`, and what was under way still arrives there: the server hears two connections of one
    agent, the older one last.
    """

    def __init__(self, host: str, port: int, dice: random.Random) -> None:
        self._upstream, self._dice = (host, port), dice
        self.delay_s = self.late_s = 0.0
        self._clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_up = True
        self.cuts = 0
        self.passing = asyncio.Event()
        """While it is not set, nothing arrives and nothing ends: what was said waits."""
        self.passing.set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Gives its address."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self.cuts += 1
        for client in self._clients:
            client.transport.abort()
        self._clients.clear()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_up:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await self._dial()
        except OSError:
            writer.transport.abort()
            return
        self._clients.add(writer)
        down = asyncio.create_task(self._pump(up_reader, writer))
        try:
            await self._pump(reader, up_writer)
            await asyncio.sleep(self.late_s)
        finally:
            down.cancel()
            self._clients.discard(writer)
            for end in (up_writer, writer):
                end.transport.abort()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._upstream
        return await (
            asyncio.open_connection(host, port) if port else asyncio.open_unix_connection(host)
        )

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await asyncio.sleep(self._dice.uniform(0, self.delay_s))
                await self.passing.wait()
                writer.write(data)
                await writer.drain()
