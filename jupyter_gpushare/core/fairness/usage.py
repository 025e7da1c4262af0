"""How much of a pool each queue has held lately: what time-based fair share weighs. Knows no clock;
times are integers in ms.

Source: scheduling rules, section 2.4: U = sum of held x decay / sum of capacity x decay, decay =
0.5 ^ (age / half-life), in-quota usage counts. Whether that is weighed against the capacity or
among siblings is `entitlement`'s business.
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
"""GPU, CPU and memory, as `facts.UsageMeasured` carries them."""


@dataclass(frozen=True, slots=True)
class UsageSample:
    """What was held and what there was, from `start` for `length` ms. Queues that are not named
    held nothing.
    """

    start: int
    length: int
    capacity: Amounts
    held: Mapping[str, Amounts]


def usage_of(
    samples: Iterable[UsageSample], now: int, *, window: int, half_life: int = 0
) -> dict[str, Millionths]:
    """Each queue's share of the capacity over the last `window` ms, in millionths, rounded.
    `half_life` 0: no decay.

    A resource without capacity counts as unused. A sample that reaches into the window counts by
    the part that is inside.
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
    """ms of the sample that are in the window and not in the future, decayed moment by moment (the
    integral, so that one long sample weighs what many short ones do).
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
