"""The agent's link ends when its token is replaced, and nothing else changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from jupyter_gpushare.core.model.errors import Unavailable
from jupyter_gpushare.messages import AgentHello
from node_agent.api.link_renewal import renewed_with_token
from node_agent.app import Agent
from tests.agent.simulated_node import GIB, World, play


class RotatingNode(World):
    """Its agent reads a token from a file."""

    async def start_agent(self) -> None:
        await super().start_agent()
        self.file: Path = self.state_dir / "token"
        self.file.write_text("first")
        await self.agent.stop()
        link = renewed_with_token(self.scheduler.link, self._token, check_s=0.01)
        self.devices = self.make_devices()
        self.agent = Agent(self.config, self.devices, link)
        await self.agent.start()

    def _token(self) -> str:
        try:
            return self.file.read_text()
        except OSError:
            raise Unavailable("the token file cannot be read") from None

    def hellos(self) -> list[AgentHello]:
        return [body for body in self.scheduler.heard if isinstance(body, AgentHello)]


def test_a_replaced_token_reopens_the_link_and_kernels_go_on():
    async def story():
        async with RotatingNode(gpus=1) as node:
            kernel = await node.server.launch("a")
            node.scheduler.grant("a", gpu=0, request=40 * GIB)
            await node.attached("a")
            main, before = node.record("a").process.main, len(node.hellos())
            mark = kernel.start("simgpu.busy(0.5); result = bufs")
            node.file.unlink()
            await asyncio.sleep(0.1)
            assert len(node.hellos()) == before, "a token that cannot be read is no new one"
            for number in range(2):
                node.file.write_text(f"next {number}")
                await node.until(
                    lambda number=number: len(node.hellos()) == before + 1 + number, "a new link"
                )
            assert [lease.lease for lease in node.hellos()[-1].leases] == [
                node.record("a").lease.id
            ]
            assert (await kernel.hear("done", mark))["result"] == []
            assert node.record("a").process.main == main
            assert node.record("a").assignment.attached
            assert node.server.kinds("a").count("attached") == 1

    play(story())


def test_messages_pass_until_then():
    class Link:
        async def send(self, body):
            sent.append(body)

        async def __aiter__(self):
            yield "one"
            yield "two"
            await asyncio.Event().wait()

    class Opened:
        async def __aenter__(self):
            return Link()

        async def __aexit__(self, *_):
            sent.append("closed")

    sent, received, tokens = [], [], ["first"]

    async def story():
        async with renewed_with_token(Opened, lambda: tokens[0], check_s=0.01)() as link:
            await link.send("hello")
            async for message in link:
                received.append(message)
                if message == "two":
                    tokens[0] = "second"

    asyncio.run(asyncio.wait_for(story(), 10))
    assert (sent, received) == (["hello", "closed"], ["one", "two"])
