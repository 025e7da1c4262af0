"""Load of a laboratory: 1000 kernels, 200 agents, 10 000 pending, 50 requests per second. `python
-m tests.benchmarks.bench_load [--json FILE]`.

Real HTTP, WebSockets and SQLite with every commit on disk; service, agents and clients are three
processes. The agents are minimal: they comply at once and report the usage of their leases every
second. A request is timed from its POST to the stream frame with `running`, and released a second
later. Pending requests are of many kinds (projects x shares x priorities): half exceed the limit of
their project, half need a full node pool. The client opens a new connection for every call, as in
the product. The benchmark checks that every request was granted once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack, aclosing
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import HttpTransport, SchedulerClient, token_in
from tests.benchmarks.machine import print_speed
from tests.scheduler.agents import FakeAgent
from tests.scheduler.scheduler_forks import Child, ForkServer

GPUS = 8
SHARES = (0.25, 0.5, 1, 2)
CLASSES = ("train", "interactive")


def policy(projects: int, nodes: int) -> str:
    """Projects below (`p0`…) and at (`full…`) their limit, and a full pool `train` with a tenth of
    the nodes.
    """
    lines = [
        "node_pools: [{name: default}, {name: train, label: {key: pool, value: train}}]",
        "projects:",
    ]
    gpus = nodes * GPUS
    for i in range(projects):
        quotas = f"default: {{gpu: {{quota: {gpus // projects}}}}}, train: {{gpu: {{quota: 1}}}}"
        lines.append(f"  - {{name: p{i}, pools: {{{quotas}}}}}")
        lines.append(f"  - {{name: full{i}, pools: {{default: {{gpu: {{quota: 0, limit: 0}}}}}}}}")
    return "\n".join(lines) + "\n"


async def _run_agents(url: str, token: Path, nodes: int, connection: Connection) -> None:
    async with AsyncExitStack() as stack:
        links = []
        for i in range(nodes):
            agent = FakeAgent(f"n{i:03}", GPUS)
            if i < nodes // 10:
                agent.node.labels["pool"] = "train"
            client = SchedulerClient(HttpTransport(url, token_in(token), call_s=30))
            links.append((agent, await stack.enter_async_context(agent.linked(client))))
        connection.send("linked")
        while not connection.poll():
            for agent, link in links:
                rows = [
                    m.LeaseUsage(
                        lease=id_, held_ms=1000, busy_ms=300, used_mib_ms=0, borrowed_mib_ms=0
                    )
                    for id_ in agent.holds
                ]
                await link.send(m.UsageReport(since_ms=1000, rows=rows))
                await asyncio.sleep(1 / nodes)


def _agents(url: str, token: Path, nodes: int, connection: Connection) -> None:
    asyncio.run(_run_agents(url, token, nodes, connection))


async def _fill(
    client: SchedulerClient, projects: int, kernels: int, waiting: int, full: int
) -> None:
    """The state before the measurement: running and pending workloads."""

    async def ask(id_: str, project: str, gpu: float, **more: object) -> None:
        await client.submit(
            m.WorkloadRequest(id=id_, project=project, pods=[m.PodRequest(gpu=gpu)], **more)
        )  # type: ignore[arg-type]

    async def several(asking: list[object]) -> None:
        for start in range(0, len(asking), 20):
            await asyncio.gather(*asking[start : start + 20])  # type: ignore[arg-type]

    await several(
        [
            ask(
                f"blocker-{i}",
                f"p{i % projects}",
                1,
                node_pools=["train"],
                priority_class="build",
                preemptible=True,
            )
            for i in range(full)
        ]
    )
    await several([ask(f"kernel-{i}", f"p{i % projects}", 0.5) for i in range(kernels)])
    each = [(share, name) for share in SHARES for name in CLASSES]
    for start in range(0, waiting, 500):
        asking = []
        for i in range(start, min(waiting, start + 500)):
            share, name = each[i // (2 * projects) % len(each)]
            where: dict[str, object] = (
                {"project": f"full{i % projects}", "queue_anyway": True}
                if i % 2
                else {"project": f"p{i % projects}", "node_pools": ["train"]}
            )
            asking.append(
                ask(f"waiting-{i}", str(where.pop("project")), share, priority_class=name, **where)
            )  # type: ignore[arg-type]
        await several(asking)


async def _timed(
    client: SchedulerClient, projects: int, requests: int, per_second: float
) -> list[float]:
    """Milliseconds from POST to the frame with the grant; each is released after a second."""
    begun: dict[str, float] = {}
    took: dict[str, float] = {}
    granted: dict[str, asyncio.Event] = {}
    ready = asyncio.Event()

    async def watch() -> None:
        async with aclosing(client.changes()) as frames:
            async for frame in frames:
                ready.set()
                changed = [frame.workload] if isinstance(frame, m.WorkloadChanged) else []
                if isinstance(frame, m.SchedulerState):  # at the start, and after a reconnect
                    changed = frame.workloads
                for view in changed:
                    if view.state == "running" and view.id in granted:
                        took.setdefault(view.id, (time.perf_counter() - begun[view.id]) * 1000)
                        granted[view.id].set()

    async def one(i: int) -> None:
        id_ = f"r{i}-{time.monotonic_ns()}"
        granted[id_] = asyncio.Event()
        begun[id_] = time.perf_counter()
        await client.submit(
            m.WorkloadRequest(id=id_, project=f"p{i % projects}", pods=[m.PodRequest(gpu=0.5)])
        )
        await asyncio.wait_for(granted[id_].wait(), 60)
        await asyncio.sleep(1)
        await client.end(id_)

    watching = asyncio.create_task(watch())
    await ready.wait()
    await asyncio.sleep(3)  # after the initial state of eleven thousand workloads
    start, tasks = time.perf_counter(), []
    for i in range(requests):
        await asyncio.sleep(max(0, start + i / per_second - time.perf_counter()))
        tasks.append(asyncio.create_task(one(i)))
    await asyncio.gather(*tasks)
    watching.cancel()
    return sorted(took.values())


async def measure(
    fork_server: ForkServer, folder: Path, options: argparse.Namespace
) -> dict[str, float]:
    file = folder / "gpushare.yaml"
    file.write_text(policy(options.projects, options.agents))
    child = fork_server.start(folder / "state", policy_file=str(file), **json.loads(options.config))
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    token = folder / "state" / "admin.token"
    agents = multiprocessing.get_context("spawn").Process(
        target=_agents, args=(child.url, token, options.agents, theirs), daemon=True
    )
    agents.start()
    while not ours.poll():
        await asyncio.sleep(0.05)
    client = SchedulerClient(HttpTransport(child.url, token_in(token), call_s=60))
    service, begun = psutil.Process(child.pid), time.perf_counter()
    await _fill(
        client, options.projects, options.kernels, options.waiting, options.agents // 10 * GPUS
    )
    filled = time.perf_counter() - begun
    if options.pid_file:
        options.pid_file.write_text(str(child.pid))
    used, begun = _cpu(service), time.perf_counter()
    times = await _timed(client, options.projects, options.requests, options.per_second)
    used = _cpu(service) - used
    share = used / (time.perf_counter() - begun)
    memory = service.memory_info().rss / 2**20
    _check((await client.workloads()).workloads, options)
    client.transport.close()
    ours.send("stop")
    agents.join(10)
    ready = _restart(fork_server, child, folder, file)
    return {
        "waiting": options.waiting,
        "requests": len(times),
        "p50_ms": round(statistics.median(times), 2),
        "p99_ms": round(times[int(len(times) * 0.99) - 1], 2),
        "worst_ms": round(times[-1], 2),
        "cpu_percent": round(share * 100, 1),
        "cpu_ms_per_grant": round(used / len(times) * 1000, 2),
        "memory_mib": round(memory),
        "fill_s": round(filled, 1),
        "restart_s": round(ready, 2),
    }


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _check(views: list[m.WorkloadView], options: argparse.Namespace) -> None:
    """Kernels are running, pending workloads are pending, and all requests were released."""
    running = sum(view.state == "running" for view in views if view.id.startswith("kernel-"))
    waiting = sum(view.state == "pending" for view in views if view.id.startswith("waiting-"))
    left = [view.id for view in views if view.id.startswith("r")]
    assert (running, waiting, left) == (options.kernels, options.waiting, []), (
        running,
        waiting,
        left,
    )


def _restart(fork_server: ForkServer, child: Child, folder: Path, file: Path) -> float:
    """Seconds from kill -9 until the service answers again."""
    started = time.perf_counter()
    child.kill()
    again = fork_server.start(folder / "state", policy_file=str(file))
    took = time.perf_counter() - started
    again.end()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--kernels", type=int, default=1000)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--projects", type=int, default=20)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--per-second", type=float, default=50)
    parser.add_argument("--config", default="{}", help="more settings of the service, as JSON")
    parser.add_argument(
        "--pid-file",
        type=Path,
        help="file for the process id of the service when the measurement begins, for profilers",
    )
    options = parser.parse_args()
    fork_server = ForkServer()
    try:
        with tempfile.TemporaryDirectory() as folder:
            row = asyncio.run(measure(fork_server, Path(folder), options))
    finally:
        fork_server.close()
    sys.stdout.write(
        f"{options.kernels} kernels, {options.agents} agents, {row['waiting']} pending, "
        f"{options.per_second:g} requests/s: p50 {row['p50_ms']:.2f} ms, "
        f"p99 {row['p99_ms']:.2f} ms, worst {row['worst_ms']:.2f} ms; "
        f"service {row['cpu_percent']} % of a core, {row['cpu_ms_per_grant']} ms of processor time "
        f"per grant, {row['memory_mib']} MiB; "
        f"kill -9 to ready {row['restart_s']} s\n"
    )
    if options.json:
        options.json.write_text(json.dumps(row, indent=1))


if __name__ == "__main__":
    print_speed()
    main()
