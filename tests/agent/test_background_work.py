"""GPU work that a cell has left behind counts: for idle rules, and when others need its GPU."""

from __future__ import annotations

import pytest

from node_agent.state.background_work import REST_MS, SETTLE_MS, BackgroundWork
from tests.agent.simulated_node import World, play
from tests.agent.test_idle_culler import messages, working

ENDED = 1_000
"""When the last cell ended."""
THREAD = """
import threading
def work():
    for _ in range(160): simgpu.busy(0.05)
threading.Thread(target=work).start(); result = 1
"""


CASES = {
    "nothing happens": ([(3000, 5, 10), (4000, 5, 10)], 0),
    "GPU time grows": ([(3000, 5, 10), (4000, 6, 10)], 4000 + REST_MS),
    "memory grows": ([(3000, 5, 10), (4000, 5, 11)], 4000 + REST_MS),
    "memory shrinks": ([(3000, 5, 10), (4000, 5, 9)], 0),
    "the end of the cell itself": ([(ENDED + 10, 5, 10), (ENDED + 900, 9, 12)], 0),
    "a reading before the cell has settled": ([(ENDED + SETTLE_MS - 1, 5, 10), (9000, 6, 10)], 0),
    "the first reading": ([(9000, 6, 10)], 0),
}


@pytest.mark.parametrize(("readings", "until"), CASES.values(), ids=CASES)
def test_growth_after_a_cell_is_work(readings, until):
    work = BackgroundWork()
    for now, busy_ms, used_mib in readings:
        work.observe(busy_ms, used_mib, idle_since=ENDED, now=now)
    assert work.until == until


def test_restored_memory_is_no_work():
    work = BackgroundWork()
    work.observe(5, 10, idle_since=ENDED, now=4000)
    work.forget()
    work.observe(5, 90, idle_since=ENDED, now=5000)
    assert work.until == 0


def test_a_thread_that_works_after_its_cell_keeps_the_memory_until_it_rests():
    async def story():
        async with World(notice_ms=100) as world:
            a = await working(world, suspend=5_000)
            kernel = world.agent.node.kernels["a"]
            assert (await a.run(THREAD))["result"] == 1
            await world.until(lambda: not kernel.gate.running, "the cell has ended")
            await world.until(lambda: kernel.background.until, "noticed")
            assert kernel.is_running(world.agent.node.clock())
            await world.until(lambda: world.server.reported["a"].state == "suspended", "at rest")
            assert kernel.memory.usage.busy_ms >= 160 * 50
            assert messages(world, "suspended")

    play(story())
