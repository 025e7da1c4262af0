"""Marks tests as slow by the fixtures that they use, sets the number of Hypothesis examples, and
runs the longest folders first.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.example_counts import examples

PROCESS_FIXTURES: Final = {
    "tests.agent.simulated_node",
    "tests.agent.nvidia_node",
    "tests.agent.nvidia_fixtures",
}
"""Modules with fixtures that start real processes. Tests that use them are slow."""
CLUSTER_FIXTURES: Final = {"control_plane", "helm", "lab", "one_node_cluster"}
"""Fixtures of tests/kube that need the programs of `make kube-assets`."""
SERVER_FIXTURES: Final = {"postgresql", "kept_postgresql"}
"""Fixtures that start a database server."""

LONGEST_FIRST: Final = ("ui", "story", "security", "agent")
"""Folders whose files take minutes. Parallel workers start with them, so that none is the last."""

settings.register_profile(  # a slow machine is no failure
    "effort",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("effort")


@pytest.fixture(scope="module", autouse=True)
def collect_garbage() -> Iterator[None]:
    """What a file leaves open is reported with its last test, not with a later file's."""
    yield
    gc.collect()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and (
            _uses_processes(item.module) or SERVER_FIXTURES & set(item.fixturenames)
        ):
            item.add_marker(pytest.mark.slow)
        if isinstance(item, pytest.Function) and CLUSTER_FIXTURES & set(item.fixturenames):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.kube)
    items.sort(key=_folder_rank)  # stable: files stay together and in order


def _folder_rank(item: pytest.Item) -> int:
    folder = item.path.parent.name
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)


def _uses_processes(module: object) -> bool:
    return any(
        getattr(value, "__module__", None) in PROCESS_FIXTURES for value in vars(module).values()
    )
