"""Which error means that the extra `scheduler` is not installed.

The scheduler's packages are larger than everything else together, and a notebook server with a
scheduler service needs none of them. Imports nothing else of the package.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SCHEDULER_PACKAGES", "missing_text"]

SCHEDULER_PACKAGES: Final = frozenset({"alembic", "icalendar", "numpy", "pydantic", "sqlalchemy"})
"""Import names of the packages of the extra `scheduler` in pyproject.toml."""


def missing_text(error: ModuleNotFoundError, what: str, extra: str = "scheduler") -> str | None:
    """What to install so that `what` can run: an extra that has `scheduler` in it. None: the error
    has another cause.
    """
    name = (error.name or "").partition(".")[0]
    if name not in SCHEDULER_PACKAGES:
        return None
    return f"{what} needs {name}, which is not installed: pip install 'jupyter-gpushare[{extra}]'"
