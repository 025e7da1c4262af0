"""How much of a pool each queue has held lately: what time-based fair share weighs. Knows no clock; times are integers in ms.

Source: scheduling rules, section 2.4: U = sum of held x decay / sum of capacity x decay, decay = 0.5 ^ (age / half-life), in-quota
usage counts. The `siblings` option puts what the siblings held in the place of the capacity: in a department that owns a tenth of
the cluster nobody can exceed a tenth of the capacity, so the plain rule hardly corrects anything there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from .amounts import Amounts

__all__ = ["RESOLUTION", "Sample", "UsageHistory", "among_siblings", "usage_of"]

RESOLUTION: Final = 60_000
"""ms. Samples are merged into minutes (the resolution that the rules' own queries have); a week of one queue is 10 080 numbers."""

SCALE: Final = 1_000_000
Millionths = tuple[int, int, int]
"""GPU, CPU and memory, as `facts.UsageMeasured` carries them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was held and what there was, from `start` for `length` ms. Queues that are not named held nothing."""

    start: int
    length: int
    capacity: Amounts
    held: Mapping[str, Amounts]


def usage_of(samples: Iterable[Sample], now: int, *, window: int, half_life: int = 0) -> dict[str, Millionths]:
    """Each queue's share of the capacity over the last `window` ms, in millionths, rounded. `half_life` 0: no decay.

    A resource without capacity counts as unused. A sample that reaches into the window counts by the part that is inside.
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


def among_siblings(usage: Mapping[str, Millionths], siblings: Iterable[str]) -> dict[str, Millionths]:
    """The same usage as shares of what these siblings used together (option `usage: siblings` of a node pool)."""
    names = list(siblings)
    totals = [float(sum(usage.get(name, (0, 0, 0))[r] for name in names)) for r in range(3)]
    return {name: _ratio(usage.get(name, (0, 0, 0)), totals) for name in names}


@dataclass(slots=True)
class UsageHistory:
    """The samples of one node pool, merged into minutes, no older than the window."""

    window: int
    half_life: int = 0
    samples: deque[Sample] = field(default_factory=deque)

    def record(self, sample: Sample) -> None:
        """Adds what was held since the last sample. Samples come in order of time; the oldest leave when they are out of the window."""
        last = self.samples[-1] if self.samples else None
        if last is not None and last.length + sample.length <= RESOLUTION and sample.start == last.start + last.length:
            self.samples[-1] = _merged(last, sample)
        else:
            self.samples.append(sample)
        horizon = sample.start + sample.length - self.window
        while self.samples and self.samples[0].start + self.samples[0].length <= horizon:
            self.samples.popleft()

    def usage(self, now: int) -> dict[str, Millionths]:
        """`usage_of` the samples that are kept."""
        return usage_of(self.samples, now, window=self.window, half_life=self.half_life)


def _weight(sample: Sample, now: int, window: int, half_life: int) -> float:
    """ms of the sample that are in the window and not in the future, decayed moment by moment (the integral, so that one long sample
    weighs what many short ones do)."""
    start, end = max(sample.start, now - window), min(sample.start + sample.length, now)
    if end <= start:
        return 0.0
    if half_life <= 0:
        return float(end - start)
    return float(half_life / math.log(2) * (0.5 ** ((now - end) / half_life) - 0.5 ** ((now - start) / half_life)))


def _add(sums: list[float], amounts: Amounts, weight: float) -> None:
    for r in range(3):
        sums[r] += amounts[r] * weight


def _ratio(parts: Iterable[float], wholes: list[float]) -> Millionths:
    gpu, cpu, memory = (round(SCALE * part / whole) if whole > 0 else 0 for part, whole in zip(parts, wholes, strict=True))
    return gpu, cpu, memory


def _merged(first: Sample, second: Sample) -> Sample:
    """One sample as long as both, with their time-weighted means: sums of amount x time stay what they were, to the rounding."""
    length = first.length + second.length

    def mean(a: Amounts, b: Amounts) -> Amounts:
        return Amounts(*(round((x * first.length + y * second.length) / length) for x, y in zip(a, b, strict=True)))

    queues = first.held.keys() | second.held.keys()
    held = {queue: mean(first.held.get(queue, Amounts()), second.held.get(queue, Amounts())) for queue in sorted(queues)}
    return Sample(first.start, length, mean(first.capacity, second.capacity), held)
