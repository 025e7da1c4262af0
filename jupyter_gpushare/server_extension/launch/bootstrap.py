"""Hands the cell gate to an IPython kernel, whatever environment it runs in.

IPython runs the file in PYTHONSTARTUP itself: also with `python -I`, through wrapper scripts and
`conda run`, and beside every IPython configuration of the user. The file restores the user's own
value before it does anything else, so that child processes see nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import jupyter_gpushare

__all__ = ["STARTUP", "bootstrap_environment"]

STARTUP: Final = Path(jupyter_gpushare.__file__).with_name("kernel") / "startup.py"
VARIABLE: Final = "PYTHONSTARTUP"


def bootstrap_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The variables for a kernel that would have `env`."""
    handed = {VARIABLE: str(STARTUP)}
    users = env.get(VARIABLE, "")
    if users and users != str(STARTUP):  # the environment of a kernel that never ran the file
        handed["GPUSHARE_USER_STARTUP"] = users
    return handed
