"""The map of GPUs for a restore: a permutation of all of them that contains what was asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.devices.nvidia.gpu_map import gpus_in_use, moves_between, permutation

PLACES = {
    "as attached": ((0, 1), {0, 1}, (0, 1)),
    "attached before it was seen": ((0,), {1}, (1,)),
    "holds more than its own": ((0,), {0, 1}, (0,)),
    "holds nothing": ((2,), set(), (2,)),
    "one of two has changed": ((0, 1), {0, 2}, (0, 2)),
}


@pytest.mark.parametrize(("places", "held", "where"), PLACES.values(), ids=PLACES)
def test_what_is_held_counts_more_than_what_was_noted(places, held, where):
    assert gpus_in_use(places, held) == where


@given(st.data())
def test_every_gpu_is_named_once_and_goes_to_one(data):
    count = data.draw(st.integers(1, 8))
    where = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    gpus = data.draw(st.permutations(range(count)))[: len(where)]
    moves = moves_between(where, gpus)
    full = permutation(count, moves)
    assert sorted(full) == sorted(full.values()) == list(range(count))
    assert moves.items() <= full.items()


def test_two_gpus_change_places_and_the_others_stay():
    assert permutation(4, {1: 3}) == {0: 0, 1: 3, 2: 2, 3: 1}
