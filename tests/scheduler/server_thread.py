"""A server in its own thread, for blocking test tools."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.scheduler.agents import FakeAgent
from tests.scheduler.running_server import RunningServer, open_server


class ServerThread:
    """`url`, `admin_token`, and `run` for coroutines on the server's loop."""

    def __init__(self, running: RunningServer, loop: asyncio.AbstractEventLoop) -> None:
        self.running, self._loop = running, loop
        self.url, self.admin_token = running.url, running.admin_token

    def run(self, question: Any) -> Any:
        """Runs a coroutine on the server's loop and waits for its result."""
        return asyncio.run_coroutine_threadsafe(question, self._loop).result(60)

    def is_alive(self) -> bool:
        """It answers, decides, and its agent is linked."""
        return self.run(self._status()) == ["n0"]

    async def _status(self) -> list[str]:
        return (await self.running.admin.status()).agents


@contextmanager
def server_in_thread(folder: Path, **options: Any) -> Iterator[ServerThread]:
    started: list[ServerThread] = []
    ready, over = threading.Event(), threading.Event()

    async def live() -> None:
        async with open_server(folder, **options) as running, FakeAgent().linked(running.admin):
            started.append(ServerThread(running, asyncio.get_running_loop()))
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(live()), name="server")
    thread.start()
    try:
        assert ready.wait(30), "the server did not start"
        yield started[0]
    finally:
        over.set()
        thread.join(30)
