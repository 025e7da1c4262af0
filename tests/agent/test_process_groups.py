"""A kernel's cgroup through its life: all its processes end with it, the driver's limit is removed
before the cgroup, and a new agent removes abandoned ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from node_agent.app import Agent
from node_agent.devices.simulated.simulated_devices import SimulatedDevices
from node_agent.system.cgroups import Cgroups
from node_agent.system.processes import process_at
from node_agent.system.subtree import find_subtree
from tests.agent.simulated_node import GIB, World, play
from tests.agent.test_cgroups import real_subtree

ESCAPES = """
import subprocess, sys
code = "import os, time; os.setsid(); open({path!r}, 'w').write(str(os.getpid())); time.sleep(60)"
subprocess.Popen(["sh", "-c", 'env -i "$0" -c "$1" &', sys.executable, code]).wait()
"""
"""Its own session, no mark in its environment, no living parent: nothing but its cgroup says whose
it is.
"""


class Watchful(SimulatedDevices):
    """Remembers which cgroups were released, and whether they still existed then."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.released: list[tuple[str, bool]] = []

    def release_cgroup(self, leaf: str) -> None:
        self.released.append((leaf, Path(leaf).is_dir()))


class Enclosed(World):
    """A node whose kernels have cgroups below `subtree`."""

    def __init__(self, subtree: Path, **more) -> None:
        super().__init__(gpus=1, **more)
        self.subtree = subtree

    async def start_agent(self) -> None:
        self.devices = Watchful(self.state_dir / "simgpu.sqlite", "n0", self.simulation)
        self.devices.cgroups = Cgroups(*find_subtree(str(self.subtree)))
        self.agent = Agent(self.config, self.devices, self.scheduler.link)
        await self.agent.start()

    def leaves(self) -> list[str]:
        return self.devices.cgroups.leaves()

    async def escape(self, child, name: str) -> int:
        """The pid of a child that nobody could find by its parents or its mark."""
        path = self.state_dir / name
        assert "error" not in await child.run(ESCAPES.format(path=str(path)))
        return int(await self.until(lambda: path.exists() and path.read_text(), "the child runs"))


@pytest.fixture
def subtree():
    found = real_subtree()
    if found is None:
        pytest.skip(
            "no cgroups can be made here; tests/agent/test_cgroups.py tests the rules in a folder"
        )
    yield found
    for folder, _, _ in os.walk(found, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


async def half(world: Enclosed, name: str):
    world.scheduler.grant(name, gpu=0, request=40 * GIB)
    child = await world.server.launch(name)
    await world.attached(name)
    return child


def test_a_hidden_child_ends_with_its_kernel_and_the_cgroup_is_removed_after_its_limit(subtree):
    async def story():
        async with Enclosed(subtree, grace_ms=200) as world:
            a = await half(world, "a")
            leaf = world.record("a").process.cgroup
            assert world.leaves() == [leaf]
            await world.until(lambda: a.pid in world.devices.cgroups.members(leaf), "moved in")
            hidden = await world.escape(a, "hidden")
            assert hidden in world.devices.cgroups.members(leaf)
            await a.end()
            await world.until(lambda: process_at(hidden) is None, "the hidden child is ended")
            await world.until(lambda: world.leaves() == [], "the cgroup is gone")
            assert world.devices.released == [(leaf, True)]

    play(story())


def test_a_relaunch_has_a_cgroup_of_its_own_and_nothing_of_the_old_one_is_left(subtree):
    async def story():
        async with Enclosed(subtree) as world:
            a = await half(world, "a")
            old = world.record("a").process.cgroup
            hidden = await world.escape(a, "hidden")
            await world.server.relaunch("a")
            await world.attached("a")
            assert process_at(hidden) is None
            await world.until(
                lambda: world.leaves() == [world.record("a").process.cgroup], "one is left"
            )
            assert world.record("a").process.cgroup != old

    play(story())


def test_an_agent_that_comes_back_keeps_the_living_and_tidies_up_after_the_dead(subtree):
    async def story():
        async with Enclosed(subtree) as world:
            a, b = await half(world, "a"), await half(world, "b")
            leaf, other = world.record("a").process.cgroup, world.record("b").process.cgroup
            await world.agent.stop()
            (world.state_dir / "agent.journal.json").unlink()  # the worst case: it knows nobody
            await b.end()
            await asyncio.to_thread(world.devices.cgroups.kill, other)
            await world.start_agent()
            await world.until(lambda: world.leaves() == [leaf], "tidied up")
            assert world.devices.released == [(other, True)]
            assert process_at(a.pid) is not None
            await world.server.connect()
            await world.server.register("a", pid=a.pid)
            await world.until(
                lambda: world.record("a").process.cgroup == leaf,
                "its kernel is found again where it lives",
            )

    play(story())
