"""The name of this process's user."""

from __future__ import annotations

import getpass
import os

__all__ = ["local_user"]


def local_user() -> str:
    """The user of this process; in a container the user id may have no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"
