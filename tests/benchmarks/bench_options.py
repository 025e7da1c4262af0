"""Effects of options of a node pool, each in a suitable situation. `python -m
tests.benchmarks.bench_options`.

* `victims: smallest`: fifty nodes full of over-quota jobs of 1 to 8 GPUs and various ages; thirty
  requests reclaim their quota.
* `reserve_after`: one queue where small jobs keep 64 GPUs busy, and gangs of 32 GPUs arrive every
  twelve hours.
* `usage: siblings`: a department has a tenth of the cluster; one of its projects used all of it for
  three days, then a second one starts.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from pathlib import Path
from typing import Final, Literal

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.amounts import GPU, UNLIMITED, Amounts
from jupyter_gpushare.core.model.events import NodeJoined, PodPlaced, PodReleased, WorkloadSubmitted
from jupyter_gpushare.core.model.model import (
    Department,
    Node,
    NodePool,
    Pod,
    Policy,
    Project,
    Quota,
    Spot,
    TimeBased,
    Workload,
)
from jupyter_gpushare.core.pool_options import chosen
from tests.benchmarks.machine import print_speed
from tests.benchmarks.replay import HOUR, Job, Replay

Row = dict[str, str | float]
DAY: Final = 24 * HOUR
EVERYTHING: Final = Quota(Amounts(UNLIMITED, UNLIMITED, UNLIMITED))


def quota(gpus: int, limit: int = UNLIMITED) -> Quota:
    return Quota(
        Amounts(gpus * GPU, UNLIMITED, UNLIMITED),
        Amounts(limit if limit == UNLIMITED else limit * GPU, UNLIMITED, UNLIMITED),
    )


# -- victims: smallest ----------------------------------------------------------------------------


def full_cluster(
    victims: Literal["fair", "smallest"], seed: int
) -> tuple[Cluster, dict[str, Workload], dict[str, int]]:
    """Fifty full nodes with jobs of 1, 2, 4 or 8 GPUs of a project without quota, started within
    the last day.
    """
    chooser = random.Random(seed)
    policy = Policy(
        (NodePool("default", options=chosen(victims=victims)),),
        (Department("d", pools={"default": EVERYTHING}),),
        (
            Project("guests", "d", {"default": quota(0)}),
            Project("owners", "d", {"default": quota(400)}),
        ),
    )
    cluster, works, starts = Cluster(policy), {}, {}
    for n in range(50):
        cluster.apply(NodeJoined(Node(f"n{n:02}", gpus=8)))
        free = 0
        while free < 8:
            size = chooser.choice([s for s in (1, 2, 4, 8) if s <= 8 - free])
            id_, started = f"g{n:02}{free}", -chooser.randrange(DAY)
            works[id_], starts[id_] = (
                Workload(id_, "guests", (Pod("p", gpu=size * GPU),), created=started),
                started,
            )
            cluster.apply(WorkloadSubmitted(works[id_]))
            cluster.apply(
                PodPlaced(
                    id_, "p", Spot(f"n{n:02}", tuple(range(free, free + size)), "default"), started
                )
            )
            free += size
    return cluster, works, starts


def reclaimed(victims: Literal["fair", "smallest"], seed: int) -> tuple[int, int, int, float]:
    """Thirty requests of 1 to 4 GPUs, one per cycle: GPUs requested, GPUs and jobs evicted, and
    GPU-hours since their start.
    """
    cluster, works, starts = full_cluster(victims, seed)
    chooser = random.Random(seed + 1000)
    requested = gpus = jobs = 0
    hours = 0.0
    for i in range(30):
        size = chooser.choice([1, 1, 2, 3, 4])
        requested += size
        cluster.apply(
            WorkloadSubmitted(
                Workload(f"o{i:02}", "owners", (Pod("p", gpu=size * GPU),), created=i)
            )
        )
        for now in (i * 10, i * 10 + 5):
            for eviction in cycle(cluster, now).evictions:
                held = works[eviction.workload].pods[0].gpu // GPU
                gpus, jobs, hours = (
                    gpus + held,
                    jobs + 1,
                    hours + held * (now - starts[eviction.workload]) / HOUR,
                )
                cluster.apply(PodReleased(eviction.workload, eviction.pod))
    return requested, gpus, jobs, hours


def smallest() -> list[Row]:
    rows: list[Row] = []
    choices: tuple[Literal["fair", "smallest"], ...] = ("fair", "smallest")
    for victims in choices:
        runs = [reclaimed(victims, seed) for seed in range(10)]
        requested, gpus, jobs, hours = (statistics.mean(run[i] for run in runs) for i in range(4))
        rows.append(
            {
                "option": f"victims: {victims}",
                "GPUs requested": requested,
                "GPUs evicted": gpus,
                "jobs evicted": jobs,
                "GPU-hours lost": hours,
            }
        )
    return rows


# -- reserve_after --------------------------------------------------------------------------------


def stream(seed: int) -> list[Job]:
    """Four days of one-GPU jobs of half an hour that nearly fill 64 GPUs, and a gang of 4 x 8 GPUs
    for an hour every twelve hours.
    """
    chooser = random.Random(seed)
    jobs, at, number = [], 0.0, 0
    while at < 4 * DAY:
        jobs.append(
            Job(f"s{number:05}", "p", 1, int(at), int(chooser.uniform(0.5, 1.5) * HOUR / 2))
        )
        at += chooser.expovariate(1.0) * (HOUR / 2) / 62
        number += 1
    gangs = [Job(f"gang{i}", "p", 32, i * DAY // 2 + 6 * HOUR, HOUR) for i in range(7)]
    return jobs + gangs


def reserving() -> list[Row]:
    rows: list[Row] = []
    for label, reserve_after in (("off", None), ("2h", 2 * HOUR), ("30m", HOUR // 2)):
        waits: list[float] = []
        small: list[float] = []
        busy = started = 0.0
        for seed in range(2):
            policy = Policy(
                (NodePool("default", options=chosen(reserve_after=reserve_after)),),
                (Department("d", pools={"default": EVERYTHING}),),
                (Project("p", "d", {"default": quota(64)}),),
            )
            run = Replay(
                policy, [Node(f"n{i}", gpus=8) for i in range(8)], stream(seed), step=60_000
            ).run(4 * DAY)
            busy += sum(run.held.values()) / (64 * 4 * 24) / 2
            for job in run.jobs.values():
                wait = (
                    (4 * DAY if job.first_start is None else job.first_start) - job.arrival
                ) / HOUR
                (waits if job.gpus > 1 else small).append(wait)
                started += job.gpus > 1 and job.first_start is not None
        rows.append(
            {
                "option": f"reserve_after: {label}",
                "gangs": len(waits),
                "started": started,
                "gang wait, mean h": statistics.mean(waits),
                "gang wait, worst h": max(waits),
                "small wait, mean h": statistics.mean(small),
                "busy %": 100 * busy,
            }
        )
    return rows


# -- usage: siblings ------------------------------------------------------------------------------


def endless(project: str, gpus: int, since: int, until: int) -> list[Job]:
    """One-GPU jobs of an hour that keep this many GPUs busy for that time."""
    return [
        Job(f"{project}{i:05}", project, 1, since, HOUR)
        for i in range(gpus * (until - since) // HOUR)
    ]


def sharing() -> list[Row]:
    rows: list[Row] = []
    for usage in ("cluster", "siblings"):
        pool = NodePool("default", time_based=TimeBased(1000, 7 * DAY), options=chosen(usage=usage))
        departments = (
            Department("small", pools={"default": quota(8, 8)}),
            Department("large", pools={"default": quota(72, 72)}),
        )
        projects = (
            Project("first", "small", {"default": quota(0)}),
            Project("second", "small", {"default": quota(0)}),
            Project("others", "large", {"default": quota(72)}),
        )
        jobs = [
            *endless("first", 8, 0, 8 * DAY),
            *endless("second", 8, 3 * DAY, 8 * DAY),
            *endless("others", 72, 0, 8 * DAY),
        ]
        run = Replay(
            Policy((pool,), departments, projects),
            [Node(f"n{i}", gpus=8) for i in range(10)],
            jobs,
            step=HOUR // 4,
        )
        row: Row = {"option": f"usage: {usage}"}
        before = 0.0
        for day in range(3, 8):
            run.run(day * DAY)
            before = run.held["second"]
            run.run((day + 1) * DAY)
            row[f"second's GPUs, day {day - 2}"] = (run.held["second"] - before) / 24
        row["first : second after 8 days"] = run.held["first"] / max(1.0, run.held["second"])
        rows.append(row)
    return rows


PARTS: Final = {"smallest": smallest, "reserving": reserving, "sharing": sharing}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    results: dict[str, list[Row]] = {}
    for name, part in PARTS.items():
        if options.only in name:
            rows = results[name] = part()
            columns = list(rows[0])
            sys.stdout.write("\n" + " | ".join(columns) + "\n")
            for row in rows:
                sys.stdout.write(
                    " | ".join(
                        str(row[c]) if isinstance(row[c], str) else f"{row[c]:.2f}" for c in columns
                    )
                    + "\n"
                )
            sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    print_speed()
    main()
