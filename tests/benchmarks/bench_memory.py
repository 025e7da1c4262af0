"""Memory of the service under random requests. `python -m tests.benchmarks.bench_memory
[--minutes 60] [--json FILE]`.

A real scheduler process over HTTP, 10 agents with 8 GPUs each, which report usage every second, and
one listener of the stream. The requests ask for less than half of the GPUs, so nothing piles up:
about ten workloads a second for four seconds each (fractions, memory, several GPUs, gangs; with
names and labels of their own, of twenty people), one in ten cancelled at once, and what-ifs, new
names and reads between them. Every minute: resident memory, live workloads, requests, errors. The
result is the slope of the memory over the second half.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import HttpTransport, SchedulerClient, token_in
from jupyter_gpushare.core.model.errors import GpuShareError
from tests.benchmarks.bench_load import GPUS, policy
from tests.benchmarks.machine import print_speed
from tests.scheduler.agents import FakeAgent
from tests.scheduler.scheduler_forks import ForkServer

PROJECTS = 8
NODES = 10
PEOPLE = 20
STAY_S = 4.0
LONGEST_STAY_S = 20.0
MOST_ALIVE = 200
"""Arrivals above are skipped and counted: a machine that is too slow shows in the result."""
SHARES: tuple[dict[str, object], ...] = (
    {"gpu": 0.25},
    {"gpu": 0.5},
    {"gpu": 0.75},
    {"gpu": 1},
    {"gpu": 2},
    {"gpu_memory": "10 GiB"},
    {"gpu": 0.5, "gpu_devices": 2},
)


@dataclass
class Requests:
    """Random requests to one service."""

    client: SchedulerClient
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    alive: int = 0
    number: int = 0

    def _request(self) -> m.WorkloadRequest:
        rng, self.number = self.rng, self.number + 1
        gang = rng.random() < 0.15
        share = {"gpu": 1} if gang else rng.choice(SHARES)
        labels = {"run": f"{rng.getrandbits(40):x}"}
        pods = [
            m.PodRequest(labels=labels, **share)  # type: ignore[arg-type]
            for _ in range(rng.randint(2, 4) if gang else 1)
        ]
        return m.WorkloadRequest(
            id=f"w{self.number}-{rng.getrandbits(40):x}",
            name=f"experiment {rng.getrandbits(40):x}",
            project=f"p{rng.randrange(PROJECTS)}",
            user=f"person-{rng.randrange(PEOPLE)}",
            priority_class=rng.choice(("train", "interactive")),
            min_pods=rng.choice((None, 1)) if gang else None,
            pods=pods,
        )

    async def one(self) -> None:
        """One workload from its request to its end."""
        request, rng = self._request(), self.rng
        what = rng.random()
        await self._call("what-if", self.client.what_if(request)) if what < 0.1 else None
        await self._call("submit", self.client.submit(request))
        if what < 0.9:  # the others are cancelled at once
            await asyncio.sleep(min(LONGEST_STAY_S, rng.expovariate(1 / STAY_S)))
            if rng.random() < 0.2:
                new = f"renamed {rng.getrandbits(40):x}"
                await self._call("rename", self.client.rename(request.id, new))
        else:
            self.counts["cancelled"] += 1
        await self._call("end", self.client.end(request.id))

    async def read(self) -> None:
        reads: tuple[Callable[[], Awaitable[object]], ...] = (
            self.client.workloads,
            self.client.queues,
            self.client.nodes,
            self.client.waiting,
            self.client.usage,
            self.client.queue_history,
        )
        await self._call("read", self.rng.choice(reads)())

    async def _call(self, what: str, call: Awaitable[object]) -> None:
        self.counts[what] += 1
        try:
            await call
        except GpuShareError as error:
            self.counts[f"{what}: {type(error).__name__}"] += 1

    async def _counted(self) -> None:
        self.alive += 1
        try:
            await self.one()
        finally:
            self.alive -= 1

    async def arrive(self, per_second: float, until: float) -> None:
        """Arrivals at random times, until then."""
        async with asyncio.TaskGroup() as tasks:
            while time.monotonic() < until:
                await asyncio.sleep(self.rng.expovariate(per_second))
                if self.alive >= MOST_ALIVE:
                    self.counts["skipped"] += 1
                    continue
                tasks.create_task(self._counted())
                if self.rng.random() < 0.1:
                    tasks.create_task(self.read())


async def _report(agents: list[tuple[FakeAgent, object]]) -> None:
    """What each lease used, every second."""
    while True:
        for agent, link in agents:
            for lease in agent.holds:
                agent.usage_outbox.row(lease).held_ms += 1000
            await agent.report(link)  # type: ignore[arg-type]
            agent.orders.clear()
            agent.told.clear()
        await asyncio.sleep(1)


async def _listen(client: SchedulerClient) -> None:
    async with aclosing(client.changes()) as frames:
        async for _ in frames:
            pass


async def _sample(
    requests: Requests, service: psutil.Process, seconds: float, minutes: float
) -> list[dict[str, object]]:
    """One row per `seconds`, printed as it is taken."""
    rows: list[dict[str, object]] = []
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < minutes * 60:
        await asyncio.sleep(seconds - passed % seconds)
        used, memory = service.cpu_times(), service.memory_full_info()
        views = (await requests.client.workloads()).workloads
        rows.append(
            {
                "minute": round((time.monotonic() - begun) / 60, 2),
                "rss_mib": round(memory.rss / 2**20, 2),
                "uss_mib": round(memory.uss / 2**20, 2),
                "alive": len(views),
                "pending": sum(view.state == "pending" for view in views),
                "cpu_s": round(used.user + used.system, 1),
                **dict(sorted(requests.counts.items())),
            }
        )
        sys.stdout.write(json.dumps(rows[-1]) + "\n")
        sys.stdout.flush()
    return rows


def slope(rows: list[dict[str, object]]) -> float:
    """MiB per minute over the second half, by least squares."""
    half = rows[len(rows) // 2 :]
    minutes = [float(str(row["minute"])) for row in half]
    memory = [float(str(row["rss_mib"])) for row in half]
    return statistics.linear_regression(minutes, memory).slope if len(half) > 1 else 0.0


async def measure(
    fork_server: ForkServer, folder: Path, options: argparse.Namespace
) -> list[dict[str, object]]:
    file, state = folder / "gpushare.yaml", folder / "state"
    file.write_text(policy(PROJECTS, NODES))
    child = fork_server.start(state, policy_file=str(file), **json.loads(options.config))
    clients = [
        SchedulerClient(HttpTransport(child.url, token_in(state / "admin.token"), call_s=60))
        for _ in range(2)
    ]
    async with AsyncExitStack() as stack:
        agents = []
        for i in range(NODES):
            agent = FakeAgent(f"n{i:03}", GPUS)
            agents.append((agent, await stack.enter_async_context(agent.linked(clients[1]))))
        background = [
            asyncio.create_task(_report(agents)),
            asyncio.create_task(_listen(clients[1])),
        ]
        requests = Requests(clients[0], random.Random(options.seed))
        until = time.monotonic() + options.minutes * 60
        arriving = asyncio.create_task(requests.arrive(options.per_second, until))
        rows = await _sample(requests, psutil.Process(child.pid), options.sample_s, options.minutes)
        await arriving
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
    for client in clients:
        client.transport.close()
    child.end()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--per-second", type=float, default=10)
    parser.add_argument("--sample-s", type=float, default=60)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--config", default="{}", help="more settings of the service, as JSON")
    options = parser.parse_args()
    fork_server = ForkServer()
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = asyncio.run(measure(fork_server, Path(folder), options))
    finally:
        fork_server.close()
    first, half, last = rows[0], rows[len(rows) // 2], rows[-1]
    sys.stdout.write(
        f"memory {first['rss_mib']} MiB after {first['minute']} min, {half['rss_mib']} after "
        f"{half['minute']}, {last['rss_mib']} after {last['minute']}; slope of the second half "
        f"{slope(rows):+.3f} MiB/min; {last['submit']} workloads, "
        f"{last['alive']} alive at the end\n"
    )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    print_speed()
    main()
