"""Opens a database, reads the version of its tables, and upgrades them.

A new database gets the current tables at once. An older one is upgraded by the steps in
`migrations`; a newer one is refused. The number of a step is the first part of its file name, so
that a start does not load Alembic.
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
    "translated_errors",
    "prepare",
    "steps",
]

_MIGRATIONS: Final = Path(__file__).parent / "migrations"
_VERSION: Final = sql.table("alembic_version", sql.column("version_num", sql.String))
TOO_LARGE: Final = "54000"
"""SQLSTATE of PostgreSQL's `program_limit_exceeded`: a value too long for an index."""
CONNECT_TIMEOUT_S: Final = 3
AUTO_CHECKPOINT_PAGES: Final = 20_000
"""Pages of the WAL after which SQLite itself checkpoints, if `group_commit` did not: 80 MB."""
LEAD_LOCK: Final = 0x6770757368617265
"""PostgreSQL advisory lock of the leading scheduler ("gpushare" in ASCII)."""
TABLES_LOCK: Final = LEAD_LOCK + 1
"""Advisory lock for creating tables: several schedulers may start at once."""
IDLE_TRANSACTION_MS: Final = 5000
"""PostgreSQL ends a transaction that is idle for longer: its scheduler hangs, and another one can
lead.
"""


class StoreUnavailable(Unavailable):
    """Raised when the database fails (full disk, not reachable, locked); nothing was changed."""

    code = "store-unavailable"


class NeedsUpgrade(GpuShareError):
    """Raised when the tables have an older version and an upgrade was not requested."""

    code, status_hint = "database-needs-upgrade", 409


class TooNew(GpuShareError):
    """Raised when a newer version of this program created the tables."""

    code, status_hint = "database-too-new", 409


def steps() -> list[str]:
    """The versions that this program can upgrade, oldest first."""
    return sorted(
        file.name.partition("_")[0] for file in (_MIGRATIONS / "versions").glob("[0-9]*_*.py")
    )


NEWEST: Final = steps()[-1]
NOTHING: Final = "0000"
"""Version of a database without tables."""


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translates SQLAlchemy's errors: a value that the database can never store is `InvalidInput`,
    everything else `StoreUnavailable`.
    """
    try:
        yield
    except DataError as error:
        raise InvalidInput(f"the database cannot store this: {_first_line(error)}") from error
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) == TOO_LARGE:
            raise InvalidInput(f"the database cannot store this: {_first_line(error)}") from error
        raise StoreUnavailable(f"the database does not respond: {_first_line(error)}") from error
    except SQLAlchemyError as error:
        raise StoreUnavailable(f"the database does not respond: {_first_line(error)}") from error


def _first_line(error: SQLAlchemyError) -> str:
    said = str(getattr(error, "orig", None) or error).splitlines()
    return said[0] if said else type(error).__name__


def open_engine(url: str, *, name: str = "jupyter-gpushare", syncs: bool = True) -> sql.Engine:
    """An engine for a URL. With `syncs=False`, commits into an SQLite file are not synced one by
    one; `group_commit` syncs many at once.

    Raises InvalidInput: the URL is of another kind, or its driver is not installed. The message
    does not contain the URL, which may contain a password.
    """
    parsed = _parsed(url)
    try:
        if parsed.get_backend_name() == "sqlite":
            engine = sql.create_engine(parsed)
            sql.event.listen(
                engine, "connect", _set_up_sqlite if syncs else _set_up_sqlite_without_syncs
            )
            return engine
        if parsed.get_backend_name() != "postgresql":
            raise InvalidInput(
                "the database must be sqlite:///FILE or postgresql+psycopg://…", field="db-url"
            )
        engine = sql.create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            connect_args=_postgresql_timeouts(name),
        )
        sql.event.listen(engine, "connect", _replace_zero_bytes)
        return engine
    except ImportError as error:
        raise InvalidInput(
            "PostgreSQL needs psycopg: pip install 'jupyter-gpushare[postgresql]'", field="db-url"
        ) from error


def _set_up_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # an acknowledged grant survives a power failure
    cursor.execute("PRAGMA busy_timeout=5000")
    cursor.close()


def _set_up_sqlite_without_syncs(connection: Any, record: object) -> None:
    _set_up_sqlite(connection, record)
    cursor = connection.cursor()
    cursor.execute(
        "PRAGMA synchronous=NORMAL"
    )  # `group_commit` syncs many commits at once, before they are announced
    cursor.execute(
        f"PRAGMA wal_autocheckpoint={AUTO_CHECKPOINT_PAGES}"
    )  # `group_commit` checkpoints in a thread, long before
    cursor.close()


def _replace_zero_bytes(connection: Any, _record: object) -> None:
    """PostgreSQL cannot store zero bytes in text. Output of commands may contain some; ids with
    zero bytes are refused before.
    """
    from psycopg.types.string import StrDumperUnknown

    class Dumper(StrDumperUnknown):
        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\N{REPLACEMENT CHARACTER}"))

    connection.adapters.register_dumper(str, Dumper)


def _postgresql_timeouts(name: str) -> dict[str, Any]:
    """Short timeouts, since the service waits for the database on its only thread."""
    limits = {
        "idle_in_transaction_session_timeout": IDLE_TRANSACTION_MS,
        "lock_timeout": 2 * IDLE_TRANSACTION_MS,
        "statement_timeout": 6 * IDLE_TRANSACTION_MS,
    }
    return {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "tcp_user_timeout": IDLE_TRANSACTION_MS,
        "keepalives_idle": CONNECT_TIMEOUT_S,
        "keepalives_interval": CONNECT_TIMEOUT_S,
        "keepalives_count": 2,
        "application_name": name,
        "options": " ".join(f"-c {limit}={value}" for limit, value in limits.items()),
    }


def found_version(connection: sql.Connection) -> str | None:
    """The version of the tables; None: no tables. Tables without a version number are recognized
    by their columns.
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
    """Creates the tables, or upgrades older ones if `upgrade` is set. An SQLite file is copied
    first.

    Raises NeedsUpgrade, TooNew, StoreUnavailable.
    """
    with translated_errors(), engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(sql.select(sql.func.pg_advisory_xact_lock(TABLES_LOCK)))
        found = found_version(connection)
        if found is None:
            if engine.dialect.name == "sqlite":
                connection.exec_driver_sql(
                    "BEGIN IMMEDIATE"
                )  # one transaction: the driver would commit each table separately
            metadata.create_all(connection)
            _stamp(connection, NEWEST)
            return
    if found == NEWEST and _is_stamped(engine):
        return
    if not upgrade and found != NEWEST:
        _refuse_unknown(found)
        raise NeedsUpgrade(
            f"the database has version {found} and this program needs {NEWEST}: stop every"
            " scheduler, make a backup, then run `jupyter gpushare db upgrade` (or start with"
            " --db-upgrade)",
            field="db-url",
        )
    bring_up_to_date(engine)


def bring_up_to_date(engine: sql.Engine) -> tuple[str, Path | None]:
    """Applies all missing steps in one transaction. Returns the version that was found, and the
    copy of an SQLite file.

    Raises TooNew, StoreUnavailable.
    """
    with translated_errors(), engine.connect() as connection:
        found = found_version(connection) or NOTHING
    _refuse_unknown(found)
    file = file_in(str(engine.url))
    copy = (
        backup_file(file, file.with_name(f"{file.name}.before-{NEWEST}"))
        if file is not None and NOTHING < found < NEWEST
        else None
    )
    with translated_errors(), engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql(
                "BEGIN IMMEDIATE"
            )  # the driver would commit every change of a table separately
        elif not connection.execute(
            sql.select(sql.func.pg_try_advisory_xact_lock(LEAD_LOCK))
        ).scalar():
            raise Conflict("a scheduler runs on this database: stop it first", field="db-url")
        else:
            connection.exec_driver_sql(
                "SET LOCAL statement_timeout = 0"
            )  # a large table takes long
        if found != NOTHING and not sql.inspect(connection).has_table("alembic_version"):
            _stamp(connection, found)
        _run_steps(connection)
    return found, copy


def _refuse_unknown(found: str) -> None:
    if found not in (NOTHING, *steps()):
        raise TooNew(
            f"the database has version {found}, which is newer than this program ({NEWEST}):"
            " install a newer version",
            field="db-url",
        )


def _is_stamped(engine: sql.Engine) -> bool:
    with translated_errors(), engine.connect() as connection:
        return sql.inspect(connection).has_table("alembic_version")


def _stamp(connection: sql.Connection, version: str) -> None:
    connection.execute(
        sql.text(
            "CREATE TABLE IF NOT EXISTS alembic_version"
            " (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
        )
    )
    connection.execute(_VERSION.delete())
    connection.execute(_VERSION.insert().values(version_num=version))


def _run_steps(connection: sql.Connection) -> None:
    from alembic import command  # imported here, since it is slow and rarely needed
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def file_in(url: str) -> Path | None:
    """The file of an SQLite database; None: no file. Raises InvalidInput."""
    parsed = _parsed(url)
    name = parsed.database if parsed.get_backend_name() == "sqlite" else None
    return None if not name or name == ":memory:" else Path(name)


def is_shared(url: str) -> bool:
    """Whether several schedulers can use the database. Raises InvalidInput."""
    return _parsed(url).get_backend_name() == "postgresql"


def _parsed(url: str) -> sql.URL:
    try:
        return sql.make_url(url)
    except ArgumentError as error:
        raise InvalidInput(f"the database URL cannot be used: {error}", field="db-url") from error


def backup_file(source: Path, target: Path) -> Path:
    """Makes a consistent copy through SQLite's backup API while others may write. Only its owner
    can read it. Returns the target.
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
