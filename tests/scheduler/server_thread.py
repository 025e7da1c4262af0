"""A house with its server in a thread of its own, for tools that wait for their answers."""

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
    """`url`, `admin_token`, and `run` for what must be done on the house's own loop."""

    def __init__(self, running: RunningServer, loop: asyncio.AbstractEventLoop) -> None:
        self.running, self._loop = running, loop
        self.url, self.admin_token = running.url, running.admin_token

    def run(self, question: Any) -> Any:
        """Asks a coroutine of the house's loop, and waits for it."""
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

    thread = threading.Thread(target=lambda: asyncio.run(live()), name="house")
    thread.start()
    try:
        assert ready.wait(30), "the house did not start"
        yield started[0]
    finally:
        over.set()
        thread.join(30)
