"""Kernels that end with the program that registered them: nbconvert, papermill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

from tests.agent.simulated_node import ROOT, World, play

HALF = 40 * 1024
TOOL = """
import json, os, socket, subprocess, sys
path, kernel_id, mode = sys.argv[1:]
link = socket.socket(socket.AF_UNIX)
link.connect(path)
lines = link.makefile("rw")
def send(**message):
    lines.write(json.dumps(message) + "\\n")
    lines.flush()
send(type="server_hello", server="tool", pid=os.getpid())
request = {"type": "kernel_outlook", "kernel_id": kernel_id, "pending": mode == "waits"}
send(type="register_kernel", n=1, kernel_id=kernel_id, ends_with_server=True, gate="none",
     request=request)
for line in lines:
    message = json.loads(line)
    if message["type"] == "registered":
        break
if mode == "runs":
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    kernel = subprocess.Popen(sleep, env={**os.environ, **message["env"]}, start_new_session=True)
    send(type="kernel_launched", kernel_id=kernel_id, pid=kernel.pid)
print("ready", flush=True)
for line in lines:
    pass
"""


@contextlib.asynccontextmanager
async def tool(world: World, kernel_id: str, mode: str):
    """A program that registers one kernel, and launches it or waits for its grant."""
    path = str(world.config.socket_path())
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TOOL, path, kernel_id, mode, stdout=-1, cwd=ROOT, env=os.environ
    )
    try:
        assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        process._transport.close()


def test_a_killed_tool_takes_its_kernel_and_its_lease_with_it():
    async def story():
        async with World(grace_ms=600_000) as world:
            world.scheduler.grant("k", gpu=0, request=HALF)
            async with tool(world, "k", "runs") as process:
                await world.attached("k")
                main = world.record("k").process.main
                process.kill()
                await world.until(lambda: "k" not in world.agent.node.kernels, "the kernel ended")
            assert not main.is_alive()
            await world.until(lambda: not world.scheduler.leases, "the lease is released")

    play(story())


def test_a_kernel_ends_with_its_tool_after_a_restart_of_the_agent_too():
    async def story():
        async with World(grace_ms=600_000) as world:
            world.scheduler.grant("k", gpu=0, request=HALF)
            async with tool(world, "k", "runs") as process:
                await world.attached("k")
                main = world.record("k").process.main
                await world.server.disconnect()
                await world.agent.stop()
                await world.start_agent()
                await world.server.connect()
                assert world.record("k").process.main == main
                process.kill()
                await world.until(lambda: "k" not in world.agent.node.kernels, "the kernel ended")
            assert not main.is_alive()

    play(story())


def test_a_kernel_whose_tool_waits_for_the_grant_is_kept(monkeypatch):
    from node_agent.reconcile import lifecycle

    monkeypatch.setattr(lifecycle, "STARTING_MS", 0)

    async def story():
        async with World(grace_ms=0) as world, tool(world, "k", "waits") as process:
            await world.until(lambda: world.record("k").has_pending_request, "registered")
            for _ in range(3):
                world.agent.node.wake()
                await asyncio.sleep(0)
            world.agent.reconciler.try_step()
            assert "k" in world.agent.node.kernels
            process.kill()
            await world.until(lambda: "k" not in world.agent.node.kernels, "the kernel ended")

    play(story())
