"""Back to 0.1.0: its scheduler refuses the database and says why, and works with the copy that the
upgrade made. docs/how-to/upgrade.md describes this.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jupyter_gpushare.scheduler.store.database import NEWEST
from tests.story.front_end import eventually
from tests.upgrade.versions import NEW, VersionedServer, old_tree

__all__ = ["old_tree"]  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
PAGE = NEW / "docs/how-to/upgrade.md"


@pytest.fixture
def server(tmp_path: Path, old_tree: Path) -> Iterator[VersionedServer]:
    """Only its scheduler runs, of version 0.1.0."""
    made = VersionedServer(tmp_path, old_tree)
    made.start_scheduler()
    try:
        yield made
    finally:
        made.stop()


def submit(server: VersionedServer, tree: Path, word: str, *options: str) -> None:
    """A command with this word. There is no node: it stays pending."""
    command = ["run", "--gpu", "0.5", "--detach", *options, "--", "echo", word]
    done = server.command(tree, *command)
    assert done.returncode == 0, done.stderr


def commands(server: VersionedServer, tree: Path) -> str:
    """What the scheduler has, as `list` shows it."""
    return server.command(tree, "list").stdout


def test_the_old_scheduler_refuses_the_database_and_works_with_the_copy(
    server: VersionedServer, old_tree: Path
) -> None:
    submit(server, old_tree, "before")
    server.upgrade("scheduler")
    assert "before" in commands(server, NEW)
    submit(server, NEW, "after", "--queue-anyway")
    server.end("scheduler")

    server.trees["scheduler"] = old_tree
    (server.folder / "scheduler.log").unlink()
    assert refused(server) == 1
    (line,) = (server.folder / "scheduler.log").read_text().splitlines()
    documented = f"the database has version {NEWEST}, which is newer than this program (0008)"
    assert documented in PAGE.read_text()
    assert documented in line, line

    database = server.state / "scheduler.sqlite"
    copy = database.with_name(f"scheduler.sqlite.before-{NEWEST}")
    with closing(sqlite3.connect(copy)) as connection:
        (version,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    assert version == "0008"
    for name in ("", "-wal", "-shm"):
        Path(f"{database}{name}").unlink(missing_ok=True)
    copy.rename(database)
    server.start_scheduler()
    eventually(lambda: "before" in commands(server, old_tree), "what it had before the upgrade")
    assert "after" not in commands(server, old_tree)


def refused(server: VersionedServer) -> int:
    """Exit status of a scheduler that does not start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.story.jupyter_process.eventually", lambda *_: None)
        server.start_scheduler()
    return server.processes.pop("scheduler").wait(60)
