"""Both databases for tests with the fixture `database`: they run on SQLite and, in `make test`,
on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare.scheduler.store.store import Store
from tests.scheduler import running_server
from tests.scheduler.databases import Cluster, Database, cleared, running_cluster

BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]  # it starts a server


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


@pytest.fixture(params=BOTH)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return Database("sqlite", f"sqlite:///{tmp_path}/gpushare.sqlite")
    return request.getfixturevalue("postgresql")


@pytest.fixture(scope="session")
def kept_postgresql(cluster: Cluster) -> Iterator[Database]:
    """One with the tables of today, for all tests that do not care how they came to be there."""
    with cluster.database() as made:
        Store(made.url).close()
        yield made


@pytest.fixture(params=BOTH)
def on_both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs with servers on SQLite, and again on PostgreSQL."""
    if request.param == "postgresql":
        monkeypatch.setattr(
            running_server, "db_url", cleared(request.getfixturevalue("kept_postgresql")).url
        )


@pytest.fixture(scope="module", params=BOTH)
def module_db_url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """Database of a module's server: None, its own SQLite file; then PostgreSQL."""
    if request.param == "sqlite":
        yield None
        return
    with request.getfixturevalue("cluster").database() as made:
        yield made.url
