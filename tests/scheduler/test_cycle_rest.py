"""Cycles rest while requests keep coming."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.scheduler.test_loop import ONE, Bench


def test_requests_that_keep_coming_are_decided_together(tmp_path: Path):
    """Between two cycles the loop serves others: cycles take a part of its time, not all of it."""
    bench = Bench(tmp_path, ONE)

    async def story() -> tuple[int, int]:
        turns = asked = 0
        real = bench.loop.turn

        def turn(*, is_tick: bool) -> None:
            nonlocal turns
            turns += 1
            begun = time.thread_time()
            while time.thread_time() - begun < 0.005:
                real(is_tick=is_tick)

        bench.loop.turn = turn
        bench.loop.start()
        while turns < 10:
            bench.loop.wake()
            asked += 1
            await asyncio.sleep(0)
        await bench.loop.stop()
        return turns, asked

    turns, asked = asyncio.run(story())
    assert asked > 10 * turns
