"""Submits a workload whose command is shown in this terminal: `run --attach` and `shell`."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from typing import Final

import click
from msgspec import structs

from jupyter_gpushare import messages as m
from jupyter_gpushare.client import SchedulerClient

from .terminal_client import Terminal

__all__ = ["attached", "state_line"]

INTERRUPTED: Final = 130
ENDED: Final = 1
"""Exit status when the command was ended without one of its own."""


async def attached(client: SchedulerClient, request: m.WorkloadRequest) -> int:
    """Submit `request`, whose only pod runs a command, and show the command's terminal; its exit
    status. The share is given back when this process or the command ends.
    """
    assert request.command is not None
    with Terminal() as terminal:
        command = structs.replace(request.command, argv=terminal.host_command(request.command.argv))
        pods = [structs.replace(request.pods[0], nodes=await _this_node(client))]
        await client.submit(structs.replace(request, command=command, pods=pods))
        showing = asyncio.ensure_future(_show(client, request.id, terminal))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, showing.cancel)
        try:
            return await showing
        except asyncio.CancelledError:
            click.echo(f"{request.id} cancelled", err=True)
            return INTERRUPTED
        finally:
            await client.end(request.id)


async def _this_node(client: SchedulerClient) -> list[str]:
    """The node of this machine, if the scheduler knows it by its host name: the terminal is reached
    by a unix socket.
    """
    names = [node.name for node in (await client.nodes()).nodes]
    return [name for name in names if name == socket.gethostname()]


async def _show(client: SchedulerClient, workload: str, terminal: Terminal) -> int:
    shown = ""
    while (connection := await asyncio.to_thread(terminal.accept)) is None:
        seen = await client.workload(workload)
        if seen.state == "ended":
            sys.stderr.write("".join(line.text for line in (await client.logs(workload)).lines))
            click.echo(f"{workload}: {seen.message}", err=True)
            return seen.exit_code or ENDED
        if (now := state_line(seen)) not in ("", shown):
            shown = now
            click.echo(shown, err=True)
    status = await _forward(terminal, connection)
    if status is None:
        seen = await client.workload(workload)
        reason = seen.message or (seen.reason.message if seen.reason is not None else "")
        click.echo(f"{workload} was ended: {reason}", err=True)
        return ENDED
    return status


async def _forward(terminal: Terminal, connection: socket.socket) -> int | None:
    """Exit status of the command; None: it was ended without one."""
    with connection:
        terminal.send_size(connection)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, terminal.send_size, connection)
        forwarding = asyncio.ensure_future(asyncio.to_thread(terminal.show, connection))
        try:
            return await asyncio.shield(forwarding)
        except asyncio.CancelledError:
            connection.shutdown(socket.SHUT_RDWR)
            await forwarding
            raise


def state_line(seen: m.WorkloadView) -> str:
    """Where the workload is running, or why it is waiting."""
    nodes = sorted({pod.lease.node for pod in seen.pods if pod.lease is not None})
    if nodes:
        waiting = sum(pod.state == "pending" for pod in seen.pods)
        return f"{seen.id} is running on {', '.join(nodes)}" + (
            f"; {waiting} of {len(seen.pods)} pods are waiting" if waiting else ""
        )
    return f"{seen.id} is waiting: {seen.reason.message}" if seen.reason is not None else ""
