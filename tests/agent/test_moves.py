"""The GPU map of a restore: a permutation of all GPUs that contains the requested moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.devices.nvidia.gpu_map import gpus_in_use, moves_between, permutation

CASES = {
    "as attached": ((0, 1), {0, 1}, (0, 1)),
    "memory still on the old GPU": ((0,), {1}, (1,)),
    "memory on another GPU too": ((0,), {0, 1}, (0,)),
    "without memory": ((2,), set(), (2,)),
    "one of two moved": ((0, 1), {0, 2}, (0, 2)),
}


@pytest.mark.parametrize(("attached", "held", "expected"), CASES.values(), ids=CASES)
def test_memory_counts_more_than_the_attachment(attached, held, expected):
    assert gpus_in_use(attached, held) == expected


@given(st.data())
def test_the_map_is_a_permutation(data):
    count = data.draw(st.integers(1, 8))
    where = data.draw(st.lists(st.integers(0, count - 1), unique=True))
    gpus = data.draw(st.permutations(range(count)))[: len(where)]
    moves = moves_between(where, gpus)
    full = permutation(count, moves)
    assert sorted(full) == sorted(full.values()) == list(range(count))
    assert moves.items() <= full.items()


def test_two_gpus_swap_and_the_others_stay():
    assert permutation(4, {1: 3}) == {0: 0, 1: 3, 2: 2, 3: 1}
