"""`jupyter gpushare db upgrade|backup|check`: maintenance of the scheduler's database. It does not
contact the scheduler.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from jupyter_gpushare.cli import REFUSED
from jupyter_gpushare.core.model.errors import Conflict, NotFound, Unavailable

__all__ = ["db"]


@click.group()
def db() -> None:
    """Upgrade, back up or check the scheduler's database."""


def _database(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options for the database; the command receives its `url`."""

    @click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False),
        help="The scheduler's configuration.",
    )
    @click.option("--db-url", help="URL of the database.  [default: SQLite in the state directory]")
    @click.option(
        "--state-dir", type=click.Path(file_okay=False), help="The scheduler's state directory."
    )
    @functools.wraps(command)
    def with_url(
        *args: Any, config: str | None, db_url: str | None, state_dir: str | None, **more: Any
    ) -> Any:
        return command(*args, url=_url(config, db_url, state_dir), **more)

    return with_url


def _url(config: str | None, db_url: str | None, state_dir: str | None) -> str:
    """The URL that the scheduler would use. Raises NotFound if the file does not exist."""
    from jupyter_gpushare.scheduler.app import SchedulerApp
    from jupyter_gpushare.scheduler.store.database import file_in

    app = SchedulerApp(config_file=config or "", raise_config_file_errors=True)
    app.read_configuration()
    url = (
        db_url
        or ("" if state_dir else app.db_url)
        or f"sqlite:///{Path(state_dir or app.state_dir) / 'scheduler.sqlite'}"
    )
    file = file_in(url)
    if file is not None and not file.exists():
        raise NotFound("there is no database", field=str(file))
    return url


@db.command()
@_database
def upgrade(url: str) -> int:
    """Upgrade the tables. Stop the scheduler first. An SQLite file is copied first; a PostgreSQL
    database is changed in one transaction.
    """
    from jupyter_gpushare.scheduler.store.database import (
        NEWEST,
        bring_up_to_date,
        file_in,
        open_engine,
    )
    from jupyter_gpushare.scheduler.store.locks import lock_of

    engine = open_engine(url)
    file = file_in(url)
    with ExitStack() as held:
        held.callback(engine.dispose)
        if file is not None:
            held.callback(os.close, lock_of(file))
        found, copy = bring_up_to_date(engine)
    if found == NEWEST:
        click.echo(f"the database already has version {NEWEST}")
    else:
        click.echo(
            f"the database was upgraded from version {found} to {NEWEST}"
            + (f"; a copy is in {copy}" if copy else "")
        )
    return 0


@db.command()
@click.argument("file", type=click.Path(dir_okay=False))
@_database
def backup(url: str, file: str) -> int:
    """Copy the database to the new FILE; the scheduler may be running. PostgreSQL: by pg_dump in
    its custom format.
    """
    from jupyter_gpushare.scheduler.store.database import backup_file, file_in

    target = Path(file)
    if target.exists():
        raise Conflict("the file exists already", field=file)
    source = file_in(url)
    if source is not None:
        backup_file(source, target)
    else:
        _dump(url, target)
    click.echo(f"the database was copied to {target} ({target.stat().st_size} bytes)")
    return 0


def _dump(url: str, target: Path) -> None:
    """Passes the password in the environment, since other users can read arguments."""
    import sqlalchemy as sql

    parsed = sql.make_url(url)
    dump = shutil.which("pg_dump")
    if dump is None:
        where = f"pg_dump --format=custom --file={target.name} {parsed.database or ''}".rstrip()
        raise Unavailable(
            f"pg_dump is not installed (Debian: postgresql-client); run it elsewhere: {where}",
            field="pg_dump",
        )
    host = parsed.host or parsed.query.get("host")
    wanted = {
        "PGHOST": host,
        "PGPORT": parsed.port,
        "PGUSER": parsed.username,
        "PGPASSWORD": parsed.password,
        "PGDATABASE": parsed.database,
    }
    known = {name: str(value) for name, value in wanted.items() if value}
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    done = subprocess.run(
        [dump, "--format=custom", "--no-password", f"--file={target}"],
        env={**os.environ, **known},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        target.unlink(missing_ok=True)
        raise Unavailable(
            done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pg_dump failed",
            field="pg_dump",
        )


@db.command()
@_database
def check(url: str) -> int:
    """Check the database: version, integrity of the file, leases without workloads, overcommitted
    GPUs.
    """
    from jupyter_gpushare.scheduler.store.database import NEWEST, open_engine
    from jupyter_gpushare.scheduler.store.integrity_check import problems_in

    engine = open_engine(url)
    try:
        problems = problems_in(engine)
    finally:
        engine.dispose()
    for problem in problems:
        click.echo(problem)
    if not problems:
        click.echo(f"the database is consistent (version {NEWEST})")
    return REFUSED if problems else 0
