"""`jupyter gpushare db`: as an operator uses it, on files and on PostgreSQL."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path

import pytest
import sqlalchemy as sql

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli import main
from jupyter_gpushare.scheduler.store.database import NEWEST, open_engine
from jupyter_gpushare.scheduler.store.store import Store, WorkloadRow
from tests.scheduler.databases import Cluster, Database, tables

OLD = Path(__file__).parent / "old_database.sql"
LEASE = {
    "workload": "w",
    "pod": "kernel",
    "user": "alice",
    "project": "p",
    "node": "n0",
    "pool": "default",
    "planned_gpus": [0],
    "request_mib": 60,
    "limit_mib": 100,
}


def lease(id_: str, **more: object) -> m.LeaseBody:
    share = m.Share(gpu=0.6)
    return m.LeaseBody(
        **{
            "id": id_,
            "kernel_id": None,
            "name": "",
            "request": share,
            "limit": share,
            **LEASE,
            **more,
        }
    )


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["db", *args])
    return int(ended.value.code or 0)


@pytest.fixture
def filled(database: Database) -> Database:
    """One workload that holds most of the one GPU."""
    store = Store(database.url)
    with store.transaction() as write:
        write.submitted(
            WorkloadRow(
                m.WorkloadRequest(id="w", pods=[m.PodRequest(gpu=0.6)]), "alice", "p", 50, True, 1
            )
        )
        write.node(
            m.NodeReport(
                name="n0",
                simulated=True,
                devices=[m.DeviceReport(index=0, uuid="S", model="S", total_mib=100)],
            )
        )
        write.granted([lease("w@1")], 1)
        write.used(
            {"w@1": ("p", {"held_ms": 1, "busy_ms": 1, "used_mib_ms": 1, "borrowed_mib_ms": 0})}
        )
        write.revision(3)
    store.close()
    return database


def test_a_sound_database_is_said_to_be_sound(filled: Database, capsys: pytest.CaptureFixture[str]):
    assert run("check", "--db-url", filled.url) == 0
    assert capsys.readouterr().out == f"the database is consistent (version {NEWEST})\n"


WRONG = {
    "an overcommitted GPU": (
        lambda write: write.granted([lease("v@1", workload="w", pod="other")], 1),
        "GPU 0 of node n0 is overcommitted: 120 of",
    ),
    "a pod with two leases": (
        lambda write: write.granted([lease("w@2", planned_gpus=[])], 1),
        "Pod kernel of workload w has 2 leases.",
    ),
    "a lease without a workload": (
        lambda write: write.granted([lease("x@1", workload="x", planned_gpus=[])], 1),
        "its workload x has ended",
    ),
    "a lease on no node": (
        lambda write: write.granted([lease("w@2", pod="o", node="n9")], 1),
        "on the unknown node n9",
    ),
    "use without a lease": (
        lambda write: write.used(
            {
                "no": (
                    "p",
                    dict.fromkeys(("held_ms", "busy_ms", "used_mib_ms", "borrowed_mib_ms"), 1),
                )
            }
        ),
        "unknown lease no is recorded",
    ),
    "negative usage": (
        lambda write: write.used(
            {
                "w@1": (
                    "p",
                    dict.fromkeys(("held_ms", "busy_ms", "used_mib_ms", "borrowed_mib_ms"), -5),
                )
            }
        ),
        "The recorded usage of lease w@1 is negative.",
    ),
}


@pytest.mark.parametrize(("spoil", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said(
    filled: Database, capsys: pytest.CaptureFixture[str], spoil, said: str
):
    store = Store(filled.url)
    with store.transaction() as write:
        spoil(write)
    store.close()
    assert run("check", "--db-url", filled.url) == 1
    printed = capsys.readouterr().out
    assert said in printed
    assert len(printed.splitlines()) == 1


def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "scheduler.sqlite"
    store = Store(f"sqlite:///{file}")
    with store.transaction() as write:
        for i in range(200):
            write.submitted(
                WorkloadRow(
                    m.WorkloadRequest(id=f"w{i}", pods=[m.PodRequest(gpu=0.6)]),
                    "alice",
                    "p",
                    50,
                    True,
                    1,
                )
            )
    store.close()
    with sqlite3.connect(file) as connection:
        page, root = (
            connection.execute("PRAGMA page_size").fetchone()[0],
            connection.execute(
                "SELECT rootpage FROM sqlite_master WHERE name = 'ix_workloads_project'"
            ).fetchone()[0],
        )
    connection.close()
    content = bytearray(file.read_bytes())
    content[(root - 1) * page + 200 : root * page] = bytes(page - 200)
    file.write_bytes(content)
    assert run("check", "--state-dir", str(tmp_path)) == 1
    assert "The file is damaged" in capsys.readouterr().out


def test_a_file_is_copied_while_it_is_written(
    filled: Database,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
):
    """And the copy is whole: checked, and with everything in it."""
    monkeypatch.setenv("PATH", f"{cluster.programs}:{os.environ['PATH']}")
    copy = tmp_path / "copy"
    store = Store(filled.url)  # as a scheduler has it open
    assert run("backup", str(copy), "--db-url", filled.url) == 0
    assert copy.stat().st_mode & 0o077 == 0
    if filled.kind == "sqlite":
        assert tables(f"sqlite:///{copy}") == tables(filled.url)
    else:
        with cluster.database() as other:
            cluster.run("pg_restore", "-d", other.url.replace("+psycopg", ""), str(_readable(copy)))
            assert tables(other.url) == tables(filled.url)
    store.close()
    capsys.readouterr()
    assert run("backup", str(copy), "--db-url", filled.url) == 1
    assert "exists already" in capsys.readouterr().err


def _readable(file: Path) -> Path:
    """Somewhere where the user of the test's cluster can read it."""
    with tempfile.NamedTemporaryFile(prefix="gpushare-dump-", delete=False) as copy:
        copy.write(file.read_bytes())
    Path(copy.name).chmod(0o644)
    return Path(copy.name)


def test_without_pg_dump_it_says_how(
    postgresql: Database,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run("backup", str(tmp_path / "copy"), "--db-url", postgresql.url) == 1
    assert "pg_dump --format=custom" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_upgrade_says_what_it_did_and_is_harmless_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "scheduler.sqlite"
    with sqlite3.connect(file) as connection:
        connection.executescript(OLD.read_text())
    connection.close()
    assert run("check", "--state-dir", str(tmp_path)) == 1
    assert "version 0001" in capsys.readouterr().out
    assert run("upgrade", "--state-dir", str(tmp_path)) == 0
    said = capsys.readouterr().out
    assert f"upgraded from version 0001 to {NEWEST}" in said
    assert Path(said.rpartition(" ")[2].strip()).exists()
    assert run("upgrade", "--state-dir", str(tmp_path)) == 0
    assert "already" in capsys.readouterr().out


def test_nothing_is_upgraded_under_a_scheduler_that_runs(
    filled: Database, capsys: pytest.CaptureFixture[str]
):
    from jupyter_gpushare.scheduler.store.database import file_in
    from jupyter_gpushare.scheduler.store.leadership import Leadership
    from jupyter_gpushare.scheduler.store.locks import lock_of

    engine = open_engine(filled.url)
    with engine.begin() as connection:
        connection.execute(sql.text("UPDATE alembic_version SET version_num = '0002'"))
    engine.dispose()
    leader = Leadership(filled.url, "me") if filled.kind == "postgresql" else None
    held = lock_of(file_in(filled.url)) if leader is None else leader.try_to_lead("http://me")
    assert held
    assert run("upgrade", "--db-url", filled.url) == 1
    assert "scheduler runs on this database" in capsys.readouterr().err
    if leader is None:
        os.close(held)
    else:
        leader.close()


def test_a_database_that_is_not_there_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for command in (["check"], ["upgrade"], ["backup", str(tmp_path / "copy")]):
        assert run(*command, "--state-dir", str(tmp_path)) == 1
        assert "there is no database" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
