"""Times of bookings. `python -m tests.benchmarks.bench_bookings`. Exit 1: a target was missed.

Random bookings over 90 days are asked for one by one; those that do not fit are refused. Only this
is timed, in processor time, which other programs on the machine disturb less than the time on the
clock.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from jupyter_gpushare.core.bookings.calendar import DAY, Booking, Calendar, Overbooked
from jupyter_gpushare.core.bookings.packing import BookedShare
from jupyter_gpushare.core.bookings.recurrence import Window
from tests.benchmarks.machine import print_speed

COUNT, DAYS, RUNS, BAR_S = 10_000, 90, 5, 1.0
HOUR = 3_600_000
FEW, MANY = (300, 500, 700, 1000, 2000), tuple(range(50, 1000, 10))
CASES = {
    "4 nodes of 8 GPUs, parts and whole GPUs": ([8] * 4, FEW),
    "4 nodes of 8 GPUs, 95 different parts": ([8] * 4, MANY),
    "1 node of 2 GPUs, most are refused": ([2], FEW),
}


def asked_for(sizes: Sequence[int], seed: int) -> list[Booking]:
    """Bookings of 1 to 6 hours."""
    chance = random.Random(seed)
    starts = [chance.randrange(DAYS * DAY) for _ in range(COUNT)]
    windows = [Window(start, start + chance.randrange(HOUR, 6 * HOUR)) for start in starts]
    return [Booking(str(i), w, BookedShare(chance.choice(sizes))) for i, w in enumerate(windows)]


def insert(nodes: Sequence[int], bookings: Sequence[Booking]) -> tuple[float, Calendar]:
    calendar, begun = Calendar(nodes), time.process_time()
    for booking in bookings:
        with suppress(Overbooked):
            calendar.add([booking])
    return time.process_time() - begun, calendar


def remove(calendar: Calendar) -> float:
    begun = time.process_time()
    for i in range(COUNT):
        calendar.remove(str(i))
    took = time.process_time() - begun
    assert not calendar.during(Window(0, (DAYS + 1) * DAY))
    return took


def measure(name: str, nodes: Sequence[int], sizes: Sequence[int]) -> bool:
    """Prints the medians; whether the target was met."""
    inserted, removed, fitting = [], [], 0
    for seed in range(RUNS):
        took, calendar = insert(nodes, asked_for(sizes, seed))
        fitting = len(calendar.during(Window(0, (DAYS + 1) * DAY)))
        inserted.append(took)
        removed.append(remove(calendar))
    took = statistics.median(inserted)
    sys.stdout.write(
        f"{COUNT:,} bookings over {DAYS} days, {name}: asked for in {took:.2f} s (target {BAR_S:g} "
        f"s), {fitting:,} fit; all removed in {statistics.median(removed):.2f} s\n"
    )
    return took < BAR_S


def main() -> int:
    print_speed()
    met = [measure(name, nodes, sizes) for name, (nodes, sizes) in CASES.items()]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
