"""A copy-on-write mapping behaves like a dict, and copies are independent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.cluster.cow_dict import CowDict

KEYS = st.text(max_size=3) | st.integers(0, 30).map(str)
STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "delete", "copy"]), KEYS, st.integers()), max_size=60
)


@given(STEPS)
def test_copies_are_independent(steps: list[tuple[str, str, int]]) -> None:
    plain: dict[str, int] = {}
    shelves: CowDict[int] = CowDict()
    copies: list[tuple[dict[str, int], CowDict[int]]] = []
    for what, key, value in steps:
        if what == "set":
            plain[key] = shelves[key] = value
        elif what == "copy":
            copies.append((dict(plain), shelves.copy()))
        elif key in plain:
            del plain[key], shelves[key]
        else:
            with pytest.raises(KeyError):
                del shelves[key]
    for known, copy in [*copies, (plain, shelves)]:
        assert {key: copy[key] for key in copy} == known
        assert len(copy) == len(known)
        assert all(
            (key in copy, copy.get(key)) == (key in known, known.get(key)) for _, key, _ in steps
        )


def test_a_copy_can_be_written_to_as_well() -> None:
    first: CowDict[int] = CowDict()
    first["a"] = 1
    second = first.copy()
    second["a"] = 2
    assert (first["a"], second["a"]) == (1, 2)
