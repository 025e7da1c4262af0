"""Databases for tests: a file, or one in a PostgreSQL cluster of the test session's own, from
Debian's packages.

The cluster listens on a unix socket in a temporary directory and belongs to nobody else; it does
not wait for the disk (`fsync` off), except that a killed server still recovers from its log as it
always does.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sql

from jupyter_gpushare.scheduler.store.database import open_engine
from jupyter_gpushare.scheduler.store.integrity_check import problems_in
from jupyter_gpushare.scheduler.store.schema import metadata
from jupyter_gpushare.scheduler.store.store import Store

TIMEOUT_S = 60


@dataclass(frozen=True)
class Database:
    """An empty one. `kind`: sqlite or postgresql."""

    kind: str
    url: str

    @contextmanager
    def refusing(self, store: Store) -> Iterator[None]:
        """Every write of this store is refused, as a full disk would; reads are answered."""
        on, off = {
            "sqlite": ("PRAGMA query_only=ON", "PRAGMA query_only=OFF"),
            "postgresql": (
                "SET default_transaction_read_only=on",
                "SET default_transaction_read_only=off",
            ),
        }[self.kind]
        for order in (on, off):
            with store.engine.connect() as connection:  # the one connection of the pool
                connection.exec_driver_sql(order)
                connection.commit()
            if order == on:
                yield


def programs() -> Path | None:
    """Where initdb, pg_ctl and pg_dump are; None: PostgreSQL is not installed."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    found = shutil.which("initdb")
    return Path(found).parent if found else None


@dataclass
class Cluster:
    """A PostgreSQL server. `start` and `stop` as often as a test wants."""

    programs: Path
    folder: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def run(self, *command: str) -> None:
        """As a user that PostgreSQL accepts: it refuses root."""
        whole = [str(self.programs / command[0]), *command[1:]]
        if os.getuid() == 0:
            whole = ["runuser", "-u", "postgres", "--", *whole]
        pipes = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }
        done = subprocess.run(whole, cwd="/", timeout=TIMEOUT_S, check=False, **pipes)
        assert done.returncode == 0, done.stdout.decode()

    def make(self) -> None:
        self.run(
            "initdb",
            "-D",
            f"{self.folder}/data",
            "-A",
            "trust",
            "-U",
            "gpushare",
            "-E",
            "UTF8",
            "--no-locale",
            "--no-sync",
        )
        wanted = {
            "listen_addresses": "''",
            "unix_socket_directories": f"'{self.folder}'",
            "fsync": "off",
            "max_connections": "50",
            "shared_buffers": "32MB",
            "log_min_messages": "fatal",
        }
        with open(self.folder / "data" / "postgresql.conf", "a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in wanted.items())

    def start(self) -> None:
        # the log goes to a file: a server that kept our pipe open would make `run` wait for ever
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-l", f"{self.folder}/log", "-w", "start")

    def stop(self, how: str = "fast") -> None:
        """`immediate`: as if it were killed; it recovers at the next start."""
        self.run("pg_ctl", "-D", f"{self.folder}/data", "-m", how, "-w", "stop")

    def url(self, name: str) -> str:
        return f"postgresql+psycopg://gpushare@/{name}?host={self.folder}"

    def _ask(self, order: str) -> None:
        engine = sql.create_engine(
            self.url("postgres"), isolation_level="AUTOCOMMIT", poolclass=sql.NullPool
        )
        with engine.connect() as connection:
            connection.exec_driver_sql(order)

    @contextmanager
    def database(self) -> Iterator[Database]:
        name = f"test{next(self.numbers)}"
        self._ask(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            yield Database("postgresql", self.url(name))
        finally:
            self._ask(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def running_cluster() -> Iterator[Cluster | None]:
    """None: PostgreSQL is not installed."""
    there = programs()
    if there is None:
        yield None
        return
    folder = Path(
        tempfile.mkdtemp(prefix="gpushare-pg-")
    )  # short: the path of a socket has 107 bytes
    cluster = Cluster(there, folder)
    try:
        if os.getuid() == 0:
            shutil.chown(folder, *pwd.getpwnam("postgres")[2:4])
        cluster.make()
        cluster.start()
        yield cluster
    finally:
        with contextlib.suppress(AssertionError):  # it may never have started, or be stopped
            cluster.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)


def cleared(database: Database) -> Database:
    """The same one, with the tables of today and nothing in them: much quicker than a new one."""
    engine = sql.create_engine(database.url, poolclass=sql.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "SET lock_timeout = '10s'"
        )  # a server that an earlier test left open would block forever
        for table in metadata.sorted_tables:
            connection.execute(table.delete())
    return database


def tables(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Everything that is in the database, by table."""
    engine = sql.create_engine(url, poolclass=sql.NullPool)
    with engine.connect() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(sql.select(table))]
            for table in metadata.sorted_tables
        }


def used_in(url: str) -> int:
    """ms that all leases together are booked as held; by lease and by hour are two ledgers of the
    same.
    """
    there = tables(url)
    return sum(row[2] for row in there["usage"])


def check_invariants(url: str) -> None:
    """Invariants of every database at every moment: those of `jupyter gpushare db check`."""
    engine = open_engine(url)
    try:
        assert problems_in(engine) == []
    finally:
        engine.dispose()
