"""`jupyter gpushare cordon | uncordon | drain NODE`, in the manner of kubectl."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli import REFUSED, say_error
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
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def cordon(node: str, transport: HttpTransport | Failover, as_json: bool) -> int:
    """Place nothing new on NODE; what runs there stays. Admins only; survives restarts."""
    return _show(ask(transport, lambda client: client.cordon(node)), as_json)


@click.command()
@click.argument("node", shell_complete=name_of("node"))
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def uncordon(node: str, transport: HttpTransport | Failover, as_json: bool) -> int:
    """NODE takes work again; kernels that waited for it go on."""
    return _show(ask(transport, lambda client: client.uncordon(node)), as_json)


@click.command()
@click.argument("node", shell_complete=name_of("node"))
@scheduler_options
@click.option("--no-wait", is_flag=True, help="Order it, say how far it is, and return.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    help="Seconds to wait until nothing is left.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON, once, at the end.")
def drain(
    node: str, transport: HttpTransport | Failover, no_wait: bool, timeout: float, as_json: bool
) -> int:
    """Cordon NODE and ask what runs there to leave: with the policy's notice, and saved to host
    memory where that is possible.

    Kernels live on the machine of their Jupyter server and cannot move: they wait, without a GPU,
    until `uncordon`. Shows how far it is; interrupting this command does not end the drain. Exit
    status 1 when something is left after --timeout.
    """
    mark = ask(
        transport, lambda client: _drained(client, node, 0.0 if no_wait else timeout, as_json)
    )
    if as_json:
        _show(mark, as_json)
    if mark.leases and not no_wait:
        say_error(f"after {timeout:g} s {mark.leases} leases are still there", node)
        return REFUSED
    return 0


async def _drained(
    client: SchedulerClient, node: str, patience: float, quiet: bool
) -> m.CordonStatus:
    """Says each new sentence once."""
    loop, said = asyncio.get_running_loop(), ""
    deadline = loop.time() + patience
    while True:
        mark = await client.drain(node)
        if mark.message != said and not quiet:
            said = mark.message
            click.echo(said)
        if not mark.leases or loop.time() >= deadline:
            return mark
        await asyncio.sleep(LOOK_S)
