"""Whether what is booked is there when it begins: `python -m tests.benchmarks.bench_booked_windows
[--pools N]`.

Random pools that borrowers fill all the time, with random bookings that fit, in virtual time. At
the start of each booking its members ask for all of it; a booking counts as late if a part is not
granted in the same cycle. Those that begin while GPUs are being freed for another booking are
counted apart (docs/explanation/scheduling.md, Bookings).
"""

from __future__ import annotations

import sys
from collections import Counter

import click

from jupyter_gpushare.core.model.events import WorkloadEnded
from tests.core.test_booked_rooms import LEAD, Clock, pool_and_bookings, use


@click.command()
@click.option("--pools", default=400, show_default=True)
@click.option("--bookings", default=40, show_default=True, help="Tried per pool; those that fit.")
def main(pools: int, bookings: int) -> None:
    found: Counter[str] = Counter()
    for seed in range(pools):
        cluster, windows = pool_and_bookings(seed, bookings)
        clock = Clock(cluster, LEAD // 2)
        edges = {at for w in windows for at in (w.opens, w.end)}
        times = {0, *edges, *(at + clock.notice for at in edges), *(w.start for w in windows)}
        for now in sorted(times):
            for _ in range(3):
                clock.cycle(now)
            beside = any(w.opens <= now < w.start for w in windows)
            for window in (w for w in windows if w.start == now):
                kind = "beside another lead" if beside else "alone"
                found[f"{kind}, {_outcome(clock, window, now)}"] += 1
    for name, count in sorted(found.items()):
        sys.stdout.write(f"{name:<40} {count:>8}\n")


def _outcome(clock: Clock, window: object, now: int) -> str:
    try:
        use(clock, window, now)  # type: ignore[arg-type]
    except AssertionError:
        _end(clock)
        return "late"
    return "in time"


def _end(clock: Clock) -> None:
    """What was asked for, so that it does not disturb the next bookings."""
    for id_ in [name for name in clock.cluster.workloads if name.startswith("b")]:
        clock.cluster.apply(WorkloadEnded(id_))


if __name__ == "__main__":
    main()
