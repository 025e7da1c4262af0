"""A kernel that Jupyter shuts down or restarts loses its GPU memory, and that is no error."""

from __future__ import annotations

import os
import signal
import time

import pytest

from jupyter_gpushare.messages import KernelEnding, KernelGone
from node_agent.system.processes import ProcessId
from tests.agent.simulated_node import GIB, World, play

HALF = 40 * GIB


async def kernel_with_memory(world: World):
    a = await world.server.launch("a")
    world.scheduler.grant("a", gpu=0, request=HALF)
    await a.run("bufs.append(simgpu.alloc('1GiB'))")
    await world.until(lambda: world.record("a").memory.used_mib, "the agent knows its memory")
    return a


def kill_and_wait(pid: int, main: ProcessId) -> None:
    """Blocks the event loop, so that the agent does not handle the exit."""
    os.kill(pid, signal.SIGKILL)
    while main.is_alive():
        time.sleep(0.001)


@pytest.mark.parametrize("requested", [True, False], ids=["requested", "crash"])
def test_only_an_unrequested_end_reports_lost_memory(requested: bool):
    async def story():
        async with World() as world:
            a = await kernel_with_memory(world)
            if requested:
                world.server.send(KernelEnding(kernel_id="a"))
                await world.until(lambda: world.record("a").process.end_requested, "it is noted")
            await a.end()
            await world.until(lambda: world.record("a").process.main is None, "it has ended")
            if requested:
                assert [event.kind for event in world.record("a").published.events] == ["attached"]
            else:
                await world.until(lambda: "lost" in world.server.kinds("a"), "it is reported")

    play(story())


def test_a_crash_after_a_requested_restart_reports_lost_memory():
    async def story():
        async with World() as world:
            a = await kernel_with_memory(world)
            world.server.send(KernelEnding(kernel_id="a"))
            await a.end()
            world.server.send(KernelGone(kernel_id="a", restarting=True))
            await world.until(lambda: world.record("a").process.main is None, "it has ended")
            again = await world.server.launch("a")
            await world.attached("a")
            await again.run("bufs.append(simgpu.alloc('1GiB'))")
            await world.until(lambda: world.record("a").memory.used_mib, "its memory is known")
            await again.end()
            await world.until(lambda: "lost" in world.server.kinds("a"), "the crash is reported")

    play(story())


def test_a_reading_between_a_crash_and_its_signal_hides_no_lost_memory():
    """The driver frees the memory of a process before its pidfd becomes readable."""

    async def story():
        async with World() as world:
            a = await kernel_with_memory(world)
            record, agent = world.record("a"), world.agent
            kill_and_wait(a.pid, record.process.main)
            agent.reconciler.try_step()
            assert (record.process.main is not None, record.memory.used_mib) == (True, 0)
            await world.until(lambda: "lost" in world.server.kinds("a"), "it is reported")

    play(story())
