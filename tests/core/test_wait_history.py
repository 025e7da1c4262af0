"""Which earlier waits are similar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.estimates.wait_history import (
    AT_ONCE,
    DAY,
    WEEK,
    WaitHistory,
    WaitSample,
    size_class,
)

NOW = 10 * WEEK
MINUTE = 60_000
HALF, TWO = size_class(500), size_class(2000)


def waits(number, length, *, size=HALF, pool="a", project="p", ago=DAY // 2, granted=True):
    """So many waits, one after the other: no queue."""
    begun = [NOW - ago + i * (length + 1) for i in range(number)]
    return [
        WaitSample(
            f"{pool}-{project}-{size}-{ago}-{i}", project, pool, size, at, at + length, granted
        )
        for i, at in enumerate(begun)
    ]


def line(number, each):
    """All began at about one time and were granted one after the other."""
    start = NOW - DAY // 2
    return [
        WaitSample(f"w{i:03}", "p", "a", HALF, start + i, start + (i + 1) * each, True)
        for i in range(number)
    ]


def test_similar_sizes_of_the_last_day_come_first():
    past = WaitHistory(
        [
            *waits(9, 5 * MINUTE),
            *waits(9, 50 * MINUTE, size=TWO, project="q"),
            *waits(9, 7 * MINUTE, ago=3 * DAY),
        ],
        NOW,
    )
    found = past.expected("a", HALF, 1, 0)
    assert (found.expected.median, found.size, found.days) == (5 * MINUTE, HALF, 1)


def test_then_the_last_week_then_any_size():
    past = WaitHistory(
        [*waits(5, 50 * MINUTE, size=TWO, project="q"), *waits(9, 7 * MINUTE, ago=3 * DAY)], NOW
    )
    week, any_size = past.expected("a", HALF, 1, 0), past.expected("a", size_class(8000), 1, 0)
    assert (week.expected.median, week.size, week.days) == (7 * MINUTE, HALF, 7)
    assert (any_size.size, any_size.days, any_size.expected.based_on) == (None, 7, 14)


def test_a_median_without_a_90th_percentile():
    assert WaitHistory(waits(5, 5 * MINUTE), NOW).expected("a", HALF, 1, 0).expected.p90 is None


def test_other_pools_do_not_count():
    assert WaitHistory(waits(20, 5 * MINUTE, pool="b"), NOW).expected("a", HALF, 1, 0) is None


def test_immediate_grants_do_not_count():
    past = WaitHistory([*waits(50, AT_ONCE), *waits(9, 5 * MINUTE, ago=DAY // 3)], NOW)
    assert past.expected("a", HALF, 1, 0).expected.median == 5 * MINUTE


def test_a_longer_queue_takes_proportionally_longer():
    past = WaitHistory(line(20, 3 * MINUTE), NOW)
    assert [past.position("p", "a", f"w{i:03}") for i in (0, 7, 19)] == [1, 8, 20]
    found = [past.expected("a", HALF, position, 0).expected.median for position in (1, 10)]
    assert found[0] == pytest.approx(3 * MINUTE, rel=0.01)
    assert found[1] == pytest.approx(30 * MINUTE, rel=0.01)


def test_a_new_request_queues_behind_pending_ones_of_its_project():
    going_on = [
        WaitSample(f"g{i}", project, "a", HALF, NOW - MINUTE) for i, project in enumerate("ppq")
    ]
    past = WaitHistory([*waits(9, 5 * MINUTE), *going_on], NOW)
    assert [past.position(project, "a") for project in "pqr"] == [3, 2, 1]


def test_pending_requests_make_the_estimate_longer():
    going_on = [WaitSample(f"g{i}", f"p{i}", "a", HALF, NOW - 60 * MINUTE) for i in range(9)]
    found = WaitHistory(
        [*waits(9, 5 * MINUTE), *waits(9, 80 * MINUTE, project="q"), *going_on], NOW
    ).expected("a", HALF, 1, 0)
    assert found.expected.median == 80 * MINUTE


def test_only_waits_as_long_as_the_current_one_count():
    past = WaitHistory([*waits(20, 5 * MINUTE), *waits(9, 60 * MINUTE, project="q")], NOW)
    assert past.expected("a", HALF, 1, 10 * MINUTE).expected.median == 50 * MINUTE


SIZES = st.lists(st.integers(0, 100_000), min_size=2, max_size=2)


@given(SIZES)
def test_more_is_never_of_a_smaller_class(pair):
    less, more = sorted(pair)
    assert size_class(less) <= size_class(more)
    assert less < 1000 or size_class(less) >= less


WAITS = st.lists(
    st.builds(
        lambda n, project, begun, length, granted: WaitSample(
            f"w{n}",
            project,
            "a",
            HALF,
            NOW - begun,
            NOW - begun + length if length < begun else None,
            granted and length < begun,
        ),
        st.integers(0, 10**9),
        st.sampled_from("pq"),
        st.integers(0, 2 * WEEK),
        st.integers(0, WEEK),
        st.booleans(),
    ),
    max_size=40,
    unique_by=lambda wait: wait.id,
)


@given(WAITS, st.integers(1, 50), st.integers(0, WEEK))
def test_estimates_are_never_negative_and_ordered(past, position, so_far):
    found = WaitHistory(past, NOW).expected("a", HALF, position, so_far)
    if found is not None:
        assert found.expected.median is not None
        assert found.expected.median >= 0
        assert found.expected.p90 is None or found.expected.p90 >= found.expected.median


@given(WAITS)
def test_positions_are_at_most_the_number_of_earlier_requests(past):
    seen = WaitHistory(past, NOW)
    for wait in past:
        ahead = sum(
            other.project == wait.project and (other.begun, other.id) < (wait.begun, wait.id)
            for other in past
        )
        assert 1 <= seen.position(wait.project, "a", wait.id) <= ahead + 1
