"""Databases of every age: the steps lead to today's tables, keep what is in them, and a newer
database is left alone.
"""

from __future__ import annotations

import importlib.util
import json
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sql
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from jupyter_gpushare import messages as m
from jupyter_gpushare.scheduler.store import database, schema
from jupyter_gpushare.scheduler.store.database import (
    NEWEST,
    NeedsUpgrade,
    TooNew,
    bring_up_to_date,
    found_version,
    open_engine,
    steps,
)
from jupyter_gpushare.scheduler.store.store import Store
from tests.scheduler.databases import Database

OLD = Path(__file__).parent / "old_database.sql"
"""A small database as version 0.1 made it: two workloads, a lease in force, an event, what was
used, a token.
"""


def differences(engine: sql.Engine) -> list[object]:
    """Between the tables that there are and those that the program wants."""
    with engine.connect() as connection:
        return compare_metadata(
            MigrationContext.configure(connection, opts={"compare_type": True}), schema.metadata
        )


def old_database(folder: Path) -> Path:
    file = folder / "scheduler.sqlite"
    with sqlite3.connect(file) as connection:
        connection.executescript(OLD.read_text())
    connection.close()
    return file


def test_the_steps_follow_one_another():
    found = []
    for file in sorted(Path(database.__file__).parent.glob("migrations/versions/[0-9]*.py")):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.append((module.revision, module.down_revision))
        assert file.name.startswith(f"{module.revision}_")
    assert [revision for revision, _ in found] == steps()
    assert [before for _, before in found] == [None, *steps()[:-1]]


def test_all_steps_together_make_the_tables_of_today(database: Database):
    """From nothing, step by step: exactly what a new database gets at once."""
    engine = open_engine(database.url)
    bring_up_to_date(engine)
    assert differences(engine) == []
    engine.dispose()


def test_a_new_database_gets_the_tables_of_today(database: Database):
    store = Store(database.url)
    assert differences(store.engine) == []
    with store.engine.connect() as connection:
        assert found_version(connection) == NEWEST
    store.close()
    Store(database.url, upgrade=False).close()


def test_a_start_that_ends_among_the_tables_leaves_none_and_the_next_one_makes_them_all(
    database: Database,
):
    made = []

    def dies_at_the_third(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        made.append(statement) if "CREATE TABLE" in statement else None
        if len(made) == 3:
            raise KeyboardInterrupt

    sql.event.listen(sql.Engine, "before_cursor_execute", dies_at_the_third)
    try:
        with pytest.raises(KeyboardInterrupt):
            Store(database.url)
    finally:
        sql.event.remove(sql.Engine, "before_cursor_execute", dies_at_the_third)
    engine = open_engine(database.url)
    assert sql.inspect(engine).get_table_names() == []
    engine.dispose()
    store = Store(database.url, upgrade=False)
    assert differences(store.engine) == []
    store.close()


def test_an_old_file_is_copied_brought_up_to_date_and_keeps_everything(tmp_path: Path):
    file = old_database(tmp_path)
    store = Store(f"sqlite:///{file}")
    known = store.load()
    assert known.revision == 41
    assert [(row.request.id, row.user, row.project) for row in known.workloads] == [
        ("w1", "alice", "vision")
    ]
    assert [row.body.id for row in known.leases] == ["w1@1"]
    assert [event.message for event in known.events["w1"]] == [
        "Asked for 0.5 GPU.",
        "Granted 0.5 GPU on n0.",
    ]
    assert store.is_ended("w0")
    assert [row["held_ms"] for row in store.usage()] == [7]
    assert [(token.name, token.users) for token in store.tokens()] == [("alice", "")]
    assert differences(store.engine) == []
    store.close()
    copy = tmp_path / f"scheduler.sqlite.before-{NEWEST}"
    assert copy.stat().st_mode & 0o077 == 0
    kept = open_engine(f"sqlite:///{copy}")
    with kept.connect() as connection:
        assert found_version(connection) == "0001"
    kept.dispose()


def test_without_permission_an_old_database_stays_as_it_is(tmp_path: Path):
    file = old_database(tmp_path)
    with pytest.raises(NeedsUpgrade, match=r"version 0001.*needs.*db upgrade"):
        Store(f"sqlite:///{file}", upgrade=False)
    engine = open_engine(f"sqlite:///{file}")
    with engine.connect() as connection:
        assert found_version(connection) == "0001"
    engine.dispose()


@pytest.mark.parametrize("upgrade", [True, False])
def test_a_newer_database_is_left_alone(database: Database, upgrade: bool):
    store = Store(database.url)
    with store.engine.begin() as connection:
        connection.execute(sql.text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    with pytest.raises(TooNew, match=r"9999.*newer than this program"):
        Store(database.url, upgrade=upgrade)


def test_a_step_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Half an upgrade would be neither the old nor the new form."""
    file = old_database(tmp_path)
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE leadership (id INTEGER)")  # in the way of the last step
    connection.close()
    with pytest.raises(database.StoreUnavailable, match="leadership"):
        Store(f"sqlite:///{file}")
    engine = open_engine(f"sqlite:///{file}")
    with engine.connect() as connection:
        assert found_version(connection) == "0001"
        assert "users" not in {
            column["name"] for column in sql.inspect(connection).get_columns("tokens")
        }
    engine.dispose()


def test_requests_of_the_first_version_are_still_understood():
    """What is in the old database is what that version wrote."""
    assert (
        m.decode(
            m.WorkloadRequest, json.dumps({"id": "w1", "pods": [{"name": "kernel", "gpu": 0.5}]})
        )
        .pods[0]
        .gpu
        == 0.5
    )


def test_no_two_steps_have_the_same_number():
    """Two branches may add a step at the same time."""
    assert len(set(steps())) == len(steps())
