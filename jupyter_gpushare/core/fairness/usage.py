"""Each queue's recent usage of a pool, the input of time-based fair share. Times are integers in
ms.

Formula: docs/explanation/scheduling.md, Time-based fair share. Usage within quota counts.
`queueing.entitlement` normalizes by capacity or among siblings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ..model.amounts import Amounts

__all__ = ["UsageSample", "usage_of"]

SCALE: Final = 1_000_000
Millionths = tuple[int, int, int]
"""GPU, CPU and memory, as in `events.UsageMeasured`."""


@dataclass(frozen=True, slots=True)
class UsageSample:
    """Allocated amounts and capacity, from `start` for `length` ms. Queues not listed held
    nothing.
    """

    start: int
    length: int
    capacity: Amounts
    held: Mapping[str, Amounts]


def usage_of(
    samples: Iterable[UsageSample], now: int, *, window: int, half_life: int = 0
) -> dict[str, Millionths]:
    """Each queue's part of the capacity over the last `window` ms, in millionths, rounded.

    `half_life` 0: no decay. A resource without capacity counts as unused. A sample that reaches
    into the window counts by the part inside.
    """
    held: dict[str, list[float]] = {}
    capacity = [0.0, 0.0, 0.0]
    for sample in samples:
        weight = _weight(sample, now, window, half_life)
        if weight == 0:
            continue
        _add(capacity, sample.capacity, weight)
        for queue, amounts in sample.held.items():
            _add(held.setdefault(queue, [0.0, 0.0, 0.0]), amounts, weight)
    return {queue: _ratio(sums, capacity) for queue, sums in held.items()}


def _weight(sample: UsageSample, now: int, window: int, half_life: int) -> float:
    """ms of the sample inside the window, decayed (as an integral, so that one long sample weighs
    as much as many short ones).
    """
    start, end = max(sample.start, now - window), min(sample.start + sample.length, now)
    if end <= start:
        return 0.0
    if half_life <= 0:
        return float(end - start)
    return float(
        half_life
        / math.log(2)
        * (0.5 ** ((now - end) / half_life) - 0.5 ** ((now - start) / half_life))
    )


def _add(sums: list[float], amounts: Amounts, weight: float) -> None:
    for r in range(3):
        sums[r] += amounts[r] * weight


def _ratio(parts: Iterable[float], wholes: list[float]) -> Millionths:
    gpu, cpu, memory = (
        round(SCALE * part / whole) if whole > 0 else 0
        for part, whole in zip(parts, wholes, strict=True)
    )
    return gpu, cpu, memory
