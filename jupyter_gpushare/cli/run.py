"""`run`, `logs`, `cancel`, `list`: batch work on the agents' machines, under the same quotas as
notebooks.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.completion_values import name_of, names_of
from jupyter_gpushare.cli.discovery import ask, scheduler_options
from jupyter_gpushare.cli.output_formats import OutputFormat, output_options
from jupyter_gpushare.client import SchedulerClient
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.transports import HttpTransport

__all__ = ["cancel", "list_", "logs", "run"]

LOOK_S: Final = 0.4
PASSED_ON: Final = (
    "PATH",
    "LANG",
    "LC_ALL",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "TZ",
)
"""Variables of the caller that a command gets without being asked for: what decides which programs
it finds. Never everything: the rest may hold secrets, and is stored.
"""
INTERRUPTED: Final = 130


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@scheduler_options
@click.option("--project", shell_complete=name_of("project"), help="Default: your first project.")
@click.option(
    "--gpu", help="GPUs of each pod: 0.5, 1, 8. Without it (and without --gpu-memory): none."
)
@click.option("--gpu-memory", help="GPU memory of each pod in place of --gpu: 20GiB.")
@click.option("--cpu", default="0", help="Cores of each pod.")
@click.option("--memory", default="0", help="Memory of each pod: 16GiB.")
@click.option(
    "--pods", type=click.IntRange(1, 10_000), default=1, help="How many processes run the command."
)
@click.option(
    "--min-pods",
    type=click.IntRange(1, 10_000),
    help="With so many it starts; the others follow when there is room. Default: all.",
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
@click.option("--name", help="What it is called in lists. Default: the command.")
@click.option("--chdir", help="Working directory on the node. Default: this one.")
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for the command; without a value: yours.",
)
@click.option("--detach", is_flag=True, help="Print its id and do not wait.")
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
    detach: bool,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND on a machine with the GPUs that it asks for: jupyter gpushare run --project
    vision --gpu 1 -- python train.py

    Its output is shown here, its exit status is ours. Interrupting cancels it.
    """
    if min_pods is not None and min_pods > pods:
        raise InvalidInput(
            f"--min-pods is 1 to {pods} (the pods), got {min_pods}", field="min-pods"
        )
    request = m.WorkloadRequest(
        id=f"run-{secrets.token_hex(4)}",
        name=name or " ".join(command)[:80],
        project=project,
        pods=[
            m.PodRequest(name=str(i), gpu=gpu, gpu_memory=gpu_memory, cpu=cpu, memory=memory)
            for i in range(pods)
        ],
        priority_class=int(priority) if priority.isdecimal() else priority,
        min_pods=min_pods,
        node_pools=[pool.strip() for pool in pools.split(",")] if pools else [],
        command=m.CommandRequest(
            argv=list(command),
            env=_environment(variables),
            cwd=str(Path(chdir or Path.cwd()).absolute()),
        ),
    )
    return ask(transport, lambda client: _submitted(client, request, detach))


async def _submitted(client: SchedulerClient, request: m.WorkloadRequest, detach: bool) -> int:
    made = await client.submit(request)
    if detach:
        click.echo(request.id)
        return 0
    click.echo(f"{request.id} submitted by {made.user}", err=True)
    following = asyncio.ensure_future(_follow(client, request.id, tell=True))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, following.cancel)
    try:
        return await following
    except asyncio.CancelledError:
        await client.end(request.id)
        click.echo(f"{request.id} cancelled", err=True)
        return INTERRUPTED


async def _follow(
    client: SchedulerClient, workload: str, *, tell: bool, pod: str | None = None
) -> int:
    """Shows what it prints until it is over; gives its exit status. With `tell` also why it waits
    and where it runs, on stderr.
    """
    cursor, told = 0, ""
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
        if tell and (now := _situation(seen)) not in ("", told):
            told = now
            click.echo(told, err=True)
        if printed.is_over:
            lines.finish()
            return _status(seen, tell)
        if not printed.lines:
            await asyncio.sleep(LOOK_S)


class _PodOutput:
    """Text of several pods, line by line under their names; of a single one as it comes."""

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


def _situation(seen: m.WorkloadView) -> str:
    """Where it runs, or why it waits."""
    nodes = sorted({pod.lease.node for pod in seen.pods if pod.lease is not None})
    if nodes:
        waiting = sum(pod.state == "pending" for pod in seen.pods)
        return f"{seen.id} runs on {', '.join(nodes)}" + (
            f"; {waiting} of {len(seen.pods)} pods wait" if waiting else ""
        )
    return f"{seen.id} waits: {seen.reason.message}" if seen.reason is not None else ""


def _status(seen: m.WorkloadView, tell: bool) -> int:
    if tell and (seen.exit_code != 0 or len(seen.pods) > 1):
        click.echo(f"{seen.id}: {seen.message}", err=True)
    return 1 if seen.exit_code is None else seen.exit_code


def _environment(variables: Sequence[str]) -> dict[str, str]:
    found = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    for variable in variables:
        name, given, value = variable.partition("=")
        if not given and name not in os.environ:
            raise InvalidInput(f"variable {name!r} has no value here", field="env")
        found[name] = value if given else os.environ[name]
    return found


@click.command()
@click.argument("workload", shell_complete=name_of("batch"))
@scheduler_options
@click.option("--pod", help="Only this pod's.")
@click.option(
    "-f", "--follow", is_flag=True, help="Go on until it is over; its exit status is ours."
)
def logs(workload: str, transport: HttpTransport, pod: str | None, follow: bool) -> int:
    """What the pods of WORKLOAD have printed so far."""

    async def show(client: SchedulerClient) -> int:
        if follow:
            return await _follow(client, workload, tell=False, pod=pod)
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
    """End WORKLOAD: its processes are asked to stop, and killed a few seconds later."""
    ask(transport, lambda client: client.end(workload))
    click.echo(f"{workload} cancelled")
    return 0


_COLUMNS: Final = ("id", "user", "project", "state", "reason", "pods", "node", "exit", "command")


@click.command("list")
@scheduler_options
@click.option("-a", "--all", "everything", is_flag=True, help="Also what is over, the last 50.")
@output_options(*_COLUMNS)
def list_(transport: HttpTransport, everything: bool, output: OutputFormat) -> int:
    """Batch work that you may see: what runs, what waits."""

    async def look(client: SchedulerClient) -> list[m.WorkloadView]:
        living = [one for one in (await client.workloads()).workloads if one.kernel_id is None]
        return living + ((await client.workloads(ended=True)).workloads if everything else [])

    output.chosen(_COLUMNS, _COLUMNS)
    found = ask(transport, look)
    return output.show(
        [_row(one) for one in found],
        _COLUMNS,
        document=[m.to_json(one) for one in found],
        empty="There is no batch work.",
    )


def _row(one: m.WorkloadView) -> dict[str, str]:
    placed = sum(pod.lease is not None for pod in one.pods)
    nodes = sorted({pod.lease.node for pod in one.pods if pod.lease is not None})
    why = one.reason.code if one.state in ("pending", "partial") and one.reason is not None else ""
    code = "" if one.exit_code is None else str(one.exit_code)
    words = shlex.join(one.command or [])[:60] or one.name
    values = (
        one.id,
        one.user,
        one.project,
        one.state,
        why,
        f"{placed}/{len(one.pods)}",
        ", ".join(nodes),
        code,
        words,
    )
    return dict(zip(_COLUMNS, values, strict=True))
