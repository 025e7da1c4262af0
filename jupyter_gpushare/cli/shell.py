"""`shell`: an interactive shell with a share."""

from __future__ import annotations

import os

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.transports import HttpTransport

from .attach import attached
from .command_request import command_request
from .completion_values import name_of, names_of
from .discovery import ask, scheduler_options

__all__ = ["shell"]


@click.command()
@scheduler_options
@click.option("--project", shell_complete=name_of("project"), help="Default: your first project.")
@click.option("--gpu", help="GPUs: 0.5, 1, 8. Without it (and without --gpu-memory): none.")
@click.option("--gpu-memory", help="GPU memory instead of --gpu: 20GiB.")
@click.option("--cpu", default="0", help="Cores.")
@click.option("--memory", default="0", help="Memory: 16GiB.")
@click.option(
    "--priority",
    default="interactive",
    shell_complete=name_of("priority"),
    help="Priority class, or a number. Default: interactive.",
)
@click.option(
    "--pool",
    "pools",
    shell_complete=names_of("pool"),
    help="Node pools in order of preference: a100,default.",
)
@click.option("--name", help="Name in lists. Default: shell.")
@click.option("--chdir", help="Working directory. Default: this one.")
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for the shell; without a value: from your environment.",
)
@click.option(
    "--queue-anyway",
    is_flag=True,
    help="Queue the workload even if it can never start on the current nodes and limits.",
)
def shell(
    transport: HttpTransport,
    project: str | None,
    gpu: str | None,
    gpu_memory: str | None,
    cpu: str,
    memory: str,
    priority: str,
    pools: str | None,
    name: str | None,
    chdir: str | None,
    variables: tuple[str, ...],
    queue_anyway: bool,
) -> int:
    """Open a shell with GPUs on this machine: jupyter gpushare shell --project vision --gpu 0.5

    Waits until the GPUs are free; Ctrl-C stops the wait. The share is given back when the shell
    ends.
    """
    request = command_request(
        [os.environ.get("SHELL", "/bin/sh")],
        kind="shell",
        pod=m.PodRequest(gpu=gpu, gpu_memory=gpu_memory, cpu=cpu, memory=memory),
        name=name or "shell",
        project=project,
        priority=priority,
        pools=pools,
        chdir=chdir,
        variables=("TERM", *variables) if "TERM" in os.environ else variables,
        queue_anyway=queue_anyway,
    )
    return ask(transport, lambda client: attached(client, request))
