"""`jupyter gpushare cordon | uncordon | drain NODE`, in the manner of kubectl."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli import REFUSED, print_error
from jupyter_gpushare.cli.completion_values import name_of
from jupyter_gpushare.cli.discovery import ask, scheduler_options

if TYPE_CHECKING:
    from jupyter_gpushare.client import SchedulerClient
    from jupyter_gpushare.failover import Failover
    from jupyter_gpushare.transports import HttpTransport

__all__ = ["cordon", "drain", "uncordon"]

LOOK_S = 0.5


def _show(mark: m.CordonStatus, as_json: bool) -> int:
    click.echo(json.dumps(m.to_json(mark), indent=2) if as_json else mark.message)
    return 0


@click.command()
@click.argument("node", shell_complete=name_of("node"))
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cordon(node: str, transport: HttpTransport | Failover, as_json: bool) -> int:
    """Place no new workloads on NODE; running ones stay. For admins. Survives restarts."""
    return _show(ask(transport, lambda client: client.cordon(node)), as_json)


@click.command()
@click.argument("node", shell_complete=name_of("node"))
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def uncordon(node: str, transport: HttpTransport | Failover, as_json: bool) -> int:
    """Accept new workloads on NODE again; kernels that are waiting for it continue."""
    return _show(ask(transport, lambda client: client.uncordon(node)), as_json)


@click.command()
@click.argument("node", shell_complete=name_of("node"))
@scheduler_options
@click.option("--no-wait", is_flag=True, help="Start the drain, print the progress, and return.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    help="Seconds to wait for the end of the drain.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON at the end.")
def drain(
    node: str, transport: HttpTransport | Failover, no_wait: bool, timeout: float, as_json: bool
) -> int:
    """Cordon NODE and evict its workloads, after the policy's notice. GPU memory is saved to host
    memory where possible.

    Kernels stay on the machine of their Jupyter server and wait without a GPU until `uncordon`.
    Prints the progress; interrupting the command does not stop the drain. Exit status 1 if leases
    remain after --timeout.
    """
    mark = ask(
        transport, lambda client: _drained(client, node, 0.0 if no_wait else timeout, as_json)
    )
    if as_json:
        _show(mark, as_json)
    if mark.leases and not no_wait:
        print_error(f"{mark.leases} leases remain after {timeout:g} s", node)
        return REFUSED
    return 0


async def _drained(
    client: SchedulerClient, node: str, wait_s: float, quiet: bool
) -> m.CordonStatus:
    """Prints each new message once."""
    loop, printed = asyncio.get_running_loop(), ""
    deadline = loop.time() + wait_s
    while True:
        mark = await client.drain(node)
        if mark.message != printed and not quiet:
            printed = mark.message
            click.echo(printed)
        if not mark.leases or loop.time() >= deadline:
            return mark
        await asyncio.sleep(LOOK_S)
