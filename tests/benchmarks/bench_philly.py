"""Time-based fair share on the Philly trace: its virtual clusters as projects of equal weight.
`python -m tests.benchmarks.bench_philly`.

Two weeks of the trace, every third job of the file, on clusters so small that these jobs request
1.3 and 2 times the capacity. Jobs of more than 32 GPUs are left out, and none runs for more
than three days, as such a job would dominate at a third of the size. Half of the cluster is quota,
in equal parts.

Fair amounts divide the GPU time by the requests of two weeks with equal weights (water filling).
The share error is the fraction of GPU time that went to other projects than it should; Jain's index
is over (received / fair). Waits are from arrival to the first start; a job that never started waits
until the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jupyter_gpushare.core.model.amounts import GPU, UNLIMITED, Amounts
from jupyter_gpushare.core.model.model import (
    Department,
    Node,
    NodePool,
    Policy,
    Project,
    Quota,
    TimeBased,
)
from tests.benchmarks.machine import print_speed
from tests.benchmarks.replay import HOUR, Job, Replay, jain, water_filled
from tests.benchmarks.traces import folder, rows

DAY: Final = 24 * HOUR
START: Final = datetime(2017, 10, 9, tzinfo=UTC)
SPAN: Final = 14 * DAY
ONE_IN: Final = 3
LOADS: Final = (1.3, 2.0)
MOST_GPUS: Final = 32
LONGEST: Final = 3 * DAY
STEP: Final = 300_000
CASES: Final = {
    "current fair share": None,
    "time-based, 7 days": TimeBased(1000, 7 * DAY),
    "time-based, half-life 1 day": TimeBased(1000, 7 * DAY, DAY),
    "time-based, 7 days, k = 4": TimeBased(4000, 7 * DAY),
}


def sampled(data: Path) -> list[Job]:
    """The selected jobs of two weeks."""
    jobs = []
    for number, row in enumerate(rows(data / "philly.csv")):
        arrival = int(
            (datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC) - START).total_seconds()
            * 1000
        )
        gpus, duration = int(row["num_gpus"]), min(LONGEST, int(float(row["duration"]) * 1000))
        if number % ONE_IN == 0 and 0 <= arrival < SPAN and 0 < gpus <= MOST_GPUS and duration > 0:
            jobs.append(Job(f"j{number:06}", row["cluster"], gpus, arrival, duration))
    return jobs


def replayed(jobs: list[Job], load: float, time_based: TimeBased | None) -> tuple[Replay, int]:
    """Two weeks with one policy, and the number of GPUs."""
    demand = sum(job.gpus * job.duration for job in jobs)
    nodes = max(MOST_GPUS // 8, round(demand / SPAN / load / 8))
    names = sorted({job.project for job in jobs})
    everything = Quota(Amounts(UNLIMITED, UNLIMITED, UNLIMITED))
    quota = Quota(Amounts(nodes * 8 * GPU // 2 // len(names) // GPU * GPU, UNLIMITED, UNLIMITED))
    policy = Policy(
        (NodePool("default", time_based=time_based),),
        (Department("d", pools={"default": everything}),),
        tuple(Project(name, "d", {"default": quota}) for name in names),
    )
    fresh = [Job(job.id, job.project, job.gpus, job.arrival, job.duration) for job in jobs]
    return Replay(policy, [Node(f"n{i:03}", gpus=8) for i in range(nodes)], fresh, step=STEP).run(
        SPAN
    ), nodes * 8


def metrics(run: Replay, gpus: int) -> dict[str, float]:
    """Share error, Jain's index, waits in hours, evictions and utilization."""
    demands: defaultdict[str, float] = defaultdict(float)
    for job in run.jobs.values():
        demands[job.project] += job.gpus * min(job.duration, SPAN - job.arrival) / HOUR
    received = sum(run.held.values())
    entitled = water_filled(received, dict(demands))
    waits = sorted(
        (SPAN if job.first_start is None else job.first_start) - job.arrival
        for job in run.jobs.values()
    )
    return {
        "share_error_percent": 100
        * sum(abs(run.held[q] - e) for q, e in entitled.items())
        / 2
        / received,
        "jain": jain([run.held[q] / e for q, e in entitled.items()]),
        "mean_wait_h": statistics.mean(waits) / HOUR,
        "p95_wait_h": waits[int(0.95 * len(waits))] / HOUR,
        "evictions": sum(job.evictions for job in run.jobs.values()),
        "busy_percent": 100 * received / (gpus * SPAN / HOUR),
        "cycles": run.cycles,
        "wall_s": run.wall,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    data = folder("philly.csv")
    if data is None:
        return
    jobs, results = sampled(data), []
    hours = sum(job.gpus * job.duration for job in jobs) / HOUR
    sys.stdout.write(
        f"{len(jobs)} jobs of {len({job.project for job in jobs})} projects, "
        f"{hours:.0f} GPU-hours\n"
    )
    sys.stdout.write(
        f"{'load x GPUs: fair share':40} {'share error':>12} {'Jain':>6} {'mean wait':>10} "
        f"{'p95 wait':>10} {'evictions':>10} {'busy':>7} {'cycles':>7} {'wall':>7}\n"
    )
    for load in LOADS:
        for name, time_based in CASES.items():
            if options.only not in name:
                continue
            run, gpus = replayed(jobs, load, time_based)
            found = metrics(run, gpus)
            results.append(
                {
                    "case": name,
                    "load": load,
                    "gpus": gpus,
                    **{key: round(value, 3) for key, value in found.items()},
                }
            )
            label = f"{load} x {gpus}: {name}"
            sys.stdout.write(
                f"{label:40} {found['share_error_percent']:10.1f} % {found['jain']:6.3f} "
                f"{found['mean_wait_h']:8.2f} h {found['p95_wait_h']:8.2f} h "
                f"{found['evictions']:10.0f} {found['busy_percent']:5.1f} % "
                f"{found['cycles']:7.0f} {found['wall_s']:5.0f} s\n"
            )
            sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    print_speed()
    main()
