"""File locks: two schedulers on one database would allocate the same GPU twice. A lock ends with
its process.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from jupyter_gpushare.core.model.errors import Unavailable

__all__ = ["is_held", "lock_of", "only_one"]


def only_one(lock_file: Path, refusal: str, where: Path) -> int:
    """Locks the file and returns the descriptor; closing it releases the lock. Raises Unavailable
    with `refusal` and `where` if another process has the lock.
    """
    try:
        lock = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(
            f"{lock_file.name} cannot be locked: {error.strerror or error}", field=str(where)
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise Unavailable(refusal, field=str(where)) from None
    return lock


def is_held(lock_file: Path) -> bool:
    """Whether a process has the lock now."""
    try:
        os.close(only_one(lock_file, "held", lock_file))
    except Unavailable:
        return True
    return False


def lock_of(database: Path) -> int:
    """Locks a database file through a second file: closing a descriptor of the database file would
    drop SQLite's own locks.
    """
    return only_one(
        database.with_suffix(".lock"), "another scheduler runs on this database", database
    )
