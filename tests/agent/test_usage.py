"""What is booked: time on the GPU, time computed, memory above the share, and how long cells
waited.
"""

from __future__ import annotations

from collections import Counter

import pytest

from jupyter_gpushare.messages import UsageReport
from node_agent.reconcile.usage_sampler import LONGEST_MS, UsageSampler
from tests.agent.simulated_node import GIB, World, play


@pytest.fixture
def sampled_by_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent itself takes no samples."""
    monkeypatch.setattr("node_agent.app.SAMPLE_S", 3600)


@pytest.mark.usefixtures("sampled_by_the_test")
def test_usage_is_sampled_added_up_and_reported_once():
    async def story():
        async with World() as world:
            now = [1_000_000]
            a = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=40 * GIB)
            await a.run("bufs.append(simgpu.alloc('70GiB')); simgpu.busy(0.3)")
            await world.until(lambda: world.record("a").memory.usage.busy_ms, "the work is seen")
            node = world.agent.node
            node.clock = lambda: now[0]
            usage = UsageSampler(node)
            usage.sample()
            for _ in range(3):
                now[0] += 1000
                usage.sample()
            world.scheduler.heard.clear()
            usage.report()
            await world.until(lambda: not node.usage_outbox.sent, "reported and taken")
            usage.report()
            (body,) = [b for b in world.scheduler.heard if isinstance(b, UsageReport)]
            (row,) = body.rows
            assert (row.held_ms, row.used_mib_ms, row.borrowed_mib_ms) == (
                3000,
                3000 * 70 * GIB,
                3000 * 30 * GIB,
            )

    play(story())


@pytest.mark.usefixtures("sampled_by_the_test")
def test_a_machine_that_slept_books_no_use_and_a_link_that_is_down_loses_none():
    async def story():
        async with World() as world:
            now = [1_000_000]
            await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=40 * GIB)
            await world.attached("a")
            world.agent.node.clock = lambda: now[0]
            usage = UsageSampler(world.agent.node)
            now[0] += 3_600_000
            usage.sample()
            world.scheduler.cut()
            await world.until(
                lambda: not world.agent.session.connected.is_set(), "the link is down"
            )
            usage.report()
            now[0] += 1000
            usage.sample()
            world.scheduler.silent = False
            world.scheduler.heard.clear()
            await world.until(world.agent.session.connected.is_set, "the link is up")
            usage_outbox = world.agent.node.usage_outbox
            for _ in range(2):  # what was under way when the link broke, and what came after it
                usage.report()
                await world.until(lambda: not usage_outbox.sent, "reported and taken")
            told = {b.number: b.rows for b in world.scheduler.heard if isinstance(b, UsageReport)}
            assert sum(row.held_ms for rows in told.values() for row in rows) == LONGEST_MS + 1000

    play(story())


@pytest.mark.parametrize("pinned", [False, True])
def test_waits_and_copies_are_timed(pinned):
    async def story():
        async with World(gpus=1, notice_ms=200) as world:
            for name in "ab":
                child = await world.server.launch(name)
                world.scheduler.grant(name, gpu=0, request=40 * GIB)
                await world.attached(name)
                if pinned:
                    await child.ask("pin")
                await child.run("bufs.append(simgpu.alloc('70GiB'))")
            durations = world.agent.node.durations
            assert len(durations["suspend"]) == 1
            assert len(durations["gate_wait"]) == 2
            assert (max(durations["gate_wait"]) >= 200) == pinned
            assert rungs(world) == (
                {"notice": 1, "suspended": 1} if pinned else {"caches": 1, "suspended": 1}
            )

    play(story())


def rungs(world: World) -> dict[str, int]:
    """Since the beginning, reported or not."""
    told = sum(
        (Counter(body.rungs) for body in world.scheduler.heard if isinstance(body, UsageReport)),
        Counter(),
    )
    return dict(told + world.agent.node.reclaims)


def test_what_an_owner_wants_themselves_is_no_rung_of_the_ladder():
    async def story():
        async with World(gpus=1) as world:
            child = await world.server.launch("a")
            world.scheduler.grant("a", gpu=0, request=40 * GIB)
            await world.attached("a")
            await child.run("bufs.append(simgpu.alloc('70GiB'))")
            assert (await child.ask("suspend"))["body"]["state"] == "suspended"
            assert len(world.agent.node.durations["suspend"]) == 1
            assert rungs(world) == {}

    play(story())
