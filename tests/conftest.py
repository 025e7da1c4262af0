"""Marks tests as slow by the fixtures that they use, and sets the number of Hypothesis examples."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import settings

from tests.example_counts import examples

PROCESS_FIXTURES: Final = {
    "tests.agent.simulated_node",
    "tests.agent.nvidia_node",
    "tests.agent.nvidia_fixtures",
}
"""Modules with fixtures that start real processes. Tests that use them are slow."""
SERVER_FIXTURES: Final = {"postgresql", "kept_postgresql"}
"""Fixtures that start a database server."""

settings.register_profile("effort", max_examples=examples(100))
settings.load_profile("effort")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and (
            _uses_processes(item.module) or SERVER_FIXTURES & set(item.fixturenames)
        ):
            item.add_marker(pytest.mark.slow)


def _uses_processes(module: object) -> bool:
    return any(
        getattr(value, "__module__", None) in PROCESS_FIXTURES for value in vars(module).values()
    )
