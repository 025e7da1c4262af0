"""How good the expected wait is, on public traces. `python -m tests.benchmarks.bench_waits`.

Philly: what `bench_philly` replays (every third job of a fortnight, the scheduler's own cycle in
virtual time) on clusters on which the kept jobs ask for 0.6 to 1.3 times what there is. openb: the
waits that the trace itself tells (creation to scheduling), which another scheduler made on another
cluster; its priority levels stand for projects.

Asked is for jobs that did not start at once, by the estimator as the service uses it, with what was
known at that moment: what had been granted, and what still waited. `covered`: the part of the asked
whose wait was not longer than the median (wanted: 50 %) and the ninetieth percentile (90 %) that
they were told; who never got anything counts as not covered. `error`: the median of |waited -
median|, and the part whose wait was within twice and half of the median. `later`: the same jobs,
asked once more when half of their wait was over. `without places`: asked first, with waits compared
as they are instead of by the place in line at which they began.
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
from tests.benchmarks.bench_philly import SPAN, STEP, replayed, sampled
from tests.benchmarks.traces import folder, rows

LOADS: Final = (0.6, 0.75, 1.0, 1.3)
ASKED: Final = 400
MINUTE: Final = 60_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What was told, and what came: `remained` None: it never started."""

    expected: WaitEstimate | None
    remained: int | None


def philly(data: Path, load: float) -> list[WaitSample]:
    """What the jobs of the fortnight waited for on a cluster with this load."""
    run, _ = replayed(sampled(data), load, None)
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


def asked_of(waits: Sequence[WaitSample], step: int) -> list[WaitSample]:
    """Those who had to wait, after the first day: before it there is no past to go by."""
    begin = min(wait.begun for wait in waits) + DAY
    had_to = [
        wait
        for wait in waits
        if wait.begun > begin and (wait.ended is None or wait.ended - wait.begun > step)
    ]
    return random.Random(1).sample(had_to, min(ASKED, len(had_to)))


def answers(
    waits: Sequence[WaitSample], asked: Sequence[WaitSample], at: float, step: int
) -> Iterator[Answer]:
    """Each is asked when this part of its wait is over (after its first cycle, when nothing is)."""
    horizon = max(wait.begun for wait in waits)
    for one in asked:
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
    """Virtual time goes in steps: who started within the first did not wait."""
    return wait.ended is not None and wait.ended - wait.begun <= step


def _alone(waits: Sequence[WaitSample]) -> list[WaitSample]:
    """As if everybody had a project to themselves: all places are 1, so waits are compared as they
    are.
    """
    return [replace(wait, project=wait.id) for wait in waits]


def judged(found: Sequence[Answer]) -> dict[str, float]:
    told = [
        answer
        for answer in found
        if answer.expected is not None and answer.expected.median is not None
    ]
    wide = [
        answer for answer in told if answer.expected is not None and answer.expected.p90 is not None
    ]
    pairs = [
        (answer.remained, answer.expected.median)
        for answer in told
        if answer.remained is not None and answer.expected and answer.expected.median
    ]
    near = [0.5 <= max(MINUTE, came) / max(MINUTE, said) <= 2 for came, said in pairs]
    return {
        "asked": len(found),
        "answered_percent": 100 * len(told) / len(found),
        "under_median_percent": 100 * _covered(told, "median"),
        "with_p90_percent": 100 * len(wide) / len(found),
        "under_p90_percent": 100 * _covered(wide, "p90"),
        "error_min": statistics.median(abs(came - said) for came, said in pairs) / MINUTE,
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
    ] + [("openb, as it was", lambda: openb(data), 2_000)]
    results = []
    sys.stdout.write(
        f"{'':32} {'asked':>6} {'told':>7} {'<= median':>10} {'p90 told':>9} {'<= p90':>8} {'error':>10} {'within 2x':>10}\n"
    )
    for name, made, step in cases:
        waits = made()
        asked = asked_of(waits, step)
        for when, at in (("asked first", 0.0), ("later", 0.5), ("without places", 0.0)):
            placed = when != "without places"
            found = judged(
                list(
                    answers(waits, asked, at, step)
                    if placed
                    else answers(_alone(waits), _alone(asked), at, step)
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
                f"{name + ', ' + when:32} {found['asked']:6.0f} {found['answered_percent']:5.0f} % {found['under_median_percent']:8.0f} %"
                f" {found['with_p90_percent']:7.0f} % {found['under_p90_percent']:6.0f} % {found['error_min']:6.1f} min {found['within_twice_percent']:8.0f} %\n"
            )
            sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
