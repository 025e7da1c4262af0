"""Whose GPU memory is whose. Bytes in, MiB out; every byte is somebody's exactly once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node_agent.policy.memory_accounting import ENDED, FOREIGN, ListedProcess, attribute_memory

MIB = 1 << 20
GIB = 1 << 30


def one(pid, size, owner, gpu=0):
    return ListedProcess(gpu, pid, 100 + pid, size, owner)


def test_memory_of_kernels_of_other_processes_and_of_ended_ones_is_distinguished():
    listed = [
        one(1, 3 * GIB, "a"),
        one(2, GIB, "a"),
        one(3, 2 * GIB, "b"),
        one(4, GIB, FOREIGN),
        one(5, GIB, FOREIGN),
        one(6, 4 * GIB, ENDED),
    ]
    made = attribute_memory({0: 12 * GIB, 1: 0}, listed, {})
    assert made.held == {"a": {0: 4096}, "b": {0: 2048}}
    assert made.processes == {"a": ((1, 101), (2, 102)), "b": ((3, 103),)}
    assert made.per_process[1, 101] == {0: 3072}
    assert (made.foreign_mib[0], made.foreign_processes[0]) == (2048, 2)
    assert made.lagging == {0: 4096, 1: 0}


def test_one_process_on_two_gpus_is_one_process():
    made = attribute_memory({0: GIB, 1: GIB}, [one(1, GIB, "a", 0), one(1, GIB, "a", 1)], {})
    assert made.held == {"a": {0: 1024, 1: 1024}}
    assert made.processes == {"a": ((1, 101),)}


def test_what_nobody_is_named_for_lags_until_it_has_settled():
    appeared = attribute_memory({0: 5 * GIB}, [one(1, GIB, "a")], {0: GIB})
    assert (appeared.foreign_mib[0], appeared.lagging[0], appeared.unattributed[0]) == (
        1024,
        3072,
        4 * GIB,
    )
    settled = attribute_memory({0: 5 * GIB}, [one(1, GIB, "a")], {0: 8 * GIB})
    assert (settled.foreign_mib[0], settled.lagging[0]) == (4096, 0)


def test_unknown_sizes_share_the_difference_evenly_and_it_is_said():
    made = attribute_memory(
        {0: 7 * GIB}, [one(1, None, "a"), one(2, None, "b"), one(3, GIB, FOREIGN)], {}
    )
    assert made.held == {"a": {0: 3072}, "b": {0: 3072}}
    assert made.estimated == {0}
    assert made.unattributed == {0: 0}


def test_a_list_that_says_more_than_is_used_invents_nothing_else():
    made = attribute_memory({0: GIB}, [one(1, 2 * GIB, "a"), one(2, None, "b")], {0: 0})
    assert made.held == {"a": {0: 2048}, "b": {0: 0}}
    assert made.lagging == {0: 0}


SIZES = st.one_of(st.none(), st.integers(0, 80 * GIB))
OWNERS = st.sampled_from(["a", "b", "c", FOREIGN, ENDED])


@given(
    st.lists(st.tuples(SIZES, OWNERS), max_size=12),
    st.integers(0, 80 * GIB),
    st.integers(0, 80 * GIB),
)
def test_every_byte_is_somebodys_exactly_once(found, extra, settled):
    listed = [one(pid, size, owner) for pid, (size, owner) in enumerate(found, 1)]
    used = sum(size or 0 for size, _ in found) + extra
    made = attribute_memory({0: used}, listed, {0: settled})
    divided = sum(held[0] for held in made.held.values()) + made.foreign_mib[0] + made.lagging[0]
    assert (
        used - len(found) * MIB <= divided * MIB <= used + 5 * MIB
    )  # rounded up per owner, divided down among the unknown
    assert made.foreign_processes[0] == sum(owner == FOREIGN for _, owner in found)
