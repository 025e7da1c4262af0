"""The kernel's own reader and writer of memory amounts agree with those of the core."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.model import units
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.kernel.sizes import MIB, memory_text, size_in_bytes

NUMBERS = st.one_of(
    st.integers(0, 1 << 30).map(str), st.decimals(0, 10**6, places=3).map(str), st.just("1e3")
)
UNITS = st.sampled_from(["", "B", "KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB", "Ki", "Gi"])


@given(NUMBERS, UNITS)
def test_amounts_are_read_as_the_core_reads_them(number, unit):
    try:
        exact = units.exact_memory(f"{number} {unit}")
    except InvalidInput:  # more memory than the core accepts
        return
    assert exact is not None
    assert size_in_bytes(f"{number} {unit}") == math.ceil(exact * MIB)


@pytest.mark.parametrize("text", ["", "GiB", "6 gib", "much", "1e999", "nan", "6GiB GiB"])
def test_what_is_no_amount_is_refused_by_both(text):
    with pytest.raises(ValueError, match="must be a size such as 20GiB"):
        size_in_bytes(text)
    with pytest.raises(InvalidInput):
        units.exact_memory(text)


@given(st.integers(-(1 << 20), 1 << 30))
def test_amounts_are_written_as_the_core_writes_them(mib):
    assert memory_text(mib) == units.memory_text(mib)
