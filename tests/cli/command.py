"""Runs the console script's own function in this process: exit status, stdout and stderr as a shell
would see them.
"""

from __future__ import annotations

import contextlib
import io
from typing import NamedTuple

from jupyter_gpushare.cli import main


class Result(NamedTuple):
    """What a shell sees of a command."""

    status: int
    stdout: str
    stderr: str


def gpushare(*args: object) -> Result:
    """`jupyter gpushare args…`."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(arg) for arg in args])
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 1
    return Result(status, out.getvalue(), err.getvalue())
