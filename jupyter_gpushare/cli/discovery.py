"""How the command line finds the scheduler and who it is: options, then the environment, then what
runs on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from jupyter_gpushare.client import SchedulerClient, token_in
from jupyter_gpushare.core.model.errors import InvalidInput, Unavailable
from jupyter_gpushare.failover import Failover, to_schedulers
from jupyter_gpushare.transports import UNIX, HttpTransport

__all__ = ["DEMO", "ask", "home", "late_scheduler_options", "scheduler_options", "transport_to"]

DEMO: Final = "demo"
"""Beside a scheduler's own note: a link to the state of the demo that runs now."""

T = TypeVar("T")


def scheduler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--scheduler`, `--token-file` and `--ca-file`; the command gets `transport` in their
    place.
    """

    @functools.wraps(command)
    def with_transport(
        *args: Any, connect: Callable[[], HttpTransport | Failover], **more: Any
    ) -> Any:
        return command(*args, transport=connect(), **more)

    return late_scheduler_options(with_transport)


def late_scheduler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command that may not need a scheduler: it gets `connect`, which finds one when
    it is called.
    """

    @click.option(
        "--scheduler",
        envvar="GPUSHARE_SCHEDULER",
        metavar="URL",
        help="The scheduler (also unix:///PATH; several on one database: separated by commas); default: that of this machine.",
    )
    @click.option(
        "--token-file",
        envvar="GPUSHARE_TOKEN_FILE",
        type=click.Path(dir_okay=False),
        help="File with your token.",
    )
    @click.option(
        "--ca-file",
        envvar="GPUSHARE_CA_FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Certificates to trust.",
    )
    @functools.wraps(command)
    def with_connect(
        *args: Any, scheduler: str | None, token_file: str | None, ca_file: str | None, **more: Any
    ) -> Any:
        return command(*args, connect=lambda: transport_to(scheduler, token_file, ca_file), **more)

    return with_connect


def ask(
    transport: HttpTransport | Failover, question: Callable[[SchedulerClient], Awaitable[T]]
) -> T:
    """Asks one question and closes the line. Raises GpuShareError."""

    logging.getLogger("tornado").addHandler(
        logging.NullHandler()
    )  # what it would log is in the error that we show

    async def asking() -> T:
        try:
            return await question(SchedulerClient(transport))
        finally:
            transport.close()

    return asyncio.run(asking())


def transport_to(
    url: str | None, token_file: str | None, ca_file: str | None
) -> HttpTransport | Failover:
    """The line to that scheduler, or to the one of this machine. Raises InvalidInput, Unavailable."""
    given = token_file
    if url is None:
        note = _note()
        url, token_file = note["url"], token_file or note["token_file"]
    if not token_file and not url.startswith(UNIX):
        raise InvalidInput(
            "a token is needed: --token-file FILE or $GPUSHARE_TOKEN_FILE", field="token-file"
        )
    if given and not Path(given).exists():
        raise InvalidInput(f"there is no token file {given}", field="token-file")
    return to_schedulers(url, token_in(token_file) if token_file else "", ca_file=ca_file)


def home() -> Path:
    """Where schedulers of this machine and this user leave what others need to find them."""
    from jupyter_core.paths import jupyter_data_dir

    return Path(os.environ.get("GPUSHARE_STATE") or Path(jupyter_data_dir()) / "gpushare")


def _note() -> dict[str, str]:
    """What a scheduler of this machine and this user left for us; a demo comes second."""
    folder = home()
    for place in (folder, folder / DEMO):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            note = json.loads((place / "scheduler.json").read_text())
            return {"url": str(note["url"]), "token_file": str(note["token_file"])}
    raise Unavailable(
        f"no scheduler runs here (nothing in {folder}); name one with --scheduler URL or $GPUSHARE_SCHEDULER"
    )
