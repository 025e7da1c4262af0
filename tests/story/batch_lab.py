"""A scheduler and an agent for tests of batch commands."""

from __future__ import annotations

import asyncio
import getpass
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from jupyter_gpushare import messages as m
from jupyter_gpushare.scheduler.embedded import EmbeddedServer

ME = getpass.getuser()
TIMEOUT_S = 40
POLICY = """\
projects:
  - {name: vision, pools: {default: {gpu: {quota: 2}}}}
  - {name: night, pools: {default: {gpu: {quota: 0}}}}
defaults: {notice: 5s}
"""


class Lab:
    """A scheduler and an agent with two simulated GPUs, which can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "gpushare.yaml").write_text(POLICY)

    async def up(self) -> None:
        self.server = EmbeddedServer(
            self.folder / "state",
            simulate="A100:2",
            policy_file=self.folder / "gpushare.yaml",
            user=ME,
        )
        await self.server.start()
        self.client = self.server.client

    async def down(self) -> None:
        await self.server.stop()

    async def submit(
        self, script: str, id_: str = "w", *, pods: int = 1, gpu: float = 1, **more: object
    ) -> None:
        more.setdefault("project", "vision")
        command = m.CommandRequest(
            argv=["sh", "-c", script], cwd=str(self.folder), env={"PYTHON": sys.executable}
        )
        asked = [m.PodRequest(name=str(i), gpu=gpu) for i in range(pods)]
        await self.client.submit(m.WorkloadRequest(id=id_, pods=asked, command=command, **more))

    async def until(self, id_: str, seen: Callable[[m.WorkloadView], bool]) -> m.WorkloadView:
        deadline = time.monotonic() + TIMEOUT_S
        while not seen(view := await self.client.workload(id_)):
            assert time.monotonic() < deadline, (view, await self.printed(id_))
            await asyncio.sleep(0.05)
        return view

    async def over(self, id_: str = "w") -> m.WorkloadView:
        return await self.until(id_, lambda view: view.state == "ended")

    async def printed(self, id_: str = "w") -> str:
        found, cursor = "", 0
        while (logs := await self.client.logs(id_, cursor=cursor)).lines:
            cursor, found = logs.cursor, found + "".join(line.text for line in logs.lines)
        return found

    async def file(self, name: str) -> str:
        """Its content, once it exists."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (self.folder / name).is_file() or not (self.folder / name).read_text():
            assert time.monotonic() < deadline, name
            await asyncio.sleep(0.02)
        return (self.folder / name).read_text()


@asynccontextmanager
async def lab(folder: Path) -> AsyncIterator[Lab]:
    here = Lab(folder)
    await here.up()
    try:
        yield here
    finally:
        for one in (await here.client.workloads()).workloads:
            await here.client.end(one.id)
        deadline = time.monotonic() + TIMEOUT_S
        while (
            any(
                kernel.process.main is not None
                for kernel in here.server._agent.node.kernels.values()
            )
            and time.monotonic() < deadline
        ):
            await asyncio.sleep(0.05)
        await here.down()


def story(folder: Path, scenario: Callable[[Lab], object]) -> None:
    async def run() -> None:
        async with lab(folder) as here:
            await scenario(here)

    asyncio.run(run())


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
