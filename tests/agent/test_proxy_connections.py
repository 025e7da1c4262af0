"""The proxy of a kernel connects in the kernel's place: with the kernel's token, and started for
this kernel.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from jupyter_gpushare.kernel.protocol import PROTOCOL
from tests.agent.simulated_node import World, play

CONNECTS = """
import json, socket, sys
agent = socket.socket(socket.AF_UNIX)
agent.connect(sys.argv[1])
hello = {"type": "kernel_hello", "kernel_id": "a", "pid": 1, "protocol": PROTOCOL, "proxy": True}
agent.sendall(json.dumps({**hello, "token": open(sys.argv[2]).read()}).encode() + b"\\n")
print(agent.makefile().readline(), flush=True)
cell = {"type": "cell_start", "n": 1}
agent.sendall(json.dumps(cell).encode() + b"\\n")
sys.stdin.read()
"""


async def connect(world: World, env: dict[str, str], **marker: str):
    """A process that says it is the proxy of kernel `a`; its first answer."""
    code = CONNECTS.replace("PROTOCOL", str(PROTOCOL))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, env["GPUSHARE_AGENT"], env["GPUSHARE_TOKEN_FILE"]),
        env={**os.environ, **marker},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    return process, (await process.stdout.readline()).decode().strip()


async def ended(process) -> None:
    process.stdin.close()
    await process.wait()
    process._transport.close()


def test_a_proxy_is_no_process_of_its_kernel():
    """Its cells wait at the agent before the kernel's process is known, and stay waiting then."""

    async def story():
        async with World() as world:
            env = (await world.server.register("a", wants_gpu=True, language="R")).env
            proxy, welcome = await connect(world, env, GPUSHARE_PROXY_OF="a")
            assert json.loads(welcome)["type"] == "kernel_welcome"
            kernel = world.record("a")
            await world.until(lambda: kernel.gate.waiting, "its cell waits")
            assert kernel.process.main is None
            assert kernel.has_gate(world.agent.node.clock())
            kernel.process_started(world.agent.node.clock(), relaunched=False)
            assert kernel.gate.waiting
            await ended(proxy)
            await world.until(lambda: not kernel.gate.connected, "it is disconnected")
            assert not kernel.gate.waiting

    play(story())


def test_a_process_that_was_started_for_another_kernel_is_refused():
    async def story():
        async with World() as world:
            env = (await world.server.register("a", language="R")).env
            for marker in ({}, {"GPUSHARE_PROXY_OF": "b"}):
                proxy, welcome = await connect(world, env, **marker)
                assert json.loads(welcome)["type"] == "refused"
                await ended(proxy)

    play(story())
