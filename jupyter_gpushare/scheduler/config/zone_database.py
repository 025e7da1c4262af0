"""Which time zone database this process uses.

`zoneinfo` takes a zone from the first directory of its path that has it, and from the package
`tzdata` if none has. Databases of different ages disagree about some zones, so booked times are
those of this one.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

__all__ = ["database_in", "zone_database"]

KNOWN_ZONE: Final = "Europe/Berlin"
"""A directory without it is no database."""


@cache
def zone_database() -> str:
    """Version and place, such as "2026f (tzdata)"; "none": only UTC is known."""
    return database_in(zoneinfo.TZPATH)


def database_in(path: Iterable[str]) -> str:
    """The database that is used with this search path."""
    for directory in map(Path, path):
        if (directory / KNOWN_ZONE).is_file():
            return f"{_version(directory) or 'unknown version'} ({directory})"
    try:
        package = import_module("tzdata")
    except ImportError:
        return "none"
    return f"{package.IANA_VERSION} (tzdata)"


def _version(directory: Path) -> str | None:
    """As the files say: `+VERSION` of BSD and macOS, or the first line of `tzdata.zi`."""
    for name in ("+VERSION", "tzdata.zi"):
        try:
            with (directory / name).open(encoding="ascii", errors="replace") as file:
                stated = file.readline(100).removeprefix("# version").strip()
        except OSError:
            continue
        if stated:
            return stated
    return None
