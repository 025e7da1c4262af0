"""Times of the scheduler's core, and their growth. `python -m tests.benchmarks.bench_core
[--json FILE] [--only NAME]`.

Every case asserts that the timed work was done. Medians of a few runs on fresh clusters; only
decisions are timed, in processor time, which other programs on the machine disturb less than the
time on the clock.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from math import log2
from pathlib import Path

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.amounts import GPU, UNLIMITED, Amounts
from jupyter_gpushare.core.model.decisions import Decisions
from jupyter_gpushare.core.model.events import (
    NodeJoined,
    PodPlaced,
    WorkloadEnded,
    WorkloadSubmitted,
)
from jupyter_gpushare.core.model.model import (
    Department,
    Node,
    Pod,
    Policy,
    Project,
    Quota,
    Spot,
    Workload,
)
from jupyter_gpushare.core.model.reason import Reason
from tests.benchmarks.machine import print_speed

Case = Callable[[int], tuple[Callable[[], object], Callable[[object], bool]]]


def policy(quotas: dict[str, int]) -> Policy:
    """Projects with these GPU quotas under one unlimited department."""
    everything = Quota(Amounts(UNLIMITED, UNLIMITED, UNLIMITED))
    projects = tuple(
        Project(n, "d", {"default": Quota(Amounts(q * GPU, UNLIMITED, UNLIMITED))})
        for n, q in quotas.items()
    )
    return Policy(departments=(Department("d", pools={"default": everything}),), projects=projects)


def cluster_of(nodes: int, quotas: dict[str, int]) -> Cluster:
    cluster = Cluster(policy(quotas))
    for i in range(nodes):
        cluster.apply(
            NodeJoined(Node(f"n{i:05}", gpus=8, gpu_memory=81920, cpu=64_000, memory=524_288))
        )
    return cluster


def submit(
    cluster: Cluster,
    id_: str,
    project: str,
    *,
    pods: int = 1,
    gpu: int = GPU,
    created: int = 0,
    priority: int = 50,
) -> None:
    members = tuple(Pod(f"{id_}-{i}", gpu=gpu, cpu=1000, memory=1024) for i in range(pods))
    cluster.apply(
        WorkloadSubmitted(
            Workload(
                id_,
                project,
                members,
                priority=priority,
                preemptible=priority < 100,
                created=created,
            )
        )
    )


def filled(
    nodes: int, quotas: dict[str, int], project: str, per_node: int = 8, priority: int = 50
) -> Cluster:
    """GPUs allocated to one-GPU workloads of this project for a long time; with priority 100 they
    are never evicted.
    """
    cluster = cluster_of(nodes, quotas)
    for i in range(nodes * per_node):
        submit(cluster, f"w{i:06}", project, created=i, priority=priority)
        spot = Spot(f"n{i // per_node:05}", (i % per_node,), "default")
        cluster.apply(PodPlaced(f"w{i:06}", f"w{i:06}-0", spot, -(10**9)))
    return cluster


def reclaim_by_gang(nodes: int) -> tuple[Callable[[], object], Callable[[object], bool]]:
    """A gang of nodes/10 pods x 8 GPUs reclaims from a project without quota."""
    cluster = filled(nodes, {"poor": 0, "rich": nodes * 8}, "poor")
    cycle(cluster, 0)
    submit(cluster, "gang", "rich", pods=nodes // 10, gpu=8 * GPU, created=10**6)
    pods = nodes // 10
    return (
        lambda: cycle(cluster, 1000),
        lambda d: (
            isinstance(d, Decisions) and (len(d.pipelines), len(d.evictions)) == (pods, 8 * pods)
        ),
    )


def interleaved(nodes: int, projects: int) -> Cluster:
    """A full cluster without a quota for those who fill it: workload i runs on node i mod N, and
    every project has workloads on every node.
    """
    victims = [f"poor{i}" for i in range(projects)]
    cluster = cluster_of(nodes, {"rich": nodes * 8, **dict.fromkeys(victims, 0)})
    for i in range(nodes * 8):
        device, number = divmod(i, nodes)
        submit(cluster, f"w{i:06}", victims[(device + number) % projects], created=i)
        spot = Spot(f"n{number:05}", (device,), "default")
        cluster.apply(PodPlaced(f"w{i:06}", f"w{i:06}-0", spot, -(10**9)))
    cycle(cluster, 0)
    return cluster


def reclaim_in_hard_order(
    nodes: int, projects: int = 1
) -> tuple[Callable[[], object], Callable[[object], bool]]:
    """The same gang where each node hosts old and new workloads, so that seven eighths of all
    victims are considered before the first node has room.
    """
    cluster = interleaved(nodes, projects)
    pods = nodes // 10
    submit(cluster, "gang", "rich", pods=pods, gpu=8 * GPU, created=10**6)
    return (
        lambda: cycle(cluster, 1000),
        lambda d: (
            isinstance(d, Decisions) and (len(d.pipelines), len(d.evictions)) == (pods, 8 * pods)
        ),
    )


def reclaim_from_ten_projects(nodes: int) -> tuple[Callable[[], object], Callable[[object], bool]]:
    """The hard order with workloads of ten projects on every node."""
    return reclaim_in_hard_order(nodes, 10)


def hopeless_gang(nodes: int) -> tuple[Callable[[], object], Callable[[object], bool]]:
    """The same gang, one pod larger than what can be reclaimed: it stays pending."""
    cluster = filled(
        nodes, {"poor": nodes * 8 - nodes // 10 * 8 + 8, "rich": nodes // 10 * 8}, "poor"
    )
    cycle(cluster, 0)
    submit(cluster, "gang", "rich", pods=nodes // 10, gpu=8 * GPU, created=10**6)
    return lambda: cycle(
        cluster, 1000
    ), lambda d: isinstance(d, Decisions) and not d.pipelines and not d.evictions


def fill(nodes: int) -> tuple[Callable[[], object], Callable[[object], bool]]:
    """One-GPU workloads for every GPU, in four projects, in one cycle."""
    cluster = cluster_of(nodes, {f"p{i}": nodes * 2 for i in range(4)})
    for i in range(nodes * 8):
        submit(cluster, f"w{i:06}", f"p{i % 4}", created=i)
    return lambda: cycle(
        cluster, 0
    ), lambda d: isinstance(d, Decisions) and len(d.binds) == nodes * 8


def decide(nodes: int) -> tuple[Callable[[], object], Callable[[object], bool]]:
    """Two pods per node, of mixed sizes."""
    cluster = cluster_of(nodes, {f"p{i}": nodes * 2 for i in range(4)})
    for i in range(nodes * 2):
        submit(
            cluster, f"w{i:06}", f"p{i % 4}", created=i, gpu=(GPU, 2 * GPU, 500, 250)[i // 4 % 4]
        )
    return lambda: cycle(
        cluster, 0
    ), lambda d: isinstance(d, Decisions) and len(d.binds) == nodes * 2


def one_among_pending(pending: int) -> tuple[Callable[[], object], Callable[[object], bool]]:
    """A request in a full cluster with many pending ones stays pending, and its reason is read."""
    cluster = filled(1000, {f"p{i}": 2000 for i in range(4)}, "p0")
    for i in range(pending):
        submit(cluster, f"q{i:06}", "p0", created=10**6 + i, gpu=(GPU, 2 * GPU, 500)[i % 3])
    cycle(cluster, 0)

    def one() -> object:
        submit(cluster, "new", "p0", created=10**7)
        decisions = cycle(cluster, 1000)
        assert decisions.reasons["new"].numbers["position"] == pending + 1
        cluster.apply(WorkloadEnded("new"))
        return decisions

    one()
    return one, lambda d: isinstance(d, Decisions) and "new" in d.reasons and not d.binds


def one_bound_among_pending(pending: int) -> tuple[Callable[[], object], Callable[[object], bool]]:
    """A small request is bound at once, while many larger ones are pending."""
    cluster = filled(1000, {f"p{i}": 8000 for i in range(4)}, "p0", per_node=7, priority=100)
    for i in range(pending):
        submit(cluster, f"q{i:06}", f"p{i % 4}", created=10**6 + i, gpu=(2 + i % 7) * GPU)
    cycle(cluster, 0)
    serial = iter(range(10**6))

    def one() -> object:
        id_ = f"new{next(serial):06}"
        submit(cluster, id_, "p1", created=10**7)
        return cycle(cluster, 1000)

    one()
    return one, lambda d: isinstance(d, Decisions) and len(d.binds) == 1


def one_bound_among_different(
    pending: int,
) -> tuple[Callable[[], object], Callable[[object], bool]]:
    """The same while no two pending requests are equal: each asks for other CPU and memory."""
    cluster = filled(1000, {f"p{i}": 8000 for i in range(4)}, "p0", per_node=7, priority=100)
    for i in range(pending):
        pod = Pod(f"q{i:06}-0", gpu=(2 + i % 7) * GPU, cpu=1000 + i, memory=1024 + i)
        cluster.apply(
            WorkloadSubmitted(Workload(f"q{i:06}", f"p{i % 4}", (pod,), created=10**6 + i))
        )
    cycle(cluster, 0)
    serial = iter(range(10**6))

    def one() -> object:
        submit(cluster, f"new{next(serial):06}", "p1", created=10**7)
        return cycle(cluster, 1000)

    one()
    return one, lambda d: isinstance(d, Decisions) and len(d.binds) == 1


def read_one_reason(pending: int) -> tuple[Callable[[], object], Callable[[object], bool]]:
    """The first reason read after a cycle, with its queue position among many requests of four
    projects.
    """
    cluster = filled(1000, {f"p{i}": 8000 for i in range(4)}, "p0", per_node=7, priority=100)
    for i in range(pending):
        submit(cluster, f"q{i:06}", f"p{i % 4}", created=10**6 + i, gpu=(2 + i % 7) * GPU)
    decisions = cycle(cluster, 0)
    return lambda: decisions.reasons["q000001"], lambda reason: isinstance(reason, Reason)


CASES: dict[str, tuple[Case, tuple[int, ...], bool]] = {
    "reclaim by gang (nodes)": (reclaim_by_gang, (100, 200, 500, 1000), True),
    "reclaim in the hard order (nodes)": (
        reclaim_in_hard_order,
        (100, 500, 1000, 2000, 4000),
        True,
    ),
    "the same, ten projects (nodes)": (reclaim_from_ten_projects, (500, 1000), True),
    "hopeless gang (nodes)": (hopeless_gang, (100, 200, 500), True),
    "fill with one-GPU workloads (nodes)": (fill, (250, 500), True),
    "decide mixed pods, two per node (nodes)": (decide, (2500, 5000), True),
    "one refused among pending (pending)": (one_among_pending, (5000, 10_000), False),
    "one bound among pending (pending)": (one_bound_among_pending, (5000, 10_000), False),
    "one bound among all different (pending)": (one_bound_among_different, (5000, 10_000), False),
    "first reason read in a cycle (pending)": (read_one_reason, (5000, 10_000), True),
}
"""Name -> case, sizes, and whether every run needs a fresh cluster."""


def median_of(case: Case, size: int, fresh: bool, runs: int) -> float:
    """Seconds of processor time. The garbage collector is off, as it would mostly collect objects
    of the builder.
    """
    times = []
    run, done = case(size)
    for i in range(runs):
        if fresh and i:
            run, done = case(size)
        gc.collect()
        gc.disable()
        started = time.process_time()
        result = run()
        times.append(time.process_time() - started)
        gc.enable()
        assert done(result), f"{case.__name__} at {size} did not do its work"
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    rows = []
    for name, (case, sizes, fresh) in CASES.items():
        if options.only not in name:
            continue
        before: tuple[int, float] | None = None
        for size in sizes:
            seconds = median_of(case, size, fresh, options.runs)
            growth = (
                None
                if before is None
                else round((seconds / before[1]) ** (1 / log2(size / before[0])), 2)
            )
            rows.append(
                {
                    "case": name,
                    "size": size,
                    "seconds": round(seconds, 5),
                    "growth_per_doubling": growth,
                }
            )
            sys.stdout.write(f"{name:44} {size:6} {seconds * 1000:10.2f} ms  x{growth or 1:.2f}\n")
            sys.stdout.flush()
            before = (size, seconds)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    print_speed()
    main()
