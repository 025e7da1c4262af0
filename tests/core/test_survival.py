"""Remaining waits estimated from earlier ones: named cases, and laws for any history."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jupyter_gpushare.core.estimates.survival import FEWEST, SurvivalCurve, WaitEstimate


class Past(NamedTuple):
    """One wait; `granted` False: cancelled, or still waiting."""

    waited: float
    granted: bool = True


def curve(past: Iterable[Past]) -> SurvivalCurve:
    rows = list(past)
    return SurvivalCurve([one.waited for one in rows], [one.granted for one in rows])


GRANTED = [Past(waited) for waited in range(1, 10)]


def given_up(*waited: int) -> list[Past]:
    return [Past(one, granted=False) for one in waited]


CASES = {
    "nobody waited before": ([], 0, None),
    "four say too little": (GRANTED[:4], 0, None),
    "five tell half of it, and not nine in ten": (GRANTED[:5], 0, WaitEstimate(3, None, 5)),
    "eight do not tell nine in ten": (GRANTED[:8], 0, WaitEstimate(5, None, 8)),
    "of nine the longest is nine in ten": (GRANTED, 0, WaitEstimate(5, 9, 9)),
    "who has waited goes by those who waited longer": (GRANTED, 3, WaitEstimate(4, None, 6)),
    "who has waited longer than all others is an estimate nothing": (GRANTED, 9, None),
    "one that was given up before all grants changes nothing": (
        GRANTED + given_up(0),
        0,
        WaitEstimate(5, 9, 9),
    ),
    "those who gave up late make it longer": (
        GRANTED + given_up(10, 10, 10),
        0,
        WaitEstimate(7, None, 9),
    ),
    "most who wait still leave half of it open": (
        GRANTED[:5] + given_up(*[9] * 20),
        0,
        WaitEstimate(None, None, 5),
    ),
    "who gave up at the time of a grant still waited then": (
        [*GRANTED, *given_up(5)],
        0,
        WaitEstimate(6, None, 9),
    ),
}


@pytest.mark.parametrize(("past", "so_far", "expected"), CASES.values(), ids=CASES)
def test_expectation(past, so_far, expected):
    assert curve(past).expected(so_far) == expected


PASTS = st.lists(
    st.builds(Past, st.integers(0, 1000), st.sampled_from([True, True, False])),
    min_size=25,
    max_size=60,
)
SO_FAR = st.integers(0, 100) | st.just(0)


@given(PASTS, SO_FAR)
def test_estimates_are_ordered_and_never_negative(past, so_far):
    found = curve(past).expected(so_far)
    assume(found is not None)
    assert found.median is None or found.median > 0
    assert found.p90 is None or (found.median is not None and found.p90 >= found.median)
    assert found.based_on == sum(one.granted and one.waited > so_far for one in past) >= FEWEST


@given(PASTS, SO_FAR, SO_FAR)
def test_a_longer_wait_so_far_means_no_earlier_end(past, one, other):
    """The whole wait, since the remaining part may well be shorter."""
    first, second = sorted((one, other))
    sooner, later = curve(past).expected(first), curve(past).expected(second)
    assume(sooner is not None and later is not None)
    for name in ("median", "p90"):
        early, late = getattr(sooner, name), getattr(later, name)
        assert early is None or late is None or first + early <= second + late


@given(PASTS, SO_FAR, st.randoms(use_true_random=False))
def test_the_order_of_the_past_does_not_matter(past, so_far, random):
    shuffled = list(past)
    random.shuffle(shuffled)
    assert curve(shuffled).expected(so_far) == curve(past).expected(so_far)


@given(PASTS, st.integers(0, 1000))
def test_a_long_wait_without_a_grant_never_makes_it_shorter(past, more):
    """The estimate would be too short without cancelled waits."""
    longest = max((one.waited for one in past), default=0)
    before, after = (
        curve(past).expected(),
        curve([*past, Past(longest + more, granted=False)]).expected(),
    )
    assume(before is not None)
    for name in ("median", "p90"):
        known, then = getattr(before, name), getattr(after, name)
        assert then is None or then >= known


@given(st.lists(st.integers(1, 1000), min_size=9, max_size=60))
def test_without_cancellations_it_is_the_order_statistic(waits):
    found = curve(Past(wait) for wait in waits).expected()
    ordered, count = sorted(waits), len(waits)
    assert (found.median, found.p90) == (
        ordered[math.ceil((count + 1) / 2) - 1],
        ordered[math.ceil(0.9 * (count + 1) - 1e-9) - 1],
    )


@given(PASTS, SO_FAR, st.integers(2, 50))
def test_the_unit_of_time_does_not_matter(past, so_far, factor):
    found = curve(past).expected(so_far)
    scaled = curve(Past(one.waited * factor, one.granted) for one in past).expected(so_far * factor)
    wanted = found and WaitEstimate(
        *(None if one is None else one * factor for one in (found.median, found.p90)),
        found.based_on,
    )
    assert scaled == wanted
