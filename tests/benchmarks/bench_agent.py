"""Times of the node agent, with real processes and the real socket. `python -m
tests.benchmarks.bench_agent`. Exit 1: a target was missed.

The scheduler is fake, everything else is real. Copies are simulated at a known rate, and their time
is subtracted.
"""

from __future__ import annotations

import asyncio
import sys
import time

from tests.agent.simulated_node import GIB, World
from tests.benchmarks.machine import print_speed

GATES, RECLAIMS, STEADY_S = 500, 7, 10.0
GATE_BAR_MS, SUSPEND_BAR_MS, KILL_BAR_MS, STEADY_BAR = 2.0, 300.0, 500.0, 1.0
COPY_GIB_S = 100.0
MEASURE = """
import __main__ as child, time, statistics
times = []
for _ in range({count}):
    begun = time.perf_counter()
    n, _, _ = child.gate()
    times.append((time.perf_counter() - begun) * 1000)
    child.link.send({{"type": "cell_end", "n": n}})
times.sort(); result = (statistics.median(times), times[int(len(times) * 0.99)])
"""


def report(what: str, measured: float, bar: float, unit: str) -> bool:
    sys.stdout.write(f"{what}: {measured:.2f} {unit} (target {bar:g} {unit})\n")
    return measured <= bar


async def gate() -> bool:
    async with World() as world:
        for name, others in (("a", 0), ("b", 0), ("c", 1)):
            await world.server.launch(name)
            world.scheduler.grant(name, gpu=others, request=20 * GIB)
        child = world.server.kernels["a"]
        await child.run("bufs.append(simgpu.alloc('20GiB'))")
        median, p99 = (await child.run(MEASURE.format(count=GATES), timeout=60))["result"]
        sys.stdout.write(f"cell gate without reclaim, p99 of {GATES}: {p99:.2f} ms\n")
        return report(f"cell gate without reclaim, median of {GATES}", median, GATE_BAR_MS, "ms")


async def by_suspend() -> bool:
    """A and B take turns: one starts a cell within its share while the other is idle and holds 70
    of 80 GiB. 70 GiB are saved, then 70 GiB restored.
    """
    async with World(gpus=1, copy_gib_s=COPY_GIB_S) as world:
        for name in "ab":
            child = await world.server.launch(name)
            world.scheduler.grant(name, gpu=0, request=40 * GIB)
            await world.attached(name)
            await child.run("bufs.append(simgpu.alloc('70GiB'))")
        beyond = []
        for turn in range(RECLAIMS):
            done = await world.server.kernels["ab"[turn % 2]].run("result = bufs[0].nbytes")
            beyond.append(done["waited"] * 1000 - 2 * 70 / COPY_GIB_S * 1000)
        return report(
            f"reclaim by suspend and resume, without the copies, worst of {RECLAIMS}",
            max(beyond),
            SUSPEND_BAR_MS,
            "ms",
        )


async def by_kill(*, deaf: bool) -> bool:
    """The same without suspend and without a notice, so that only the restart is timed."""
    beyond = []
    for _ in range(RECLAIMS):
        async with World(gpus=1, notice_ms=0) as world:
            world.server.deaf = deaf
            a, b = await world.server.launch("a"), await world.server.launch("b")
            for name in "ab":
                world.scheduler.grant(name, gpu=0, request=40 * GIB)
            await a.run("bufs.append(simgpu.alloc('70GiB'))")
            world.fault("unsupported")
            begun = time.perf_counter()
            await b.run("bufs.append(simgpu.alloc('40GiB'))")
            beyond.append((time.perf_counter() - begun) * 1000)
    actor = "the agent, without an answer of the server" if deaf else "the server"
    return report(
        f"reclaim by restart through {actor}, worst of {RECLAIMS}", max(beyond), KILL_BAR_MS, "ms"
    )


async def steady() -> bool:
    """8 GPUs, 32 idle kernels that hold memory."""
    async with World(gpus=8) as world:
        names = [f"k{number}" for number in range(32)]
        for index, name in enumerate(names):
            world.scheduler.grant(name, gpu=index // 4, request=20 * GIB)
            child = await world.server.launch(name)
            await child.run("bufs.append(simgpu.alloc('10GiB'))")
        await asyncio.sleep(2)
        cpu, wall = time.process_time(), time.perf_counter()
        await asyncio.sleep(STEADY_S)
        share = (time.process_time() - cpu) / (time.perf_counter() - wall) * 100
        return report("agent, 8 GPUs, 32 idle kernels", share, STEADY_BAR, "% of one core")


def main() -> None:
    """Run all cases, each on its own node."""
    passed = [
        asyncio.run(case)
        for case in (gate(), by_suspend(), by_kill(deaf=False), by_kill(deaf=True), steady())
    ]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    print_speed()
    main()
