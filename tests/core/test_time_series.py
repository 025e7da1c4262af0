"""A time series in bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.estimates.time_series import DAY, Grain, Series, minutes_in, thinned
from jupyter_gpushare.core.model.errors import InvalidInput

TWO = (Grain(step=10, span=100), Grain(step=50, span=1000))


def filled(times, grains=TWO):
    series = Series(grains)
    for time in times:
        series.add(time, time)
    return series


def test_young_samples_are_fine_and_old_ones_coarse():
    times = [time for time, _ in filled(range(0, 500, 10)).since(0)]
    assert times == [*range(0, 390, 50), *range(390, 500, 10)]


def test_a_sample_that_comes_too_soon_is_dropped():
    series = filled([0, 9, 10])
    assert [time for time, _ in series.since(0)] == [0, 10]
    assert not series.is_due(19)
    assert series.is_due(20)


def test_only_the_requested_period_is_returned():
    assert [time for time, _ in filled(range(0, 100, 10)).since(75)] == [80, 90]


@given(st.lists(st.integers(0, 400), max_size=300))
def test_samples_are_in_order_each_once_bounded_and_end_with_the_newest_that_was_kept(steps):
    series, now, newest = Series(TWO), 0, None
    for step in steps:
        now += step
        newest = now if series.add(now, now) else newest
    found = series.since(0)
    times = [time for time, _ in found]
    assert times == sorted(set(times))
    assert all(time == value for time, value in found)
    assert len(found) <= sum(grain.span // grain.step + 1 for grain in TWO)
    assert newest is None or times[-1] == newest


def test_a_day_is_some_hundred_samples():
    series = filled(range(0, 2 * 24 * 3600 * 1000, 5000), DAY)
    assert 400 < len(series.since(0)) < 520


def test_thinning_keeps_the_newest_and_the_order():
    samples = [(i, i) for i in range(1000)]
    thin = thinned(samples, 7)
    assert len(thin) == 7
    assert thin[-1] == (999, 999)
    assert thin == sorted(set(thin))
    assert thinned(samples[:3], 7) == samples[:3]


@pytest.mark.parametrize("text", ["0", "1441", "-1", "1.5", "ten", "١", "9" * 40])
def test_a_time_that_makes_no_sense_names_its_field(text):
    with pytest.raises(InvalidInput) as refused:
        minutes_in(text)
    assert refused.value.field == "minutes"


def test_without_a_time_it_is_an_hour():
    assert (minutes_in(None), minutes_in(""), minutes_in("5")) == (60, 60, 5)
