"""A share that the scheduler plans on another GPU keeps its kernel and its memory."""

from __future__ import annotations

import pytest

from tests.agent.simulated_node import GIB, World, play

HALF, WHOLE = 40 * GIB, 80 * GIB
FILL = "bufs.append(simgpu.alloc('10GiB')); bufs[0].fill({v})"
INTACT = "result = bufs[0].sum() == {v} * bufs[0].nbytes"


@pytest.mark.parametrize("per_gpu", [4, None], ids=["spread over GPUs", "as planned"])
def test_two_halves_make_room_for_a_whole_gpu(per_gpu: int | None) -> None:
    async def story():
        async with World(per_gpu=per_gpu) as world:
            a, b = [await world.server.launch(name) for name in "ab"]
            world.scheduler.grant("a", gpu=0, request=HALF)
            world.scheduler.grant("b", gpu=1, request=HALF)
            await a.run(FILL.format(v=3))
            await b.run(FILL.format(v=5))

            world.scheduler.grant("b", gpu=0, request=HALF)
            c = await world.server.launch("c")
            world.scheduler.grant("c", gpu=1, request=WHOLE)
            done = await c.run("bufs.append(simgpu.alloc('80GiB')); result = True")
            assert done.get("result") is True, done

            assert (await a.run(INTACT.format(v=3)))["result"] is True
            assert (await b.run(INTACT.format(v=5)))["result"] is True
            assert world.server.relaunches == []
            for name in "ab":
                assert not {"evicted", "killed"} & set(world.scheduler.kinds(name))

    play(story())
