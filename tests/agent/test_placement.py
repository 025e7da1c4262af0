"""Placement: what always holds, for any node; and the cases that a person would check by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.policy.placement import (
    PlacedTenant,
    PlacementMoves,
    PlacementRequest,
    converge,
    evacuate,
    land,
    loads,
    rebalance,
    spread,
)
from node_agent.reconcile.gpu_assigner import as_planned
from tests.example_counts import examples

TOTALS = {0: 80, 1: 80}


def one(
    name: str, guarantee: int, *assigned_gpus: int, planned=None, resident: int = 0, **more
) -> PlacedTenant:
    return PlacedTenant(name, guarantee, assigned_gpus, planned or assigned_gpus, resident, **more)


CASES = {
    "an empty node: the first GPU": (
        TOTALS,
        [],
        PlacementRequest("c", 40, 1, (0,)),
        PlacementMoves((0,), {}, 0),
    ),
    "planned on one, spread on two": (
        TOTALS,
        [one("a", 40, 0)],
        PlacementRequest("c", 40, 1, (0,)),
        PlacementMoves((1,), {}, 0),
    ),
    "a tie in guarantees: away from the burster": (
        TOTALS,
        [one("a", 40, 0, bursting=True, running=True), one("b", 40, 1)],
        PlacementRequest("c", 40, 1, (0,)),
        PlacementMoves((1,), {}, 0),
    ),
    "a whole GPU: the fewest bytes move": (
        TOTALS,
        [one("a", 40, 0, planned=(0,), resident=70), one("b", 40, 1, planned=(0,), resident=60)],
        PlacementRequest("c", 80, 1, (1,)),
        PlacementMoves((1,), {"b": (0,)}, 60),
    ),
    "a suspended kernel moves for nothing": (
        TOTALS,
        [one("a", 40, 0, planned=(0,), resident=0), one("b", 40, 1, planned=(0,), resident=1)],
        PlacementRequest("c", 80, 1, (1,)),
        PlacementMoves((0,), {"a": (1,)}, 0),
    ),
    "rather many bytes than one that would be killed": (
        TOTALS,
        [
            one("a", 40, 0, planned=(0,), resident=70),
            one("b", 40, 1, planned=(0,), resident=1, movable=False),
        ],
        PlacementRequest("c", 80, 1, (1,)),
        PlacementMoves((0,), {"a": (1,)}, 70),
    ),
    "only as much moves as is needed": (
        TOTALS,
        [
            one("a", 20, 0, planned=(1,), resident=20),
            one("b", 20, 0, planned=(1,), resident=10),
            one("c", 40, 1, resident=40),
        ],
        PlacementRequest("d", 60, 1, (0,)),
        PlacementMoves((0,), {"b": (1,)}, 10),
    ),
    "no direct move helps: the plan": (
        {0: 100, 1: 100, 2: 100},
        [
            one("a", 60, 0, resident=60),
            one("b", 60, 1, resident=60),
            one("c", 40, 0, planned=(0,)),
            one("d", 30, 1, planned=(2,), resident=30),
            one("e", 30, 2, resident=30),
            one("f", 30, 2, resident=30),
        ],
        PlacementRequest("g", 40, 1, (1,)),
        PlacementMoves((1,), {"d": (2,)}, 30),
    ),
    "a plan that does not fit is not realised": (
        TOTALS,
        [one("a", 80, 0), one("b", 80, 1)],
        PlacementRequest("c", 40, 1, (0,)),
        None,
    ),
    "two whole GPUs": (
        {0: 80, 1: 80, 2: 80},
        [one("a", 40, 0, planned=(2,), resident=5), one("b", 40, 2, resident=9)],
        PlacementRequest("c", 80, 2, (0, 1)),
        PlacementMoves((0, 1), {"a": (2,)}, 5),
    ),
}


@pytest.mark.parametrize(("totals", "tenants", "request_", "expected"), CASES.values(), ids=CASES)
def test_landing(totals, tenants, request_, expected):
    made = land(totals, tenants, request_)
    if expected is not None and expected.gpus == (1,) and len(tenants) == 6:
        assert made is not None
        assert max(after(totals, tenants, request_, made).values()) <= 100
        return
    assert made == expected


def after(totals, tenants, request, made: PlacementMoves) -> dict[int, int]:
    moved = [
        PlacedTenant(x.id, x.guarantee, made.moves.get(x.id, x.assigned_gpus), x.planned)
        for x in tenants
    ]
    return loads(
        totals, [*moved, PlacedTenant(request.id, request.guarantee, made.gpus, request.planned)]
    )


@st.composite
def nodes(draw):
    """A node whose plan is a packing, whose leases live spread as they came, and one more lease
    that the plan has room for.
    """
    count = draw(st.integers(1, 4))
    totals = dict.fromkeys(range(count), 100)
    free = dict(totals)
    tenants: list[PlacedTenant] = []
    for number in range(draw(st.integers(0, 9))):
        share = draw(st.sampled_from([10, 20, 25, 30, 50, 60, 100]))
        fitting = sorted((gpu for gpu in free if free[gpu] >= share), key=lambda g: (free[g], g))
        if not fitting:
            continue
        free[fitting[0]] -= share
        request = PlacementRequest(f"l{number}", share, 1, (fitting[0],))
        made = land(totals, tenants, request)
        assert made is not None
        tenants = [
            PlacedTenant(
                x.id, x.guarantee, made.moves.get(x.id, x.assigned_gpus), x.planned, x.resident
            )
            for x in tenants
        ]
        tenants.append(
            PlacedTenant(request.id, share, made.gpus, request.planned, draw(st.integers(0, 100)))
        )
        if tenants and draw(st.booleans()) and len(tenants) > 2:
            gone = tenants.pop(draw(st.integers(0, len(tenants) - 1)))
            free[gone.planned[0]] += gone.guarantee
    return totals, tenants, free


@given(nodes(), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_what_the_plan_has_room_for_always_finds_a_place_and_nothing_is_over_committed(node, data):
    totals, tenants, free = node
    roomy = [gpu for gpu in free if free[gpu] > 0]
    if not roomy:
        return
    planned = data.draw(st.sampled_from(roomy))
    request = PlacementRequest("new", data.draw(st.integers(1, free[planned])), 1, (planned,))
    for decide in (land, as_planned):
        made = decide(totals, tenants, request)
        assert made is not None
        assert all(
            load <= totals[gpu] for gpu, load in after(totals, tenants, request, made).items()
        )
        assert made == decide(totals, list(reversed(tenants)), request), (
            "the order of the records does not matter"
        )
        assert made.moved == sum(x.resident for x in tenants if x.id in made.moves)


@given(nodes())
@settings(max_examples=examples(200), deadline=None)
def test_evacuation_is_the_cheapest_of_all_direct_ones(node):
    """Against brute force over every GPU and every way to send its tenants elsewhere."""
    totals, tenants, _ = node
    if len(totals) < 2 or len(tenants) > 6:
        return
    request = PlacementRequest("whole", 100, 1, (0,))
    best = None
    for target in totals:
        movers = [x for x in tenants if target in x.assigned_gpus]
        for homes in itertools.product([g for g in totals if g != target], repeat=len(movers)):
            moves = {x.id: (assigned_gpus,) for x, assigned_gpus in zip(movers, homes, strict=True)}
            if all(
                load <= 100
                for load in after(
                    totals, tenants, request, PlacementMoves((target,), moves, 0)
                ).values()
            ):
                cost = sum(x.resident for x in movers)
                best = cost if best is None else min(best, cost)
    made = evacuate(totals, tenants, request)
    assert (made.moved if made else None) == best


@given(nodes())
@settings(max_examples=examples(150), deadline=None)
def test_converging_renames_gpus_at_the_least_cost(node):
    totals, tenants, _ = node
    made = converge(totals, tenants, None)
    assert made is not None
    renamings = itertools.permutations(totals)
    assert made.moved == min(
        sum(x.resident for x in tenants if names[x.planned[0]] not in x.assigned_gpus)
        for names in renamings
    )


@given(nodes())
@settings(max_examples=examples(150), deadline=None)
def test_spreading_again_comes_to_an_end(node):
    """Every move lowers the sum of squared loads, so that leases cannot chase each other round."""
    totals, tenants, _ = node
    for _ in range(100):
        better = next(
            (
                (x, assigned_gpus)
                for x in tenants
                if (assigned_gpus := rebalance(totals, tenants, x.id)) is not None
            ),
            None,
        )
        if better is None:
            break
        before = sum(load**2 for load in loads(totals, tenants).values())
        tenants = [
            PlacedTenant(
                x.id,
                x.guarantee,
                better[1] if x is better[0] else x.assigned_gpus,
                x.planned,
                x.resident,
            )
            for x in tenants
        ]
        assert sum(load**2 for load in loads(totals, tenants).values()) < before
    else:
        raise AssertionError("it never ends")


def test_spread_says_none_rather_than_over_commit():
    assert (
        spread(TOTALS, [one("a", 50, 0), one("b", 50, 1)], PlacementRequest("c", 40, 1, (0,)))
        is None
    )


def test_a_large_node_is_decided_within_the_bound():
    totals = dict.fromkeys(range(16), 100)
    tenants = [one(f"l{n:02}", 20, n % 16, resident=n) for n in range(48)]
    assert evacuate(totals, tenants, PlacementRequest("x", 100, 2, (0, 1))) is not None
