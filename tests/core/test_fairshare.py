"""Division of one resource: vectors of docs/explanation/scheduling.md, and the laws behind them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.fairness.fairshare import Claim, divide
from jupyter_gpushare.core.model.amounts import GPU, UNLIMITED


def claim(
    name: str,
    quota: float,
    want: float,
    *,
    limit: float | None = None,
    weight: float = 1,
    rank: int = 100,
    usage: float = 0,
    parent: str | None = None,
    created: int = 0,
) -> Claim:
    """A claim on GPUs, in GPUs; a quota of -1 is unlimited."""
    return Claim(
        name,
        parent,
        rank,
        created,
        UNLIMITED if quota == -1 else round(quota * GPU),
        UNLIMITED if limit is None else round(limit * GPU),
        round(weight * 1000),
        round(want * GPU),
        round(usage * 1_000_000),
    )


def shares(total: float, *claims: Claim, k: int = 0) -> list[float]:
    """Fair shares in GPUs, in the order of the claims."""
    given = divide(round(total * GPU), claims, unit=GPU, k=k)
    return [given[c.name] / GPU for c in claims]


VECTORS = {
    "V1 surplus follows the weights": (8, [claim("a", 2, 6), claim("b", 2, 6, weight=3)], [3, 5]),
    "V2 the larger remainder gets the leftover": (
        11,
        [claim("a", 2, 10), claim("b", 2, 10, weight=4)],
        [3, 8],
    ),
    "V3 equal remainders: the older queue": (
        11,
        [claim("b", 2, 6, created=1), claim("a", 2, 6, created=0)],
        [5, 6],
    ),
    "V4 a limit sends surplus to the others": (
        12,
        [claim("a", 2, 6, limit=5), claim("b", 2, 6)],
        [5, 6],
    ),
    "V5 rank beats weight": (
        6,
        [claim("a", 2, 6, weight=100, rank=1), claim("b", 2, 6, rank=2)],
        [2, 4],
    ),
    "V6 the unit that floors leave goes down": (
        1,
        [claim("h1", 0, 5, rank=2), claim("h2", 0, 5, rank=2), claim("l", 0, 5, rank=1)],
        [0, 0, 1],
    ),
    "V7 three equals share ten": (
        10,
        [claim("a", 0, 10), claim("b", 0, 10), claim("c", 0, 10)],
        [4, 3, 3],
    ),
    "V8 a fraction is satisfied whole": (4, [claim("a", 0, 0.5), claim("b", 0, 10)], [0.5, 3.5]),
    "V9 over-subscribed quotas are not scaled": (8, [claim("a", 6, 6), claim("b", 6, 6)], [6, 6]),
    "V10 unlimited quota takes its want": (8, [claim("a", -1, 5), claim("b", 4, 6)], [5, 4]),
    "V11 a leftover may exceed the want": (
        2,
        [claim("a", 0, 0.5), claim("b", 0, 0.9), claim("c", 0, 10)],
        [0.5, 1.0, 0.5],
    ),
    "V12 what a fractional limit frees": (
        3,
        [claim("a", 0, 5, limit=1.2), claim("b", 0, 5)],
        [1.2, 1.8],
    ),
    "V13 a satisfied rank leaves the rest": (
        9,
        [claim("a", 1, 3, rank=200), claim("b", 1, 9, weight=2), claim("c", 1, 9)],
        [3, 4, 2],
    ),
    "V14 quota above the total": (1, [claim("a", 3, 2)], [2]),
    "weight 0 never gets surplus": (8, [claim("a", 2, 8, weight=0), claim("b", 2, 3)], [2, 3]),
    "no want, no share, whatever the quota": (8, [claim("a", 6, 0), claim("b", 0, 8)], [0, 8]),
    "tenths add up exactly": (3, [claim("a", 0.1, 0.3), claim("b", 0.2, 2.7)], [0.3, 2.7]),
}


@pytest.mark.parametrize(("total", "claims", "expected"), VECTORS.values(), ids=VECTORS)
def test_vector(total: float, claims: list[Claim], expected: list[float]) -> None:
    assert shares(total, *claims) == expected


def test_children_divide_the_share_of_their_parent() -> None:
    """Children named before their parents: the order of claims does not matter."""
    claims = [
        claim("p1", 2, 10, parent="d1"),
        claim("p2", 4, 10, parent="d1"),
        claim("p3", 4, 4, weight=3, parent="d2"),
        claim("p4", 2, 10, parent="d2"),
        claim("d1", 6, 20, weight=2),
        claim("d2", 4, 14),
    ]
    assert shares(16, *claims) == [4, 6, 4, 2, 10, 6]


def test_children_quotas_are_not_capped_by_their_parent() -> None:
    """With 3 for the department its projects still get 4 and 2: quotas are not capped by the
    parent.
    """
    assert shares(
        3, claim("d", 3, 14), claim("p3", 4, 4, parent="d"), claim("p4", 2, 10, parent="d")
    ) == [3, 4, 2]


def test_an_unlimited_child_quota_is_the_share_of_the_parent() -> None:
    assert shares(16, claim("d", 6, 6), claim("p", -1, 20, parent="d")) == [6, 6]


def test_a_queue_without_a_way_up_gets_nothing() -> None:
    assert shares(
        8,
        claim("a", 2, 2, parent="gone"),
        claim("b", 2, 2, parent="c"),
        claim("c", 2, 2, parent="b"),
        claim("d", 0, 8),
    ) == [0, 0, 0, 8]


USAGE = {
    "used less, gets more": (10, [(0.6, 1), (0.1, 1)], 1000, [3, 7]),
    "k 0 forgets usage": (10, [(0.6, 1), (0.1, 1)], 0, [5, 5]),
    "half of k": (100, [(0.6, 1), (0.1, 1)], 500, [39, 61]),
    "far over its weight: nothing until usage decays": (
        12,
        [(0.7, 1), (0.2, 1), (0, 1)],
        1000,
        [0, 5, 7],
    ),
    "all far over: nobody gets surplus": (12, [(1, 1), (1, 1)], 1000, [0, 0]),
    "no usage is plain weights": (12, [(0, 1), (0, 2)], 1000, [4, 8]),
}


@pytest.mark.parametrize(("total", "queues", "k", "expected"), USAGE.values(), ids=USAGE)
def test_time_based(
    total: float, queues: list[tuple[float, float]], k: int, expected: list[float]
) -> None:
    claims = [
        claim(f"q{i}", 0, total, weight=weight, usage=usage)
        for i, (usage, weight) in enumerate(queues)
    ]
    assert shares(total, *claims, k=k) == expected


def test_negative_k_is_inert() -> None:
    assert shares(10, claim("a", 0, 10, usage=0.6), claim("b", 0, 10, usage=0.1), k=-500) == [5, 5]


amounts = st.integers(0, 20_000)
claims_of_siblings = st.lists(
    st.builds(
        Claim,
        name=st.uuids().map(str),
        rank=st.integers(1, 3),
        created=st.integers(0, 3),
        quota=amounts | st.just(UNLIMITED),
        limit=amounts | st.just(UNLIMITED),
        weight=st.integers(0, 3).map(lambda w: 500 * w),
        requested=amounts,
        usage=st.integers(0, 1_000_000),
    ),
    max_size=8,
    unique_by=lambda c: c.name,
)


@given(st.integers(0, 40_000), claims_of_siblings, st.sampled_from([0, 500, 1000]))
def test_laws_of_siblings(total: int, claims: list[Claim], k: int) -> None:
    """Demand within quota is always granted; a demand is exceeded by less than a unit; surplus is
    divided once.
    """
    given_shares = divide(total, claims, unit=GPU, k=k)
    in_quota = {c.name: min(total if c.quota == UNLIMITED else c.quota, c.wanted) for c in claims}

    for c in claims:
        assert in_quota[c.name] <= given_shares[c.name] < max(in_quota[c.name], c.wanted) + GPU
        assert c.weight > 0 or given_shares[c.name] == in_quota[c.name]
    assert sum(given_shares.values()) <= max(total, sum(in_quota.values()))
    assert divide(total, list(reversed(claims)), unit=GPU, k=k) == given_shares


@given(st.integers(0, 40_000), claims_of_siblings)
def test_nothing_stays_undivided_while_a_weighted_queue_wants(
    total: int, claims: list[Claim]
) -> None:
    given_shares = divide(total, claims, unit=GPU)
    if sum(given_shares.values()) < total:
        assert all(c.weight == 0 or given_shares[c.name] >= c.wanted for c in claims)


def test_a_round_per_queue_is_enough_for_two_thousand() -> None:
    """Growing demands satisfy a few queues per round; the laws still hold, and division ends."""
    claims = [claim(f"q{i:04}", 0, 0.01 * (i + 1)) for i in range(2000)]
    given_shares = divide(5_000 * GPU, claims, unit=GPU)
    assert 5_000 * GPU - sum(given_shares.values()) <= 0
