"""Which tests `make check` leaves to `make test`, beside those that say so themselves; and how many
examples Hypothesis tries by default.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import settings

from tests.example_counts import examples

STAGES: Final = {
    "tests.agent.simulated_node",
    "tests.agent.nvidia_node",
    "tests.agent.nvidia_fixtures",
}
"""Files whose nodes, kernels and driver's helpers are real processes: whoever plays on one of these
stages is slow.
"""
SERVERS: Final = {"postgresql", "kept_postgresql"}
"""Fixtures behind which a server runs."""

settings.register_profile("effort", max_examples=examples(100))
settings.load_profile("effort")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and (
            _plays_on(item.module) or SERVERS & set(item.fixturenames)
        ):
            item.add_marker(pytest.mark.slow)


def _plays_on(module: object) -> bool:
    return any(getattr(value, "__module__", None) in STAGES for value in vars(module).values())
