"""Accuracy of the expected wait on public traces. `python -m tests.benchmarks.bench_waits`.

Philly: the replay of `bench_philly` (every third job of two weeks, with the scheduler's cycle in
virtual time) on clusters on which these jobs request 0.6 to 1.3 times the capacity. openb: the
waits recorded in the trace (creation to scheduling), of another scheduler on another cluster; its
priority levels represent projects.

Estimates are made for jobs that did not start at once, by the estimator of the service, with what
was known at that time: earlier grants, and pending jobs. `covered`: the fraction of jobs whose wait
did not exceed the estimated median (ideal: 50 %) and 90th percentile (90 %); jobs that never
started count as not covered. `error`: the median of |wait - median|, and the fraction of waits
between half and twice the median. `later`: the same jobs, after half of their wait. `without
positions`: first estimates, with waits compared directly instead of by initial queue position.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from jupyter_gpushare.core.estimates.survival import WaitEstimate
from jupyter_gpushare.core.estimates.wait_history import DAY, WaitHistory, WaitSample, size_class
from jupyter_gpushare.core.model.amounts import GPU
from tests.benchmarks.bench_philly import SPAN, STEP, replayed
from tests.benchmarks.bench_philly import sampled as sampled_jobs
from tests.benchmarks.machine import print_speed
from tests.benchmarks.traces import folder, rows

LOADS: Final = (0.6, 0.75, 1.0, 1.3)
SAMPLES: Final = 400
MINUTE: Final = 60_000


@dataclass(frozen=True, slots=True)
class Answer:
    """An estimate, and the actual wait; `remained` None: it never started."""

    expected: WaitEstimate | None
    remained: int | None


def philly(data: Path, load: float) -> list[WaitSample]:
    """Waits of the jobs on a cluster with this load."""
    run, _ = replayed(sampled_jobs(data), load, None)
    return [
        WaitSample(
            job.id,
            job.project,
            "default",
            size_class(job.gpus * GPU),
            job.arrival,
            job.first_start,
            job.first_start is not None,
        )
        for job in run.jobs.values()
    ]


def openb(data: Path) -> list[WaitSample]:
    """Pods with a GPU, all in one pool; times of the trace are seconds."""
    waits = []
    for row in rows(data / "openb_pod_list_default.csv"):
        if int(row["num_gpu"]):
            begun, scheduled, deleted = (
                int(float(row[name]) * 1000) if row[name] else None
                for name in ("creation_time", "scheduled_time", "deletion_time")
            )
            assert begun is not None
            gpu = int(row["num_gpu"]) * int(row["gpu_milli"])
            waits.append(
                WaitSample(
                    row["name"],
                    row["qos"],
                    "default",
                    size_class(gpu),
                    begun,
                    scheduled or deleted,
                    scheduled is not None,
                )
            )
    return waits


def sampled_waits(waits: Sequence[WaitSample], step: int) -> list[WaitSample]:
    """Jobs that had to wait, after the first day, which is the initial history."""
    begin = min(wait.begun for wait in waits) + DAY
    had_to = [
        wait
        for wait in waits
        if wait.begun > begin and (wait.ended is None or wait.ended - wait.begun > step)
    ]
    return random.Random(1).sample(had_to, min(SAMPLES, len(had_to)))


def answers(
    waits: Sequence[WaitSample], sampled: Sequence[WaitSample], at: float, step: int
) -> Iterator[Answer]:
    """Estimates for each job after this fraction of its wait (at least one cycle)."""
    horizon = max(wait.begun for wait in waits)
    for one in sampled:
        end = horizon if one.ended is None else one.ended
        now = one.begun + max(step, int(at * (end - one.begun)))
        known = [_as_known(wait, now) for wait in waits if wait.begun < now and wait.id != one.id]
        past = WaitHistory(
            [
                *(wait for wait in known if not _at_once(wait, step)),
                replace(one, ended=None, granted=False),
            ],
            now,
        )
        found = past.expected(
            one.pool, one.size, past.position(one.project, one.pool, one.id), now - one.begun
        )
        yield Answer(
            found and found.expected,
            one.ended - now if one.ended is not None and one.granted else None,
        )


def _as_known(wait: WaitSample, now: int) -> WaitSample:
    return (
        replace(wait, ended=None, granted=False) if wait.ended is None or wait.ended > now else wait
    )


def _at_once(wait: WaitSample, step: int) -> bool:
    """Virtual time advances in steps: jobs that started within the first did not wait."""
    return wait.ended is not None and wait.ended - wait.begun <= step


def _alone(waits: Sequence[WaitSample]) -> list[WaitSample]:
    """One project per job: all queue positions are 1, so waits are compared directly."""
    return [replace(wait, project=wait.id) for wait in waits]


def metrics(found: Sequence[Answer]) -> dict[str, float]:
    estimated = [
        answer
        for answer in found
        if answer.expected is not None and answer.expected.median is not None
    ]
    wide = [
        answer
        for answer in estimated
        if answer.expected is not None and answer.expected.p90 is not None
    ]
    pairs = [
        (answer.remained, answer.expected.median)
        for answer in estimated
        if answer.remained is not None and answer.expected and answer.expected.median
    ]
    near = [0.5 <= max(MINUTE, actual) / max(MINUTE, median) <= 2 for actual, median in pairs]
    return {
        "sampled": len(found),
        "answered_percent": 100 * len(estimated) / len(found),
        "under_median_percent": 100 * _covered(estimated, "median"),
        "with_p90_percent": 100 * len(wide) / len(found),
        "under_p90_percent": 100 * _covered(wide, "p90"),
        "error_min": statistics.median(abs(actual - median) for actual, median in pairs) / MINUTE,
        "within_twice_percent": 100 * sum(near) / len(near),
    }


def _covered(found: Sequence[Answer], name: str) -> float:
    return sum(
        answer.remained is not None and answer.remained <= getattr(answer.expected, name)
        for answer in found
    ) / max(1, len(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    data = folder("philly.csv", "openb_pod_list_default.csv")
    if data is None:
        return
    assert SPAN > DAY
    cases = [
        (f"Philly, load {load}", lambda load=load: philly(data, load), STEP) for load in LOADS
    ] + [("openb, as recorded", lambda: openb(data), 2_000)]
    results = []
    columns = (
        f"{'jobs':>6} {'estimate':>9} {'<= median':>10} {'with p90':>9} {'<= p90':>8} "
        f"{'error':>10} {'within 2x':>10}"
    )
    sys.stdout.write(f"{'':32} {columns}\n")
    for name, made, step in cases:
        waits = made()
        sampled = sampled_waits(waits, step)
        for when, at in (("first", 0.0), ("later", 0.5), ("without positions", 0.0)):
            placed = when != "without positions"
            found = metrics(
                list(
                    answers(waits, sampled, at, step)
                    if placed
                    else answers(_alone(waits), _alone(sampled), at, step)
                )
            )
            results.append(
                {
                    "case": name,
                    "when": when,
                    **{key: round(value, 2) for key, value in found.items()},
                }
            )
            sys.stdout.write(
                f"{name + ', ' + when:32} {found['sampled']:6.0f} "
                f"{found['answered_percent']:7.0f} % {found['under_median_percent']:8.0f} % "
                f"{found['with_p90_percent']:7.0f} %"
                f" {found['under_p90_percent']:6.0f} % {found['error_min']:6.1f} min"
                f" {found['within_twice_percent']:8.0f} %\n"
            )
            sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    print_speed()
    main()
