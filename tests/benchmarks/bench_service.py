"""Time from a request to its committed grant: real HTTP, real SQLite with every commit on disk.
`python -m tests.benchmarks.bench_service [--json FILE]`.

The service runs in a separate process. A request is timed from the POST to the stream frame with
`running`; requests come at a constant rate, with and without many pending ones. There is no target,
because disks differ. The benchmark checks that every request was granted once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import SchedulerClient
from tests.benchmarks.machine import print_speed
from tests.scheduler.agents import FakeAgent
from tests.scheduler.scheduler_forks import ForkServer

POLICY = """
projects:
  - {name: p, pools: {default: {gpu: {quota: 64, limit: 64}}}}
  - {name: full, pools: {default: {gpu: {quota: 0, limit: 0}}}}
"""
NODES, GPUS = 8, 8


def request(id_: str, project: str) -> m.WorkloadRequest:
    return m.WorkloadRequest(id=id_, project=project, pods=[m.PodRequest(gpu=1)])


async def timed(client: SchedulerClient, requests: int, per_second: float) -> list[float]:
    """Milliseconds from POST to the frame with the grant, per request; they are released then."""
    begun: dict[str, float] = {}
    took: dict[str, float] = {}
    ready = asyncio.Event()

    async def watch() -> None:
        async with aclosing(client.changes()) as frames:
            async for frame in frames:
                ready.set()
                if (
                    isinstance(frame, m.WorkloadChanged)
                    and frame.workload.state == "running"
                    and frame.workload.id in begun
                ):
                    took.setdefault(
                        frame.workload.id, (time.perf_counter() - begun[frame.workload.id]) * 1000
                    )
                if len(took) == requests:
                    return

    watching = asyncio.create_task(watch())
    await ready.wait()
    for i in range(requests):
        id_ = f"r{i}-{time.monotonic_ns()}"
        begun[id_] = time.perf_counter()
        await client.submit(request(id_, "p"))
        if i >= NODES * GPUS // 2:
            await client.end(list(begun)[i - NODES * GPUS // 2])
        await asyncio.sleep(1 / per_second)
    await asyncio.wait_for(watching, 60)
    return list(took.values())


async def measure(
    fork_server: ForkServer, folder: Path, waiting: int, requests: int, per_second: float
) -> dict[str, float]:
    policy = folder / "gpushare.yaml"
    policy.write_text(POLICY)
    child = fork_server.start(folder / "state", policy_file=str(policy))
    client, agents = child.client(), [FakeAgent(f"n{i}", GPUS) for i in range(NODES)]
    links = [agent.linked(client) for agent in agents]
    for link in links:
        await link.__aenter__()
    for i in range(waiting):
        await client.submit(request(f"waiting-{i}", "full"))
    times = sorted(await timed(client, requests, per_second))
    for link in links:
        await link.__aexit__(None, None, None)
    client.transport.close()
    started = time.perf_counter()
    child.kill()
    again = fork_server.start(folder / "state", policy_file=str(policy))
    restart = time.perf_counter() - started
    again.end()
    return {
        "waiting": waiting,
        "requests": len(times),
        "p50_ms": round(statistics.median(times), 2),
        "p99_ms": round(times[int(len(times) * 0.99) - 1], 2),
        "restart_s": round(restart, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--waiting", type=int, nargs="*", default=[0, 1000])
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--per-second", type=float, default=20)
    options = parser.parse_args()
    rows = []
    for waiting in options.waiting:
        fork_server = ForkServer()
        try:
            with tempfile.TemporaryDirectory() as folder:
                row = asyncio.run(
                    measure(
                        fork_server, Path(folder), waiting, options.requests, options.per_second
                    )
                )
        finally:
            fork_server.close()
        rows.append(row)
        sys.stdout.write(
            f"request -> committed grant, {waiting:6} pending: p50 {row['p50_ms']:8.2f} ms, "
            f"p99 {row['p99_ms']:8.2f} ms; kill -9 to ready {row['restart_s']:.2f} s\n"
        )
        sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    print_speed()
    main()
