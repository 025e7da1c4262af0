"""Both databases for whoever asks for `database`: the same test runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .databases import Cluster, Database, running_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server, once per session."""
    with running_cluster() as cluster:
        if cluster is None:
            pytest.skip("PostgreSQL is not installed (`make test` installs it)")
        yield cluster


@pytest.fixture
def postgresql(cluster: Cluster) -> Iterator[Database]:
    with cluster.database() as made:
        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return Database("sqlite", f"sqlite:///{tmp_path}/gpushare.sqlite")
    return request.getfixturevalue("postgresql")
