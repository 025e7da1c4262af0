"""`why`, `what-if`: why a workload is pending, and what would happen to another one."""

from __future__ import annotations

import json
from typing import Any

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.completion_values import name_of, names_of
from jupyter_gpushare.cli.discovery import ask, scheduler_options
from jupyter_gpushare.cli.tables import amount
from jupyter_gpushare.client import HttpTransport, SchedulerClient
from jupyter_gpushare.core.model.code_help import REASONS
from jupyter_gpushare.core.model.errors import InvalidInput, NotFound
from jupyter_gpushare.core.model.reason import ReasonCode
from jupyter_gpushare.kernel.documentation import address_of_code

__all__ = ["what_if", "why"]

WHY_FIELDS = ("id", "state", "reason", "queue_position", "expected_wait", "message")


async def _find(client: SchedulerClient, name: str) -> m.WorkloadView:
    """By the workload's id, else the last workload of a kernel with this id. Raises NotFound."""
    try:
        return await client.workload(name)
    except NotFound:
        found = (await client.workloads(kernel_id=name)).workloads
        found = found or await _named(client, name)
        if not found:
            raise
        return found[-1]


async def _named(client: SchedulerClient, name: str) -> list[m.WorkloadView]:
    """The workload with this name. Raises InvalidInput if several have it."""
    found = [one for one in (await client.workloads()).workloads if one.name == name]
    if len(found) > 1:
        ids = ", ".join(one.id for one in found)
        raise InvalidInput(f"{len(found)} workloads are named {name!r}: {ids}", field="workload")
    return found


@click.command()
@click.argument("workload", shell_complete=name_of("workload"))
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def why(workload: str, transport: HttpTransport, as_json: bool) -> int:
    """Why WORKLOAD (its id, its name, or its kernel's id) is pending: the reason with its numbers,
    the position in the queue, and what would help.
    """
    view = ask(transport, lambda client: _find(client, workload))
    if as_json:
        body = m.to_json(view)
        click.echo(json.dumps({name: body[name] for name in WHY_FIELDS}, indent=2))
        return 0
    if view.reason is None:
        click.echo(_without_reason(view))
        return 0
    position = f" Position in the queue: {view.queue_position}." if view.queue_position else ""
    lines = [f"{view.id} is {m.workload_label(view)}: {view.reason.message}{position}"]
    lines += _expected_wait(view.expected_wait)
    lines += _details(view.reason)
    click.echo("\n".join(lines))
    return 0


def _expected_wait(wait: m.ExpectedWait | None) -> list[str]:
    return [] if wait is None else [f"  {wait.message}"]


def _without_reason(view: m.WorkloadView) -> str:
    nodes = ", ".join(sorted({pod.lease.node for pod in view.pods if pod.lease}))
    if view.state == "ended":
        return f"{view.id} has ended: {view.message}" if view.message else f"{view.id} has ended."
    label = m.workload_label(view)
    return f"{view.id} is {label} on {nodes}." if nodes else f"{view.id} is waiting for evaluation."


def _details(reason: m.ReasonBody) -> list[str]:
    """The code with its numbers, a line per suggestion (else the general remedy), and where the
    documentation explains the code.
    """
    numbers = [f"{name.replace('_', ' ')} {amount(n)}" for name, n in reason.numbers.items()]
    code = f"  {reason.code}: {', '.join(numbers)}" if numbers else f"  {reason.code}"
    lines = [code]
    for suggestion in reason.helps:
        label = "would help: " if suggestion.change != "wait" else ""
        lines.append(f"  {label}{suggestion.message}")
    if not reason.helps and reason.code in set(ReasonCode):
        lines.append(f"  to do: {REASONS[ReasonCode(reason.code)].remedy}")
    return [*lines, f"  docs: {address_of_code(reason.code)}"]


@click.command(name="what-if")
@scheduler_options
@click.option("--project", shell_complete=name_of("project"), help="Default: your first project.")
@click.option("--gpu", help="GPUs: 0.5, 1, 2.")
@click.option("--gpu-memory", help="GPU memory instead of --gpu: 20GiB.")
@click.option(
    "--pool",
    "pools",
    shell_complete=names_of("pool"),
    help="Node pools in order of preference: a100,default.",
)
@click.option("--priority", shell_complete=name_of("priority"), help="Priority class or number.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def what_if(
    transport: HttpTransport,
    gpu: str | None,
    gpu_memory: str | None,
    pools: str | None,
    priority: str | None,
    as_json: bool,
    **more: Any,
) -> int:
    """Would this request start now, where, and what would it displace? Changes nothing."""
    if (gpu is None) == (gpu_memory is None):
        raise click.UsageError("Give one of --gpu and --gpu-memory.")
    number = int(priority) if priority is not None and priority.isdecimal() else priority
    request = m.WorkloadRequest(
        id="what-if",
        pods=[m.PodRequest(gpu=gpu, gpu_memory=gpu_memory)],
        priority_class=number,
        node_pools=[pool.strip() for pool in pools.split(",")] if pools else [],
        **more,
    )
    answer = ask(transport, lambda client: client.what_if(request))
    text = json.dumps(m.to_json(answer), indent=2) if as_json else "\n".join(_answer_lines(answer))
    click.echo(text)
    return 0


def _answer_lines(answer: m.WhatIfAnswer) -> list[str]:
    lines = _outcome(answer)
    lines += [
        f"  displaces {one.name or one.workload} of {one.project}: {one.message}"
        for one in answer.displaces
    ]
    return lines + [f"  alternative: {other.message}" for other in answer.alternatives]


def _outcome(answer: m.WhatIfAnswer) -> list[str]:
    if answer.starts_now:
        gpu = f" ({answer.planned_gpu})" if answer.planned_gpu else ""
        return [f"It would start now on {answer.node}{gpu}."]
    wait = _expected_wait(answer.expected_wait)
    if answer.reason is not None and answer.refused:
        return [answer.reason.message, *_details(answer.reason)]
    if answer.reason is not None:
        return [f"It would wait: {answer.reason.message}", *wait, *_details(answer.reason)]
    return [f"It would start on {answer.node} as soon as GPUs there are released.", *wait]
