"""`jupyter gpushare top`: nodes, GPUs and workloads, live in a terminal; without one, once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import click
from rich.console import Console
from rich.live import Live

from jupyter_gpushare.cli.discovery import ask, scheduler_options
from jupyter_gpushare.cli.top_view import WIDE, Snapshot, frame
from jupyter_gpushare.client import HttpTransport, SchedulerClient
from jupyter_gpushare.core.model.errors import Unavailable

__all__ = ["top"]

QUIT_KEYS: Final = b"qQ\x1b\x03\x04"
"""q, Escape, Ctrl-C and Ctrl-D."""
HINT: Final = "q quits"


@click.command()
@scheduler_options
@click.option(
    "--interval",
    type=click.FloatRange(0.5, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two updates.",
)
@click.option("--once", is_flag=True, help="Print once, also in a terminal.")
def top(transport: HttpTransport, interval: float, once: bool) -> int:
    """Nodes, GPUs and the workloads that you may see, live. `q` quits.

    Without a terminal (a pipe, a file) it prints once.
    """
    console = Console()
    if once or not (console.is_terminal and sys.stdin.isatty()):
        if not console.is_terminal:
            console = Console(width=WIDE)
        console.print(frame(ask(transport, _snapshot), width=console.width))
        return 0
    ask(transport, lambda client: _live(client, console, interval))
    return 0


async def _snapshot(client: SchedulerClient) -> Snapshot:
    nodes, workloads = await asyncio.gather(client.nodes(), client.workloads())
    return Snapshot(nodes.nodes, workloads.workloads, time.strftime("%H:%M:%S"))


async def _live(client: SchedulerClient, console: Console, interval: float) -> None:
    """Until a key quits. The first answer must come; later failures are shown beside the last
    one.
    """
    shown = await _snapshot(client)
    quit_pressed = asyncio.Event()
    with _keys(quit_pressed.set), Live(console=console, screen=True, auto_refresh=False) as live:
        while not quit_pressed.is_set():
            screen = frame(shown, width=console.width, height=console.height, hint=HINT)
            live.update(screen, refresh=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await quit_pressed.wait()
            shown = await _next(client, shown)


async def _next(client: SchedulerClient, shown: Snapshot) -> Snapshot:
    try:
        return await _snapshot(client)
    except Unavailable as error:
        return replace(shown, problem=error.message)


@contextlib.contextmanager
def _keys(quit_pressed: Callable[[], object]) -> Iterator[None]:
    """Reads single keys without echo; the terminal is as before afterwards."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read() -> None:
        pressed = os.read(descriptor, 16)
        if not pressed or set(pressed) & set(QUIT_KEYS):
            quit_pressed()

    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, read)
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
