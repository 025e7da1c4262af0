"""Opens a database, finds out how old its tables are, and brings them up to date. Knows nothing of
what is in them.

A new database gets today's tables at once. An older one goes through the steps in `migrations`; one
that is newer than this program is left alone. The number of a step is the first part of its file's
name, so that a start need not load Alembic.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sql
from sqlalchemy.exc import ArgumentError, DataError, OperationalError, SQLAlchemyError

from jupyter_gpushare.core.model.errors import Conflict, GpuShareError, InvalidInput, Unavailable

from .schema import metadata

__all__ = [
    "LEAD_LOCK",
    "NEWEST",
    "NeedsUpgrade",
    "StoreUnavailable",
    "TooNew",
    "backup_file",
    "bring_up_to_date",
    "file_in",
    "found_version",
    "is_shared",
    "open_engine",
    "ours",
    "prepare",
    "steps",
]

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_VERSION: Final = sql.table("alembic_version", sql.column("version_num", sql.String))
TOO_LARGE: Final = "54000"
"""SQLSTATE of PostgreSQL's `program_limit_exceeded`: a name too long for an index."""
PATIENCE_S: Final = 3
LONGEST_LOG: Final = 20_000
"""Pages after which SQLite copies its log into the file even if nobody else did: 80 MB."""
LEAD_LOCK: Final = 0x6770757368617265
"""Advisory lock of PostgreSQL that the leading scheduler holds ("gpushare")."""
TABLES_LOCK: Final = LEAD_LOCK + 1
"""Held while tables are made: several schedulers may start at once."""
STUCK_MS: Final = 5000
"""A transaction in which nothing happens for so long is of a scheduler that hangs: PostgreSQL ends
it, so that another may lead.
"""


class StoreUnavailable(Unavailable):
    """Raised when the database cannot take or give what was asked (full disk, gone, locked);
    nothing was changed.
    """

    code = "store-unavailable"


class NeedsUpgrade(GpuShareError):
    """Raised when the tables are of an older version, and nobody said that they may be changed."""

    code, status_hint = "database-needs-upgrade", 409


class TooNew(GpuShareError):
    """Raised when a newer program made these tables: this one would not know what it destroys."""

    code, status_hint = "database-too-new", 409


def steps() -> list[str]:
    """The versions that this program knows, oldest first."""
    return sorted(
        file.name.partition("_")[0] for file in (_MIGRATIONS / "versions").glob("[0-9]*_*.py")
    )


NEWEST: Final = steps()[-1]
NOTHING: Final = "0000"
"""Version of a database without tables."""


@contextmanager
def ours() -> Iterator[None]:
    """The database's errors as ours: what it can never take is the asker's fault, everything else
    is the database's.
    """
    try:
        yield
    except DataError as error:
        raise InvalidInput(f"the database cannot keep this: {_first_line(error)}") from error
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) == TOO_LARGE:
            raise InvalidInput(f"the database cannot keep this: {_first_line(error)}") from error
        raise StoreUnavailable(f"the database does not answer: {_first_line(error)}") from error
    except SQLAlchemyError as error:
        raise StoreUnavailable(f"the database does not answer: {_first_line(error)}") from error


def _first_line(error: SQLAlchemyError) -> str:
    said = str(getattr(error, "orig", None) or error).splitlines()
    return said[0] if said else type(error).__name__


def open_engine(url: str, *, name: str = "jupyter-gpushare", syncs: bool = True) -> sql.Engine:
    """`syncs` False: commits into an SQLite file are not synced one by one (`store.disk` does that
    for many at once).

    Raises InvalidInput: no such form of address, or its driver is not installed. The address (it
    may have a password) is not repeated.
    """
    parsed = _parsed(url)
    try:
        if parsed.get_backend_name() == "sqlite":
            engine = sql.create_engine(parsed)
            sql.event.listen(engine, "connect", _careful_sqlite if syncs else _quick_sqlite)
            return engine
        if parsed.get_backend_name() != "postgresql":
            raise InvalidInput(
                "the database must be sqlite:///FILE or postgresql+psycopg://…", field="db-url"
            )
        engine = sql.create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            connect_args=_careful_postgresql(name),
        )
        sql.event.listen(engine, "connect", _without_zeros)
        return engine
    except ImportError as error:
        raise InvalidInput(
            "PostgreSQL needs psycopg: pip install 'jupyter-gpushare[postgresql]'", field="db-url"
        ) from error


def _careful_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # an acknowledged grant survives a power cut
    cursor.execute("PRAGMA busy_timeout=5000")
    cursor.close()


def _quick_sqlite(connection: Any, record: object) -> None:
    _careful_sqlite(connection, record)
    cursor = connection.cursor()
    cursor.execute(
        "PRAGMA synchronous=NORMAL"
    )  # the log is synced for many commits at once, before anybody is told of them
    cursor.execute(
        f"PRAGMA wal_autocheckpoint={LONGEST_LOG}"
    )  # it is copied beside the decisions, long before
    cursor.close()


def _without_zeros(connection: Any, _record: object) -> None:
    """PostgreSQL keeps no zero byte in a text. What programs print and agents say may have some;
    ids that have any are refused before.
    """
    from psycopg.types.string import StrDumperUnknown

    class Dumper(StrDumperUnknown):
        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\N{REPLACEMENT CHARACTER}"))

    connection.adapters.register_dumper(str, Dumper)


def _careful_postgresql(name: str) -> dict[str, Any]:
    """The service waits for the database on its only thread: better a 503 soon than silence."""
    limits = {
        "idle_in_transaction_session_timeout": STUCK_MS,
        "lock_timeout": 2 * STUCK_MS,
        "statement_timeout": 6 * STUCK_MS,
    }
    return {
        "connect_timeout": PATIENCE_S,
        "tcp_user_timeout": STUCK_MS,
        "keepalives_idle": PATIENCE_S,
        "keepalives_interval": PATIENCE_S,
        "keepalives_count": 2,
        "application_name": name,
        "options": " ".join(f"-c {limit}={value}" for limit, value in limits.items()),
    }


# -- versions
# -----------------------------------------------------------------------------------------------------------------------


def found_version(connection: sql.Connection) -> str | None:
    """The version of the tables; None: there are none yet. Tables from before versions were counted
    are known by their looks.
    """
    inspector = sql.inspect(connection)
    if inspector.has_table("alembic_version"):
        version = connection.execute(sql.select(_VERSION.c.version_num)).scalar()
        if version is not None:
            return str(version)
    if not inspector.has_table("workloads"):
        return None
    return (
        "0002"
        if any(column["name"] == "users" for column in inspector.get_columns("tokens"))
        else "0001"
    )


def prepare(engine: sql.Engine, *, upgrade: bool) -> None:
    """Afterwards the tables are today's. Older ones are changed only with `upgrade`; of an SQLite
    file a copy is made first.

    Raises NeedsUpgrade, TooNew, StoreUnavailable.
    """
    with ours(), engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sql.select(sql.func.pg_advisory_xact_lock(TABLES_LOCK)))
        found = found_version(connection)
        if found is None:
            if engine.dialect.name == "sqlite":
                connection.exec_driver_sql(
                    "BEGIN IMMEDIATE"
                )  # all tables or none, and one sync: the driver would commit each by itself
            metadata.create_all(connection)
            _stamp(connection, NEWEST)
            return
    if found == NEWEST and _is_stamped(engine):
        return
    if not upgrade and found != NEWEST:
        _refuse_unknown(found)
        raise NeedsUpgrade(
            f"the database has version {found} and this program needs {NEWEST}: stop every scheduler, make a backup, "
            "then run `jupyter gpushare db upgrade` (or start with --db-upgrade)",
            field="db-url",
        )
    bring_up_to_date(engine)


def bring_up_to_date(engine: sql.Engine) -> tuple[str, Path | None]:
    """All steps that are missing, together or not at all. Gives the version that was found, and the
    copy that was made of a file.

    Raises TooNew, StoreUnavailable.
    """
    with ours(), engine.connect() as connection:
        found = found_version(connection) or NOTHING
    _refuse_unknown(found)
    file = file_in(str(engine.url))
    copy = (
        backup_file(file, file.with_name(f"{file.name}.before-{NEWEST}"))
        if file is not None and NOTHING < found < NEWEST
        else None
    )
    with ours(), engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql(
                "BEGIN IMMEDIATE"
            )  # or the driver would commit every change of a table by itself
        elif not connection.execute(
            sql.select(sql.func.pg_try_advisory_xact_lock(LEAD_LOCK))
        ).scalar():
            raise Conflict("a scheduler runs on this database: stop it first", field="db-url")
        else:
            connection.exec_driver_sql(
                "SET LOCAL statement_timeout = 0"
            )  # a large table takes its time
        if found != NOTHING and not sql.inspect(connection).has_table("alembic_version"):
            _stamp(connection, found)
        _run_steps(connection)
    return found, copy


def _refuse_unknown(found: str) -> None:
    if found not in (NOTHING, *steps()):
        raise TooNew(
            f"the database has version {found}, which is newer than this program ({NEWEST}): install a newer one",
            field="db-url",
        )


def _is_stamped(engine: sql.Engine) -> bool:
    with ours(), engine.connect() as connection:
        return sql.inspect(connection).has_table("alembic_version")


def _stamp(connection: sql.Connection, version: str) -> None:
    connection.execute(
        sql.text(
            "CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
        )
    )
    connection.execute(_VERSION.delete())
    connection.execute(_VERSION.insert().values(version_num=version))


def _run_steps(connection: sql.Connection) -> None:
    from alembic import command  # only here: a start that changes nothing need not load it
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


# -- files
# --------------------------------------------------------------------------------------------------------------------------


def file_in(url: str) -> Path | None:
    """The file of an SQLite database; None: it has none. Raises InvalidInput."""
    parsed = _parsed(url)
    name = parsed.database if parsed.get_backend_name() == "sqlite" else None
    return None if not name or name == ":memory:" else Path(name)


def is_shared(url: str) -> bool:
    """Whether several schedulers may be on it. Raises InvalidInput."""
    return _parsed(url).get_backend_name() == "postgresql"


def _parsed(url: str) -> sql.URL:
    try:
        return sql.make_url(url)
    except ArgumentError as error:
        raise InvalidInput(f"this database cannot be used: {error}", field="db-url") from error


def backup_file(source: Path, target: Path) -> Path:
    """A consistent copy, made while others may write, by the database's own means; readable by its
    owner alone. Gives the target.
    """
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    try:
        origin, copy = (
            sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True),
            sqlite3.connect(target),
        )
        try:
            origin.backup(copy)
        finally:
            origin.close()
            copy.close()
    except sqlite3.Error as error:
        target.unlink(missing_ok=True)
        raise StoreUnavailable(
            f"the database cannot be copied: {error}", field=str(target)
        ) from error
    return target
