"""Finds the scheduler and the token: by options, by the environment, or on this machine."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from jupyter_gpushare.addresses import DEMO, SchedulerNote, home, scheduler_note
from jupyter_gpushare.client import SchedulerClient, token_in
from jupyter_gpushare.core.model.errors import InvalidInput, Unavailable
from jupyter_gpushare.failover import Failover, to_schedulers
from jupyter_gpushare.transports import UNIX, HttpTransport

__all__ = ["DEMO", "ask", "home", "late_scheduler_options", "scheduler_options", "transport_to"]

T = TypeVar("T")


def scheduler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--scheduler`, `--token-file` and `--ca-file`; the command receives a `transport`."""

    @functools.wraps(command)
    def with_transport(
        *args: Any, connect: Callable[[], HttpTransport | Failover], **more: Any
    ) -> Any:
        return command(*args, transport=connect(), **more)

    return late_scheduler_options(with_transport)


def late_scheduler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command that may not need a scheduler: it receives `connect`, which returns
    the transport.
    """

    @click.option(
        "--scheduler",
        envvar="GPUSHARE_SCHEDULER",
        metavar="URL",
        help="The scheduler (also unix:///PATH; several addresses of one service are separated by"
        " commas); default: the scheduler of this machine.",
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
        help="Trusted certificates.",
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
    """Makes one call and closes the transport. Raises GpuShareError."""

    logging.getLogger("tornado").addHandler(
        logging.NullHandler()
    )  # its log lines repeat the error that is printed

    async def call() -> T:
        try:
            return await question(SchedulerClient(transport))
        finally:
            transport.close()

    return asyncio.run(call())


def transport_to(
    url: str | None, token_file: str | None, ca_file: str | None
) -> HttpTransport | Failover:
    """A transport to the scheduler, by default that of this machine.

    Raises InvalidInput, Unavailable.
    """
    given = token_file
    if url is None:
        note = _note()
        url, token_file = note.url, token_file or note.token_file
    if not token_file and not url.startswith(UNIX):
        raise InvalidInput(
            "a token is required: --token-file FILE or $GPUSHARE_TOKEN_FILE", field="token-file"
        )
    if given and not Path(given).exists():
        raise InvalidInput(f"there is no token file {given}", field="token-file")
    return to_schedulers(url, token_in(token_file) if token_file else "", ca_file=ca_file)


def _note() -> SchedulerNote:
    """The address and token file of this user's scheduler, else of the demo."""
    note = scheduler_note()
    if note is None:
        raise Unavailable(
            f"no scheduler is running on this machine (none in {home()}): set --scheduler URL or"
            " $GPUSHARE_SCHEDULER"
        )
    return note
