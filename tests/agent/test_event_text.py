"""The story: two halves burst on two GPUs, a whole-GPU lease lands, one is evacuated with
everything in it, later they spread again.
"""

from __future__ import annotations

import asyncio

from tests.agent.simulated_node import GIB, World, play

HALF, WHOLE = 40 * GIB, 80 * GIB
BURST = "bufs.append(simgpu.alloc('70GiB')); bufs[0].fill({v}); result = simgpu.device_uuid()"
INTACT = "result = (bufs[0].sum() == {v} * bufs[0].nbytes, simgpu.device_uuid())"


async def two_bursting(world: World):
    a = await world.server.launch("a")
    b = await world.server.launch("b")
    world.scheduler.grant("a", gpu=0, request=HALF)
    world.scheduler.grant("b", gpu=0, request=HALF)
    first = await a.run(BURST.format(v=3))
    second = await b.run(BURST.format(v=5))
    assert {first["result"], second["result"]} == {"SIM-GPU-n0-0", "SIM-GPU-n0-1"}
    await world.until(
        lambda: world.server.reported["a"].memory_mib.borrowed == 30 * GIB,
        "a is shown as borrowing 30 GiB",
    )
    return a, b


def test_planned_together_live_apart_and_burst():
    async def story():
        async with World() as world:
            await two_bursting(world)
            await world.until(lambda: "burst" in world.scheduler.kinds("a"), "the event")
            assert world.used() == {0: 70 * GIB, 1: 70 * GIB}

    play(story())


def test_idle_kernel_is_evacuated_with_its_contents_and_goes_on_at_its_next_cell():
    async def story():
        async with World() as world:
            a, b = await two_bursting(world)
            c = await world.server.launch("c")
            world.scheduler.grant("c", gpu=1, request=WHOLE)
            done = await c.run("bufs.append(simgpu.alloc('80GiB')); result = simgpu.device_uuid()")
            assert "result" in done, done
            moved = [name for name in "ab" if "moved" in world.scheduler.kinds(name)]
            assert len(moved) == 1
            assert "notice" not in world.scheduler.kinds(moved[0])
            assert (await a.run(INTACT.format(v=3)))["result"][0] is True
            assert (await b.run(INTACT.format(v=5)))["result"][0] is True
            assert world.server.relaunches == []

            await c.end()
            world.scheduler.end("c")
            await world.until(
                lambda: (
                    world.record("a").assignment.assigned_gpus
                    != world.record("b").assignment.assigned_gpus
                ),
                "spread again",
            )
            assert (await a.run(INTACT.format(v=3)))["result"][0] is True
            assert (await b.run(INTACT.format(v=5)))["result"][0] is True
            assert world.used() == {0: 70 * GIB, 1: 70 * GIB}

    play(story())


def test_busy_kernel_has_a_notice_stands_still_and_goes_on_by_itself(tmp_path):
    end = tmp_path / "end"
    cell = f"""
import os
while not os.path.exists({str(end)!r}): simgpu.busy(0.05)
result = bufs[0].sum() / bufs[0].nbytes
"""

    async def story():
        async with World(notice_ms=500) as world:
            a, b = await two_bursting(world)
            marks = [child.start(cell) for child in (a, b)]
            await asyncio.gather(a.hear("running", marks[0]), b.hear("running", marks[1]))
            c = await world.server.launch("c")
            world.scheduler.grant("c", gpu=1, request=WHOLE)
            assert "result" in await c.run("bufs.append(simgpu.alloc('80GiB'))")
            moved = await world.until(
                lambda: next((one for one in "ab" if "moved" in world.scheduler.kinds(one)), None),
                "one has moved",
            )
            await world.until(lambda: "resumed" in world.scheduler.kinds(moved), "all events")
            end.touch()
            results = [
                (await child.hear("done", mark))["result"]
                for child, mark in ((a, marks[0]), (b, marks[1]))
            ]
            assert results == [3, 5]
            kinds = world.scheduler.kinds(moved)
            assert (
                kinds.index("notice")
                < kinds.index("suspended")
                < kinds.index("moved")
                < kinds.index("resumed")
            )
            assert "killed" not in kinds

    play(story())


def test_one_that_cannot_be_saved_is_warned_relaunched_elsewhere_and_told():
    async def story():
        async with World(notice_ms=300) as world:
            await two_bursting(world)
            world.fault("unsupported")
            c = await world.server.launch("c")
            world.scheduler.grant("c", gpu=1, request=WHOLE)
            assert "result" in await c.run("bufs.append(simgpu.alloc('80GiB'))")
            killed = [name for name in "ab" if "killed" in world.scheduler.kinds(name)]
            assert len(killed) == 1
            await world.until(
                lambda: "reattached" in world.scheduler.kinds(killed[0]), "reattached"
            )
            kinds = world.scheduler.kinds(killed[0])
            assert kinds.index("notice") < kinds.index("killed") < kinds.index("reattached")
            child = world.server.kernels[killed[0]]
            told = (await child.hear("note"))["note"]
            assert "lost" in told["message"]
            assert (
                world.record("c").assignment.assigned_gpus
                != world.record(killed[0]).assignment.assigned_gpus
            )

    play(story())
