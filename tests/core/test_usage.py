"""Usage over a window (docs/explanation/scheduling.md, Time-based fair share)."""

from __future__ import annotations

from jupyter_gpushare.core.fairness.usage import UsageSample, usage_of
from jupyter_gpushare.core.model.amounts import Amounts

HOUR = 3_600_000
TEN = Amounts(10_000, 0, 0)


def hour(start: int, **held: int) -> UsageSample:
    """One hour from hour `start` on ten GPUs; what queues held, in GPUs."""
    return UsageSample(
        start * HOUR, HOUR, TEN, {queue: Amounts(1000 * gpus) for queue, gpus in held.items()}
    )


def test_usage_is_the_share_of_capacity_over_time() -> None:
    assert usage_of([hour(0, a=6, b=1), hour(1, a=6)], 2 * HOUR, window=24 * HOUR) == {
        "a": (600_000, 0, 0),
        "b": (50_000, 0, 0),
    }


def test_usage_before_the_window_does_not_count() -> None:
    samples = [hour(0, a=10), hour(1, a=0), hour(2, a=0)]
    assert usage_of(samples, 3 * HOUR, window=2 * HOUR)["a"] == (0, 0, 0)
    assert usage_of(samples, 3 * HOUR, window=5 * HOUR // 2)["a"] == (200_000, 0, 0)


def test_the_future_does_not_count() -> None:
    assert usage_of([hour(0, a=2), hour(1, a=10)], HOUR, window=24 * HOUR)["a"] == (200_000, 0, 0)


def test_half_life_weighs_an_old_hour_half() -> None:
    """An hour two half-lives older counts a quarter: (1 x 10 + 4 x 0) / (5 x 10) = 0.2."""
    usage = usage_of([hour(0, a=10), hour(2, b=10)], 3 * HOUR, window=24 * HOUR, half_life=HOUR)
    assert usage["a"] == (200_000, 0, 0)
    assert usage["b"] == (800_000, 0, 0)


def test_one_long_sample_equals_many_short_ones() -> None:
    """Decay is continuous: four hours in one sample equal four samples."""
    whole = UsageSample(0, 4 * HOUR, TEN, {"a": Amounts(5000)})
    pieces = [hour(i, a=5) for i in range(4)]
    later = hour(4, b=10)
    assert usage_of([whole, later], 5 * HOUR, window=24 * HOUR, half_life=HOUR) == usage_of(
        [*pieces, later], 5 * HOUR, window=24 * HOUR, half_life=HOUR
    )
