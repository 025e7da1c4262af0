"""Lines on stderr, for the person who runs the tool."""

from __future__ import annotations

import sys

__all__ = ["report"]


def report(text: str) -> None:
    """One line; a tool without stderr gets none."""
    if sys.stderr is not None:
        sys.stderr.write(f"gpushare: {text}\n")
        sys.stderr.flush()
