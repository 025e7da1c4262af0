"""How full a heterogeneous cluster gets: the openb trace by the protocol of the FGD paper. `python -m tests.benchmarks.bench_openb`.

Pods are drawn from the trace with replacement until 1.3 times the GPUs of the cluster are asked for, shuffled, and only arrive. Reported is
the part of all GPUs that is allocated when as much was asked for as there is. The order of ties is shuffled by renaming the nodes, so
that no result rests on how nodes happen to be named. The trace is not part of the project: `--data` names the folder with its two files.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import statistics
import sys
import time
from pathlib import Path

from jupyter_gpushare.core.amounts import GPU, UNLIMITED, Amounts
from jupyter_gpushare.core.cluster import Cluster
from jupyter_gpushare.core.cycle import cycle
from jupyter_gpushare.core.facts import NodeJoined, WorkloadSubmitted
from jupyter_gpushare.core.model import Department, Node, NodePool, Options, Pod, Policy, Project, Quota, Workload

POLICIES = {
    "defragment": NodePool("default", defragment=True),
    "binpack": NodePool("default"),
    "spread": NodePool("default", gpu="spread"),
}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def machines(data: Path, seed: int) -> list[Node]:
    """The GPU nodes, under names that are shuffled by the seed."""
    found = rows(data / "openb_node_list_gpu_node.csv")
    names = [f"n{i:04}" for i in range(len(found))]
    random.Random(seed).shuffle(names)
    return [
        Node(name, gpus=int(r["gpu"]), cpu=int(r["cpu_milli"]), memory=int(r["memory_mib"]), labels={"model": r["model"]}, max_pods=10_000)
        for name, r in zip(names, found, strict=True)
    ]  # fmt: skip


def arrivals(data: Path, nodes: list[Node], seed: int, *, until: float = 1.0) -> list[Pod]:
    """The pods in the order of arrival, as many as ask for `until` times all GPUs."""
    trace = rows(data / "openb_pod_list_default.csv")
    capacity = sum(node.gpus for node in nodes) * GPU
    chooser = random.Random(seed)
    drawn, asked = [], 0
    while asked < 1.3 * capacity:
        row = chooser.choice(trace)
        drawn.append(row)
        asked += int(row["num_gpu"]) * int(row["gpu_milli"] or 0)
    chooser.shuffle(drawn)
    by_model: dict[str, tuple[str, ...]] = {}
    pods, asked = [], 0
    for i, row in enumerate(drawn):
        spec = row["gpu_spec"]
        if spec not in by_model:
            by_model[spec] = tuple(n.name for n in nodes if n.labels["model"] in spec.split("|")) if spec else ()
        count = int(row["num_gpu"])
        gpu = int(row["gpu_milli"]) * count if count else 0
        pods.append(Pod(f"p{i}", gpu=gpu, cpu=int(row["cpu_milli"]), memory=int(row["memory_mib"]), node_affinity=by_model[spec]))
        asked += gpu
        if asked >= until * capacity:
            break
    return pods


def allocated(data: Path, pool: NodePool, seed: int) -> tuple[float, float]:
    """Part of all GPUs that is allocated, and seconds per thousand pods."""
    nodes = machines(data, seed)
    everything = Quota(Amounts(UNLIMITED, UNLIMITED, UNLIMITED))
    policy = Policy(
        (pool,), (Department("d", pools={"default": everything}),), (Project("p", "d", {"default": everything}),),
        options=Options(actions=("allocate",)),
    )  # fmt: skip
    cluster = Cluster(policy)
    for node in nodes:
        cluster.apply(NodeJoined(node))
    pods = arrivals(data, nodes, seed)
    for i, pod in enumerate(pods):
        cluster.apply(WorkloadSubmitted(Workload(f"w{i:06}", "p", (pod,), created=i)))
    started = time.perf_counter()
    decisions = cycle(cluster, 0)
    seconds = time.perf_counter() - started
    assert len(decisions.binds) > len(pods) / 2
    free = sum(node.capacity - use for node in cluster.nodes.values() for use in node.gpu[0][: node.node.gpus])
    capacity = sum(node.capacity * node.node.gpus for node in cluster.nodes.values())
    return 1 - free / capacity, seconds / len(pods) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = []
    for name, pool in POLICIES.items():
        if options.only not in name:
            continue
        runs = [allocated(options.data, pool, seed) for seed in range(42, 42 + options.seeds)]
        parts, seconds = [100 * part for part, _ in runs], statistics.median(second for _, second in runs)
        spread = statistics.stdev(parts) if len(parts) > 1 else 0.0
        results.append({"policy": name, "allocated_percent": round(statistics.mean(parts), 2), "deviation": round(spread, 2), "worst": round(min(parts), 2),
                        "seconds_per_1000_pods": round(seconds, 3)})  # fmt: skip
        sys.stdout.write(f"{name:12} {statistics.mean(parts):6.2f} % ± {spread:.2f}   worst {min(parts):6.2f} %   {seconds:.2f} s per 1000 pods\n")
        sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
