"""The size of the front end, which every page loads."""

from __future__ import annotations

import pytest

from tests.benchmarks.bench_front_end import BUNDLE, BUNDLE_BAR, bundle_bytes


def test_the_front_end_is_smaller_than_110_kb_gzipped() -> None:
    if not BUNDLE.exists():
        pytest.skip("the front end is not built here")
    assert 10_000 < bundle_bytes() <= BUNDLE_BAR
