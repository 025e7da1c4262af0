"""Kernels whose cells do not ask before they run: what they see, what their user sees."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

import pytest

from jupyter_gpushare.messages import KernelLaunched, LeaseChanged
from node_agent.state import kernel_record
from tests.agent.nvidia_node import GpuNode
from tests.agent.simulated_node import World, play

HALF = 40 * 1024


@contextlib.asynccontextmanager
async def silent_kernel(world: World, name: str, **registration):
    """A kernel process that never connects to the agent."""
    registered = await world.server.register(name, **registration)
    sleep = (sys.executable, "-c", "import time; time.sleep(60)")
    process = await asyncio.create_subprocess_exec(*sleep, env=os.environ | registered.env)
    world.server.send(KernelLaunched(kernel_id=name, pid=process.pid))
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        process._transport.close()


async def reported(world: World, name: str, state: str):
    """The kernel as its server sees it, in this state."""
    seen = world.server.reported
    await world.until(lambda: seen[name].state == state, f"{name} is reported {state}")
    return seen[name]


@pytest.fixture
def soon_ungated(monkeypatch):
    """A kernel that has not connected is ungated at once, and not after 15 s."""
    monkeypatch.setattr(kernel_record, "UNGATED_MS", 0)


def test_a_kernel_without_a_gate_sees_the_share_that_it_has_when_it_starts():
    async def story():
        async with GpuNode(gpus=2) as world:
            more = {"language": "R", "gate": "none", "gate_reason": "R has no gate"}
            first = (await world.server.register("r", **more)).env
            assert first["CUDA_VISIBLE_DEVICES"] == ""
            assert "GPUSHARE_HIDES_GPUS" not in first
            world.scheduler.grant("r", gpu=1, request=HALF)
            await world.until(lambda: world.record("r").assignment.assigned_gpus, "placed")
            gpu = world.record("r").assignment.assigned_gpus[0]
            again = (await world.server.register("r", **more)).env
            assert again["CUDA_VISIBLE_DEVICES"] == world.machine.uuids[gpu]

    play(story())


def test_a_policy_without_devices_for_ungated_kernels():
    async def story():
        async with GpuNode(ungated_devices="none") as world:
            world.scheduler.grant("r", gpu=0, request=HALF)
            for gate, visible in (("none", ""), ("proxy", world.machine.uuids[0])):
                await world.server.register("r", language="R", gate=gate)
                await world.until(lambda: world.record("r").assignment.assigned_gpus, "placed")
                env = (await world.server.register("r", language="R", gate=gate)).env
                assert env["CUDA_VISIBLE_DEVICES"] == visible

    play(story())


def test_an_ipython_kernel_is_hidden_until_code_in_it_reveals_its_gpus():
    async def story():
        async with GpuNode() as world:
            env = (await world.server.register("k", gate="bootstrap")).env
            assert (env["CUDA_VISIBLE_DEVICES"], env["GPUSHARE_HIDES_GPUS"]) == ("", "1")

    play(story())


def test_an_ipython_kernel_that_never_connects_gets_its_gpus_at_its_next_start(soon_ungated):
    async def story():
        async with GpuNode() as world:
            world.scheduler.grant("k", gpu=0, request=HALF)
            async with silent_kernel(world, "k", gate="bootstrap"):
                await world.until(lambda: "ungated" in world.server.kinds("k"), "reported")
                await world.until(lambda: not world.server.reported["k"].gated, "seen")
                problem = world.server.reported["k"].gate_problem
                assert "the cell gate did not load" in problem
                assert "Restart the kernel" in problem
                await world.until(lambda: world.record("k").assignment.assigned_gpus, "placed")
            env = (await world.server.register("k", gate="bootstrap")).env
            assert env["CUDA_VISIBLE_DEVICES"] == world.machine.uuids[0]
            assert "GPUSHARE_HIDES_GPUS" not in env

    play(story())


def test_an_ungated_kernel_is_never_shown_as_guaranteed():
    async def story():
        async with World() as world:
            world.scheduler.grant("r", gpu=0, request=HALF)
            reason = "R has no gate"
            async with silent_kernel(world, "r", language="R", gate="none", gate_reason=reason):
                await world.attached("r")
                view = await reported(world, "r", "attached")
                assert (view.gated, view.memory_mib.guaranteed) == (False, 0)
                assert f"({reason}): GPU memory is not guaranteed." in view.gate_problem
                texts = [text for _, kind, text in world.server.events if kind == "attached"]
                assert "not guaranteed" in texts[0]
                heard = [one for one in world.scheduler.heard if isinstance(one, LeaseChanged)]
                assert heard[-1].report.gated is False

    play(story())


def test_a_kernel_that_connects_is_gated_and_guaranteed():
    async def story():
        async with World() as world:
            world.scheduler.grant("k", gpu=0, request=HALF)
            await world.server.launch("k", gate="bootstrap")
            await world.attached("k")
            view = await reported(world, "k", "attached")
            assert (view.gated, view.gate_problem) == (True, None)
            assert view.memory_mib.guaranteed == HALF

    play(story())
