"""Two cells of one kernel that wait at once (main shell and subshell, or a widget's message): each
has its own question, text and end.
"""

from __future__ import annotations

import asyncio

from jupyter_gpushare.messages import ReasonBody, Share
from tests.agent.simulated_node import GIB, World, play

HALF = 40 * GIB


async def two_waiting(world: World, child) -> tuple[int, int]:
    """Numbers of two cells that wait."""
    child.send(cell="result = 'first'", beside=True)
    child.send(cell="result = 'second'", beside=True)

    def numbers() -> tuple[int, ...]:
        found = sorted({said["n"] for said in child.said if "waits" in said})
        return tuple(found) if len(found) == 2 else ()

    return await world.until(numbers, "both wait")


def ended(child) -> set[int]:
    return {said["done"] for said in child.said if "done" in said}


def test_both_run_when_the_gpu_is_granted():
    async def story():
        async with World(gpus=1) as world:
            a = await world.server.launch("a")
            both = await two_waiting(world, a)
            world.scheduler.grant("a", gpu=0, request=HALF)
            await world.until(lambda: ended(a) == set(both), "both have run")
            assert not world.record("a").gate.waiting
            assert not world.record("a").gate.running

    play(story())


def test_both_run_when_memory_is_free_again():
    async def story():
        async with World(gpus=1, notice_ms=300) as world:
            for name in "ab":
                world.scheduler.grant(name, gpu=0, request=HALF)
                await world.server.launch(name)
                await world.attached(name)
            a, b = (world.server.kernels[name] for name in "ab")
            await b.run("held = simgpu.alloc('70GiB')")
            b.start("time.sleep(1.5)")
            await asyncio.sleep(0.2)
            both = await two_waiting(world, a)
            await world.until(lambda: ended(a) == set(both), "both have run", timeout=60)

    play(story())


def test_cancelling_one_leaves_the_other_waiting():
    async def story():
        async with World(gpus=1) as world:
            a = await world.server.launch("a")
            first, second = await two_waiting(world, a)
            mark = a.send(cancel=first)
            assert "refused" in (await a.hear("error", mark))["error"]
            assert list(world.record("a").gate.waiting) == [second]
            world.scheduler.grant("a", gpu=0, request=HALF)
            await world.until(lambda: ended(a) == {second}, "it runs")

    play(story())


def test_each_shows_why_it_waits():
    """A new text goes to both, and to each only once."""

    async def story():
        async with World(gpus=1) as world:
            a = await world.server.launch("a")
            both = await two_waiting(world, a)
            reason = ReasonBody(code="WaitingForQuota", message="Project vision is at its quota.")
            world.server.report_request("a", True, request=Share(gpu=0.5), reason=reason)
            texts = {n: [] for n in both}

            def both_know() -> bool:
                for n in both:
                    texts[n] = [one["waits"] for one in a.said if one.get("n") == n]
                return all("at its quota" in found[-1] for found in texts.values())

            await world.until(both_know, "both show the reason")
            assert [len(set(found)) == len(found) for found in texts.values()] == [True, True]

    play(story())


def test_a_cell_that_asks_while_another_runs_is_answered():
    async def story():
        async with World(gpus=1) as world:
            world.scheduler.grant("a", gpu=0, request=HALF)
            a = await world.server.launch("a")
            await world.attached("a")
            mark = a.send(cell="time.sleep(1); result = 'long'", beside=True)
            await a.hear("running", mark)
            assert (await a.run("result = 'short'", timeout=60))["result"] == "short"
            assert world.record("a").gate.running, "the first still runs"
            await a.hear("done", mark)

    play(story())
