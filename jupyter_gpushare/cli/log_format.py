"""Log format of scheduler and agent, on stderr: text lines, or one JSON object per line.

Tokens and passwords are removed, and control characters are escaped, since names of notebooks and
output of commands may contain both. Loggers pass `extra={"workload": ..., "node": ...}`; names in
`ABOUT` become fields. (python-json-logger is not used, since its field names changed between major
versions.)
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import click

from jupyter_gpushare.cli.control_characters import escape_controls

__all__ = ["ABOUT", "log_options", "set_up"]

ABOUT: Final = ("workload", "lease", "kernel", "node", "project", "user", "actor")
"""Fields of a line besides the message."""
SECRETS: Final = re.compile(
    r"\bgpushare_[\w-]{30,}"  # our own tokens
    r"|(?<=[?&]token=)[^&\s\"']+|(?i:(?<=bearer )|(?<=authorization: token ))[\w.~+/=-]+"
    r"|(?<=://)[^/@\s]+(?=@)"  # user and password in the URL of a database
)
HIDDEN: Final = "[hidden]"


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--log-level` and `--log-format`."""
    for option in (
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            envvar="GPUSHARE_LOG_FORMAT",
            help="Text lines, or one JSON object per line.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default="info",
            show_default=True,
        ),
    ):
        command = option(command)
    return command


def set_up(level: str, form: str, **always: str) -> None:
    """Sends all log lines of this process to stderr in this format. `always` are fields of every
    line (`node`).
    """
    handler = logging.StreamHandler()
    handler.setFormatter(
        _JsonFormatter(always)
        if form == "json"
        else _TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)


class _TextFormatter(logging.Formatter):
    """The message is one line; a traceback follows on further lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return escape_controls(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return SECRETS.sub(HIDDEN, escape_controls(super().format(record), keep="\n\t"))


class _JsonFormatter(logging.Formatter):
    """`time` (ISO 8601, UTC), `level`, `logger`, `message`, the fields in `ABOUT`, and `error`: a
    traceback. JSON escapes control characters below U+0020; the others are escaped here.
    """

    def __init__(self, always: dict[str, str]) -> None:
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": time,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._always,
        }
        for name in ABOUT:
            if value := getattr(record, name, None):
                line[name] = str(value)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        clean = {name: SECRETS.sub(HIDDEN, value) for name, value in line.items()}
        return escape_controls(json.dumps(clean, ensure_ascii=False))
