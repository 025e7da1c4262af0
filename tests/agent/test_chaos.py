"""Several notebooks live their lives at random on one node, for a while: what is guaranteed is
there, what was written is read again.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.agent.simulated_node import GIB, World, play
from tests.agent.test_agent_restart import restart_agent

pytestmark = pytest.mark.slow
SHARE = 30
CHECK = "assert all(b.sum() == v * b.nbytes for b, v in held), 'contents'\n"
PREPARE = "held = []\nresult = None"
GROW = (
    CHECK
    + """
size, value = {size}, {value}
inside = sum(b.nbytes for b, _ in held) + size * 2**30 <= {share} * 2**30
try:
    held.append((simgpu.alloc(f'{{size}}GiB'), value)); held[-1][0].fill(value)
except simgpu.OutOfMemoryError as error:
    assert not inside, f'inside the share: {{error}}'
simgpu.busy({busy})
"""
)
SHRINK = CHECK + "held[:] = held[: len(held) // 2]\nimport gc; gc.collect()\n"


async def live(world: World, name: str, seed: int, stop: asyncio.Event) -> int:
    dice, cells = random.Random(seed), 0
    child = world.server.kernels[name]
    await child.run(PREPARE)
    while not stop.is_set():
        if dice.random() < 0.3:
            code = SHRINK
        else:
            code = GROW.format(
                size=dice.choice([1, 5, 10, 25]),
                value=dice.randrange(9),
                share=SHARE,
                busy=dice.choice([0, 0, 0.05, 0.3]),
            )
        done = await child.run(code, timeout=60)
        assert "error" not in done, (name, done)
        cells += 1
        await asyncio.sleep(dice.choice([0, 0.05, 0.4]))
    return cells


@pytest.mark.parametrize(("per_gpu", "seed"), [(4, 1), (4, 2), (None, 3)])
def test_notebooks_at_random(per_gpu, seed):
    async def story():
        async with World(per_gpu=per_gpu, notice_ms=150) as world:
            names = ["a", "b", "c", "d"]
            for index, name in enumerate(names):
                await world.server.launch(name)
                world.scheduler.grant(name, gpu=index // 2, request=SHARE * GIB)
            stop = asyncio.Event()
            lives = [
                asyncio.ensure_future(live(world, name, seed * 10 + index, stop))
                for index, name in enumerate(names)
            ]
            for _ in range(40):
                await asyncio.sleep(0.1)
                assert all(used <= 80 * GIB for used in world.used().values())
                homes = [world.record(name).assignment.assigned_gpus for name in names]
                assert all(sum(home == (gpu,) for home in homes) * SHARE <= 80 for gpu in (0, 1))
            await restart_agent(world)
            await asyncio.sleep(1.5)
            stop.set()
            cells = await asyncio.gather(*lives)
            assert min(cells) > 3
            lost = [kind for _, kind, _ in world.scheduler.events if kind in ("killed", "lost")]
            assert lost == []

    play(story())


def test_whole_gpus_come_and_go_between_halves_and_nothing_is_lost():
    async def story():
        async with World(notice_ms=150) as world:
            for name in ("a", "b"):
                await world.server.launch(name)
                world.scheduler.grant(name, gpu=0, request=SHARE * GIB)
            stop = asyncio.Event()
            lives = [
                asyncio.ensure_future(live(world, name, index, stop))
                for index, name in enumerate("ab")
            ]
            for turn in range(3):
                name = f"whole{turn}"
                child = await world.server.launch(name)
                world.scheduler.grant(name, gpu=1, request=80 * GIB)
                done = await child.run(
                    "b = simgpu.alloc('80GiB'); b.fill(1); result = b.sum() == b.nbytes"
                )
                assert done["result"] is True
                await child.end()
                world.scheduler.end(name)
                await world.until(
                    lambda: (
                        world.record("a").assignment.assigned_gpus
                        != world.record("b").assignment.assigned_gpus
                    ),
                    "spread again",
                )
            stop.set()
            await asyncio.gather(*lives)
            assert [kind for _, kind, _ in world.scheduler.events if kind == "killed"] == []

    play(story())
