"""What a restarted agent finds: kernels, copies, leases, and a scheduler that was away."""

from __future__ import annotations

import asyncio

from jupyter_gpushare.messages import AgentHello, LeaseChanged, LeaseReleased
from node_agent.system.processes import process_at
from tests.agent.simulated_node import GIB, World, play

HALF = 40 * GIB
ORPHAN = """
import subprocess, sys
command = [sys.executable, "-c", "import time; time.sleep(600)"]
result = subprocess.Popen(command, start_new_session=True).pid
"""


def released(world: World) -> list[LeaseReleased]:
    return [body for body in world.scheduler.heard if isinstance(body, LeaseReleased)]


def is_gone(pid: int) -> bool:
    return process_at(pid) is None


def test_a_released_lease_is_reported_until_it_is_acknowledged_also_after_a_restart():
    async def story():
        async with World(grace_ms=100) as world:
            world.scheduler.acknowledges = False
            world.scheduler.grant("lost", gpu=0, request=HALF)
            await world.until(lambda: released(world), "released")
            await restart_agent(world)
            count = len(released(world))
            await world.until(lambda: len(released(world)) > count, "said again")
            assert list(world.agent.node.unacknowledged) == ["lost.1/kernel"]
            world.scheduler.acknowledges = True
            world.scheduler.end("lost")
            await world.until(lambda: not world.agent.node.unacknowledged, "acknowledged")

    play(story())


async def restart_agent(world: World) -> None:
    """As after kill -9: nothing is said to anybody, the tasks just stop, the journal is what was
    written before.
    """
    await asyncio.sleep(0.1)
    agent = world.agent
    await agent._tasks.close()
    await agent.socket_server.stop()
    await agent.lifecycle.close()
    agent.devices.close()
    await world.start_agent()
    await world.server.connect()


def test_a_new_agent_finds_its_kernels_and_they_go_on():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            b = await world.server.launch("b")
            world.scheduler.grant("a", gpu=0, request=HALF)
            world.scheduler.grant("b", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('50GiB')); bufs[0].fill(3)")
            await b.run("bufs.append(simgpu.alloc('50GiB')); bufs[0].fill(4)")
            await b.ask("suspend")
            homes = {name: world.record(name).assignment.assigned_gpus for name in "ab"}
            mark = a.start("simgpu.busy(1); result = bufs[0].sum() / bufs[0].nbytes")
            await a.hear("running", mark)
            await restart_agent(world)
            await world.until(
                lambda: world.record("a").gate.connected and world.record("b").gate.connected,
                "both are back",
            )
            await world.until(
                lambda: world.record("a").gate.running and not world.record("b").gate.running,
                "a says that its cell is running",
            )
            assert {name: world.record(name).assignment.assigned_gpus for name in "ab"} == homes
            assert (await a.hear("done", mark))["result"] == 3
            assert (await b.run("result = bufs[0].sum() / bufs[0].nbytes"))["result"] == 4
            assert {
                report.lease
                for report in world.scheduler.heard[-1:]
                if isinstance(report, AgentHello)
            } == set()
            assert released(world) == []

    play(story())


def test_copies_that_a_dead_agent_left_half_done_are_settled():
    """LOCKED: unlocked, the cell continues. CHECKPOINTED: suspended until the next cell."""

    async def story():
        async with World() as world:
            for name in "ab":
                child = await world.server.launch(name)
                world.scheduler.grant(name, gpu=0, request=HALF)
                await child.run("bufs.append(simgpu.alloc('30GiB')); bufs[0].fill(9)")
            await asyncio.sleep(0.1)
            node = world.devices._node
            pids = {name: world.record(name).process.main for name in "ab"}
            world.agent.reconciler.try_step = lambda: None
            node.lock(pids["a"].pid, pids["a"].start)
            node.lock(pids["b"].pid, pids["b"].start)
            node.checkpoint(pids["b"].pid, pids["b"].start)
            await restart_agent(world)
            for name in "ab":
                await world.until(lambda name=name: world.record(name).gate.connected, "back")
                result = await world.server.kernels[name].run(
                    "result = bufs[0].sum() == 9 * bufs[0].nbytes"
                )
                assert result["result"] is True
            assert "lost" not in world.scheduler.kinds("a") + world.scheduler.kinds("b")

    play(story())


def test_a_kernel_that_died_while_no_agent_was_there_is_released():
    async def story():
        async with World(grace_ms=200) as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await a.run("bufs.append(simgpu.alloc('50GiB'))")
            await asyncio.sleep(0.1)
            agent = world.agent
            await agent.stop()
            await a.end()
            await world.start_agent()
            await world.server.connect()
            await world.until(lambda: released(world), "released")
            assert world.used() == {0: 0, 1: 0}

    play(story())


def test_a_silent_scheduler_changes_nothing_and_learns_everything_when_it_is_back():
    async def story():
        async with World() as world:
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=HALF)
            await world.attached("a")
            world.scheduler.cut()
            assert "result" in await a.run("bufs.append(simgpu.alloc('70GiB'))")
            world.scheduler.silent = False
            count = len(world.scheduler.heard)
            await world.until(
                lambda: any(
                    isinstance(body, LeaseChanged) for body in world.scheduler.heard[count:]
                ),
                "reported",
            )
            hello = next(
                body for body in world.scheduler.heard[count:] if isinstance(body, AgentHello)
            )
            assert [lease.lease for lease in hello.leases] == ["a.1/kernel"]
            assert hello.leases[0].memory_mib.used == 70 * GIB

    play(story())


def test_idle_suspended_kernels_stay_suspended_when_the_agent_restarts():
    """Not knowing whether a cell runs is no reason to bring 70 GiB back."""

    async def story():
        async with World(gpus=1) as world:
            for name in "ab":
                child = await world.server.launch(name)
                world.scheduler.grant(name, gpu=0, request=HALF)
                await world.attached(name)
                await child.run("bufs.append(simgpu.alloc('70GiB')); bufs[0].fill(1)")
            await restart_agent(world)
            await world.until(
                lambda: world.record("a").gate.connected and world.record("b").gate.connected,
                "both are back",
            )
            await asyncio.sleep(0.5)
            assert world.record("a").memory.suspended
            assert world.record("b").memory.used_mib == 70 * GIB
            assert (
                await world.server.kernels["a"].run("result = bufs[0].sum() == bufs[0].nbytes")
            )["result"] is True

    play(story())
