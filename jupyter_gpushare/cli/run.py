"""`run`, `logs`, `cancel`, `list`: batch workloads."""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections.abc import Callable
from typing import Final

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.attach import attached, state_line
from jupyter_gpushare.cli.command_request import command_request
from jupyter_gpushare.cli.completion_values import name_of, names_of
from jupyter_gpushare.cli.discovery import ask, scheduler_options
from jupyter_gpushare.cli.output_formats import OutputFormat, output_options
from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.transports import HttpTransport

__all__ = ["cancel", "list_", "logs", "run"]

LOOK_S: Final = 0.4
INTERRUPTED: Final = 130


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@scheduler_options
@click.option("--project", shell_complete=name_of("project"), help="Default: your first project.")
@click.option(
    "--gpu", help="GPUs of each pod: 0.5, 1, 8. Without it (and without --gpu-memory): none."
)
@click.option("--gpu-memory", help="GPU memory of each pod instead of --gpu: 20GiB.")
@click.option("--cpu", default="0", help="Cores of each pod.")
@click.option("--memory", default="0", help="Memory of each pod: 16GiB.")
@click.option(
    "--pods",
    type=click.IntRange(1, 10_000),
    default=1,
    help="Number of processes that run the command.",
)
@click.option(
    "--min-pods",
    type=click.IntRange(1, 10_000),
    help="Start with this number of pods; the others follow. Default: all.",
)
@click.option(
    "--priority",
    default="train",
    shell_complete=name_of("priority"),
    help="Priority class, or a number. Default: train.",
)
@click.option(
    "--pool",
    "pools",
    shell_complete=names_of("pool"),
    help="Node pools in order of preference: a100,default.",
)
@click.option("--name", help="Name in lists. Default: the command.")
@click.option("--chdir", help="Working directory on the node. Default: this one.")
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for the command; without a value: from your environment.",
)
@click.option(
    "--queue-anyway",
    is_flag=True,
    help="Queue the workload even if it can never start on the current nodes and limits.",
)
@click.option("--detach", is_flag=True, help="Print the id and return at once.")
@click.option(
    "--attach", is_flag=True, help="Connect the command to this terminal, on this machine."
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    transport: HttpTransport,
    project: str | None,
    gpu: str | None,
    gpu_memory: str | None,
    cpu: str,
    memory: str,
    pods: int,
    min_pods: int | None,
    priority: str,
    pools: str | None,
    name: str | None,
    chdir: str | None,
    variables: tuple[str, ...],
    queue_anyway: bool,
    detach: bool,
    attach: bool,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND on a node with GPUs: jupyter gpushare run --project vision --gpu 1 -- python
    train.py

    Prints its output and exits with its status. An interrupt cancels it.
    """
    if min_pods is not None and min_pods > pods:
        raise InvalidInput(
            f"--min-pods must be at most --pods ({pods}), got {min_pods}", field="min-pods"
        )
    if attach and (pods > 1 or detach):
        raise InvalidInput("--attach shows one pod", field="attach")
    request = command_request(
        command,
        kind="run",
        pod=m.PodRequest(gpu=gpu, gpu_memory=gpu_memory, cpu=cpu, memory=memory),
        pods=pods,
        min_pods=min_pods,
        name=name,
        project=project,
        priority=priority,
        pools=pools,
        chdir=chdir,
        variables=variables,
        queue_anyway=queue_anyway,
    )
    if attach:
        return ask(transport, lambda client: attached(client, request))
    return ask(transport, lambda client: _submitted(client, request, detach))


async def _submitted(client: SchedulerClient, request: m.WorkloadRequest, detach: bool) -> int:
    made = await client.submit(request)
    if detach:
        click.echo(request.id)
        return 0
    click.echo(f"{request.id} submitted by {made.user}", err=True)
    following = asyncio.ensure_future(_follow(client, request.id, verbose=True))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, following.cancel)
    try:
        return await following
    except asyncio.CancelledError:
        await client.end(request.id)
        click.echo(f"{request.id} cancelled", err=True)
        return INTERRUPTED


async def _follow(
    client: SchedulerClient, workload: str, *, verbose: bool, pod: str | None = None
) -> int:
    """Prints the output until the workload ends, and returns its exit status. With `verbose`, also
    its state on stderr.
    """
    cursor, shown = 0, ""
    prefix: Callable[[str], str] | None = None
    lines = _PodOutput()
    while True:
        seen = await client.workload(workload)
        printed = await client.logs(workload, pod=pod, cursor=cursor)
        cursor = printed.cursor
        prefix = prefix or (
            (lambda name: f"[{name}] ") if len(seen.pods) > 1 and pod is None else (lambda _: "")
        )
        for line in printed.lines:
            lines.show(prefix(line.pod), line.text)
        if verbose and (now := state_line(seen)) not in ("", shown):
            shown = now
            click.echo(shown, err=True)
        if printed.is_over:
            lines.finish()
            return _status(await client.workload(workload), verbose)  # `seen` may be older
        if not printed.lines:
            await asyncio.sleep(LOOK_S)


class _PodOutput:
    """Prints output: of several pods line by line with names, of a single one as it arrives."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}

    def show(self, prefix: str, text: str) -> None:
        if not prefix:
            click.echo(text, nl=False)
            return
        whole, _, rest = (self._open.pop(prefix, "") + text).rpartition("\n")
        for line in whole.split("\n") if whole else ():
            click.echo(prefix + line)
        if rest:
            self._open[prefix] = rest

    def finish(self) -> None:
        for prefix, rest in self._open.items():
            click.echo(prefix + rest)


def _status(seen: m.WorkloadView, verbose: bool) -> int:
    if verbose and (seen.exit_code != 0 or len(seen.pods) > 1):
        click.echo(f"{seen.id}: {seen.message}", err=True)
    return 1 if seen.exit_code is None else seen.exit_code


@click.command()
@click.argument("workload", shell_complete=name_of("batch"))
@scheduler_options
@click.option("--pod", help="Output of this pod only.")
@click.option(
    "-f", "--follow", is_flag=True, help="Follow until the end, and exit with its status."
)
def logs(workload: str, transport: HttpTransport, pod: str | None, follow: bool) -> int:
    """Print the output of WORKLOAD so far."""

    async def show(client: SchedulerClient) -> int:
        if follow:
            return await _follow(client, workload, verbose=False, pod=pod)
        seen, cursor, lines = await client.workload(workload), 0, _PodOutput()
        while (printed := await client.logs(workload, pod=pod, cursor=cursor)).lines:
            cursor = printed.cursor
            for line in printed.lines:
                lines.show(
                    f"[{line.pod}] " if len(seen.pods) > 1 and pod is None else "", line.text
                )
        lines.finish()
        return 0

    return ask(transport, show)


@click.command()
@click.argument("workload", shell_complete=name_of("batch"))
@scheduler_options
def cancel(workload: str, transport: HttpTransport) -> int:
    """End WORKLOAD: its processes get SIGTERM, and SIGKILL a few seconds later."""
    ask(transport, lambda client: client.end(workload))
    click.echo(f"{workload} cancelled")
    return 0


_COLUMNS: Final = ("id", "user", "project", "state", "reason", "pods", "node", "exit", "command")


@click.command("list")
@scheduler_options
@click.option("-a", "--all", "everything", is_flag=True, help="Also the last 50 that have ended.")
@output_options(*_COLUMNS)
def list_(transport: HttpTransport, everything: bool, output: OutputFormat) -> int:
    """The batch workloads that you may see."""

    async def look(client: SchedulerClient) -> list[m.WorkloadView]:
        living = [one for one in (await client.workloads()).workloads if one.kernel_id is None]
        return living + ((await client.workloads(ended=True)).workloads if everything else [])

    output.chosen(_COLUMNS, _COLUMNS)
    found = ask(transport, look)
    return output.show(
        [_row(one, output) for one in found],
        _COLUMNS,
        document=[m.to_json(one) for one in found],
        empty="No batch workloads.",
    )


def _row(one: m.WorkloadView, output: OutputFormat) -> dict[str, str]:
    placed = sum(pod.lease is not None for pod in one.pods)
    nodes = sorted({pod.lease.node for pod in one.pods if pod.lease is not None})
    waits = one.state in ("pending", "partial") and one.reason is not None
    why = one.reason.code if waits and one.reason is not None else one.message
    code = "" if one.exit_code is None else str(one.exit_code)
    words = shlex.join(one.command or [])[:60] or one.name
    values = (
        one.id,
        one.user,
        one.project,
        output.state(one),
        why,
        f"{placed}/{len(one.pods)}",
        ", ".join(nodes),
        code,
        words,
    )
    return dict(zip(_COLUMNS, values, strict=True))
