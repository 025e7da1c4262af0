"""The order of people inside a project: vectors of published formulas, and laws."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core.fairness.people import (
    CREDIT,
    HEADSTART,
    PersonUsage,
    Standing,
    Waiter,
    waiting_order,
)
from jupyter_gpushare.core.model.amounts import GPU
from jupyter_gpushare.core.model.model import MembersPolicy
from tests.example_counts import examples

MINUTE = 60_000
DAY = 86_400_000
EQUAL = MembersPolicy("equal")
EXAMPLES = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck)
)


def standing(gpu_minutes: float, weight: float = 1, **more: int) -> Standing:
    usage = PersonUsage(round(gpu_minutes * GPU * MINUTE))
    return Standing(usage, round(weight * 1000), **more)


def order(people: dict[str, Standing], now: int = 0) -> list[str]:
    """One request of each, by name of its person."""
    waiters = [Waiter((), name, 500, (0,), name) for name in people]
    return [waiter.person for waiter in waiting_order(waiters, people, now)]


def turns(weights: dict[str, float], used: dict[str, float], cost: dict[str, float], n: int) -> str:
    """Who is served in n turns, if everybody always waits and a turn costs so many GPU minutes."""
    used, served = dict(used), ""
    for _ in range(n):
        people = {name: standing(used[name], weights[name]) for name in used}
        first = order(people)[0]
        used[first] += cost[first]
        served += first
    return served


# -- vectors


def test_who_has_used_least_is_first():
    """Fair tree with equal shares: level fairness 0.417, 1.667 and infinite."""
    assert order({"a": standing(120), "b": standing(30), "e": standing(0)}) == ["e", "b", "a"]


def test_usage_decays_by_half_in_every_half_life():
    a = PersonUsage(240 * GPU * MINUTE, at=-2 * DAY).until(0, 0, DAY)
    b = PersonUsage(50 * GPU * MINUTE, at=-3_600_000).until(0, 0, DAY)
    assert (a.used / GPU / MINUTE, b.used / GPU / MINUTE) == (60, pytest.approx(48.6, abs=0.05))
    assert order({"a": Standing(a), "b": Standing(b)}) == ["b", "a"]


def test_usage_is_compared_per_weight():
    assert order({"a": standing(100, weight=2), "b": standing(60)}) == ["a", "b"]


def test_weights_that_are_inverse_priorities_divide_like_htcondor():
    """Effective user priorities 10, 20, 40: parts of 0.571, 0.286, 0.143."""
    weights = {"a": 1 / 10, "b": 1 / 20, "c": 1 / 40}
    served = turns(weights, dict.fromkeys("abc", 0.0), dict.fromkeys("abc", 1.0), 700)
    parts = [served.count(name) / 700 for name in "abc"]
    assert parts == pytest.approx([0.571, 0.286, 0.143], abs=0.002)


def test_least_used_first_in_turns_of_five():
    used = {"a": 0.0, "b": 10.0, "c": 10.0}
    assert turns(dict.fromkeys("abc", 1), used, dict.fromkeys("abc", 5.0), 10) == "aaabcabcab"


def test_turns_follow_weights():
    served = turns({"a": 2, "b": 1}, {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 1.0}, 9)
    assert served == "abaabaaba"


def test_long_and_short_cells_get_the_same_time_as_in_deficit_round_robin():
    """Quantum 10: in 5 rounds A runs 50 cells of 1 s, and B 2 cells of 25 s."""
    served = turns({"A": 1, "B": 1}, {"A": 0.0, "B": 0.0}, {"A": 1.0, "B": 25.0}, 52)
    assert (served.count("A"), served.count("B")) == (50, 2)


# -- laws of the order

people_of = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Standing,
        st.builds(PersonUsage, st.integers(0, 10**9), st.just(0), st.none() | st.integers(0, 999)),
        st.sampled_from([500, 1000, 3000]),
        st.sampled_from([0, 500, 1000]),
        st.integers(0, 999),
    ),
    min_size=1,
)


@st.composite
def queues(draw: st.DrawFn) -> tuple[list[Waiter], dict[str, Standing]]:
    people = draw(people_of)
    waiters = [
        Waiter(
            (draw(st.integers(0, 1)),), draw(st.sampled_from(sorted(people))), 500, (i % 3,), f"{i}"
        )
        for i in range(draw(st.integers(0, 12)))
    ]
    return draw(st.permutations(waiters)), people


@EXAMPLES
@given(queues())
def test_order_is_complete_by_priority_and_does_not_depend_on_the_input_order(
    queue: tuple[list[Waiter], dict[str, Standing]],
):
    waiters, people = queue
    found = waiting_order(waiters, people, 1000)
    assert sorted(found) == sorted(waiters)
    assert [w.rank for w in found] == sorted(w.rank for w in waiters)
    assert found == waiting_order(sorted(waiters), people, 1000)
    for person in people:  # somebody's own requests keep their order
        own = [(w.rank, w.place, w.id) for w in found if w.person == person]
        assert own == sorted(own)


@EXAMPLES
@given(queues())
def test_more_requests_do_not_bring_the_first_of_them_forward(
    queue: tuple[list[Waiter], dict[str, Standing]],
):
    waiters, people = queue
    waiters = [waiter._replace(rank=()) for waiter in waiters]
    for person in people:
        own = sorted((w for w in waiters if w.person == person), key=lambda w: (w.place, w.id))
        others = [w for w in waiters if w.person != person]
        if own:
            many = waiting_order(waiters, people, 1000).index(own[0])
            assert many == waiting_order([*others, own[0]], people, 1000).index(own[0])


@EXAMPLES
@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**6))
def test_a_wait_is_bounded_by_the_difference_of_usage(mine: int, theirs: int, since: int):
    """After waiting for difference / credit, a person comes before everybody who was just served,
    and before everybody who holds a share still sooner.
    """
    now = since + max(0, mine - theirs) // CREDIT + 2
    waiting = Standing(PersonUsage(mine, now), waits_since=since)
    served = Standing(PersonUsage(theirs, now, served=now), waits_since=since)
    holding = served.with_share(500)
    assert holding.score(now) == served.score(now) + 500 * HEADSTART
    assert waiting.score(now) < served.score(now)


@EXAMPLES
@given(
    st.integers(0, 10**9),
    st.sampled_from([0, 250, 1000, 8000]),
    st.lists(st.integers(0, DAY), min_size=2, max_size=5),
    st.sampled_from([0, 60_000, DAY]),
)
def test_charging_in_steps_is_charging_at_once(
    used: int, held: int, times: list[int], half_life: int
):
    start = usage = PersonUsage(used)
    for at in sorted(times):
        usage = usage.until(at, held, half_life)
    assert math.isclose(
        usage.used, start.until(max(times), held, half_life).used, abs_tol=len(times)
    )
