"""`status`, `queue`, `waiting`, `nodes`, `pools`, `projects`, `whoami`, `why`, `what-if`: what the
scheduler knows, as tables, JSON or CSV.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Sequence
from typing import Any, Final

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.completion_values import name_of, names_of
from jupyter_gpushare.cli.discovery import ask, scheduler_options
from jupyter_gpushare.cli.gpu_table import show_gpus
from jupyter_gpushare.cli.output_formats import OutputFormat, form_options
from jupyter_gpushare.cli.tables import amount
from jupyter_gpushare.client import HttpTransport, SchedulerClient, error_from
from jupyter_gpushare.core.model.errors import NotFound
from jupyter_gpushare.routes import API_ROOT

__all__ = ["nodes", "pools", "projects", "queue", "status", "waiting", "what_if", "whoami", "why"]

QUEUE, NODE, POOL, PROJECT, WAITING = (
    row.__struct_fields__ for row in (m.QueueRow, m.NodeRow, m.PoolRow, m.ProjectRow, m.WaitingRow)
)
"""The columns that there are."""
WORKLOAD: Final = ("id", "name", "user", "project", "state", "gpu", "node", "position", "reason")


def _show_table(
    transport: HttpTransport,
    name: str,
    known: Sequence[str],
    usual: Sequence[str],
    form: OutputFormat,
) -> int:
    """One of the scheduler's tables in the wanted form."""
    if form.as_csv:
        click.echo(_csv(transport, name, form.columns), nl=False)
        return 0
    form.chosen(known, usual)  # a mistake is said before anybody is asked
    body = m.to_json(ask(transport, operator.methodcaller(name)))
    nothing = "Nobody waits." if name == "waiting" else f"There are no {name} to see."
    return form.show(body[name], known, usual=usual, whole=body, under=name, nothing=nothing)


def _csv(transport: HttpTransport, name: str, columns: str | None) -> str:
    """As the service writes it: one place decides what a CSV looks like."""

    async def fetch(_client: SchedulerClient) -> str:
        query = {"format": "csv", **({"columns": columns} if columns else {})}
        code, _form, body = await transport.call("GET", f"{API_ROOT}/{name}", query, None)
        if code != 200:
            raise error_from(code, body)
        return body.decode()

    return ask(transport, fetch)


@click.command()
@scheduler_options
@form_options(*QUEUE)
def queue(transport: HttpTransport, form: OutputFormat) -> int:
    """Quota, limit, fair share and use of the queues: GPUs, cores and MiB."""
    shown = (
        "queue",
        "kind",
        "pool",
        "resource",
        "quota",
        "limit",
        "fair_share",
        "allocated",
        "requested",
    )
    return _show_table(transport, "queues", QUEUE, shown, form)


@click.command()
@scheduler_options
@form_options(*NODE)
@click.option(
    "--gpus",
    is_flag=True,
    help="A row per GPU: what it holds, what strangers hold there, how busy and how well it is.",
)
def nodes(transport: HttpTransport, form: OutputFormat, gpus: bool) -> int:
    """The nodes, whether they take work, and their GPUs."""
    if gpus:
        return show_gpus(ask(transport, operator.methodcaller("nodes")).nodes, form)
    shown = ("name", "pool", "status", "gpus", "gpu_allocated", "simulated", "tiers", "reasons")
    return _show_table(transport, "nodes", NODE, shown, form)


@click.command()
@scheduler_options
@form_options(*POOL)
def pools(transport: HttpTransport, form: OutputFormat) -> int:
    """The node pools."""
    shown = (
        "name",
        "status",
        "nodes_ready",
        "nodes",
        "gpus",
        "gpu_allocated",
        "placement_gpu",
        "workloads_per_gpu",
        "pending",
        "reasons",
    )
    return _show_table(transport, "pools", POOL, shown, form)


@click.command()
@scheduler_options
@form_options(*PROJECT)
def projects(transport: HttpTransport, form: OutputFormat) -> int:
    """The projects that you may see, and what they hold."""
    shown = (
        "name",
        "department",
        "pool",
        "member",
        "gpu_quota",
        "gpu_fair_share",
        "gpu_allocated",
        "gpu_requested",
    )
    return _show_table(transport, "projects", PROJECT, shown, form)


@click.command()
@scheduler_options
@form_options(*WAITING)
def waiting(transport: HttpTransport, form: OutputFormat) -> int:
    """Everybody's place in the queue; whose it is as far as you may see it."""
    shown = (
        "position",
        "pool",
        "project",
        "user",
        "name",
        "gpu",
        "gpu_memory_mib",
        "reason",
        "since",
        "expected_seconds",
        "mine",
    )
    return _show_table(transport, "waiting", WAITING, shown, form)


@click.command()
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def whoami(transport: HttpTransport, as_json: bool) -> int:
    """Who you are to the scheduler, and what you may do."""
    who = ask(transport, lambda client: client.whoami())
    if as_json:
        click.echo(json.dumps(m.to_json(who), indent=2))
        return 0
    click.echo(
        f"{who.user} ({who.scope}{', admin' if who.admin and who.scope != 'admin' else ''}), known by {who.source}"
    )
    for name, values in (
        ("groups", who.groups),
        ("projects", who.projects),
        ("asks for", who.users),
    ):
        if values:
            click.echo(
                f"{name}: {', '.join('everybody' if value == '*' else value for value in values)}"
            )
    return 0


@click.command()
@scheduler_options
@form_options(*WORKLOAD)
def status(transport: HttpTransport, form: OutputFormat) -> int:
    """What the scheduler says about itself and you, and the workloads that you may see."""
    form.chosen(WORKLOAD, WORKLOAD)
    said, listed = ask(transport, _status_and_workloads)
    if not form.as_json and not form.as_csv:
        click.echo(
            "\n".join(
                _about(said)
                + [_can(node) for node in ask(transport, operator.methodcaller("nodes")).nodes]
            )
            + "\n"
        )
    rows = [_workload_row(workload) for workload in listed.workloads]
    whole = {**m.to_json(said), "workloads": m.to_json(listed.workloads)}
    return form.show(
        rows, WORKLOAD, whole=whole, under="workloads", nothing="Nothing is asked for."
    )


async def _status_and_workloads(client: SchedulerClient) -> tuple[m.ServiceStatus, m.Workloads]:
    return await client.status(), await client.workloads()


def _workload_row(workload: m.WorkloadView) -> dict[str, str]:
    asked, leases = workload.request, [pod.lease for pod in workload.pods if pod.lease is not None]
    share = (
        f"{asked.gpu_memory_mib} MiB"
        if asked.gpu is None and asked.gpu_memory_mib
        else amount(asked.gpu or 0)
    )
    return {
        "id": workload.id,
        "name": workload.name,
        "user": workload.user,
        "project": workload.project,
        "state": workload.state,
        "gpu": share,
        "node": ", ".join(sorted({lease.node for lease in leases})),
        "position": "" if workload.queue_position is None else str(workload.queue_position),
        "reason": workload.reason.code if workload.reason else "",
    }


def _about(said: m.ServiceStatus) -> list[str]:
    lines = [
        f"scheduler {said.version}, policy {said.policy_file or 'built in'}",
        f"you are {said.user}{' (admin)' if said.admin else ''}; projects: {', '.join(said.projects) or 'none'}",
        f"agents: {', '.join(said.agents) or 'none'}",
    ]
    lines += [f"policy changed {said.policy_changed}: {line}" for line in said.policy_changes]
    return lines + [f"policy problem: {problem}" for problem in said.policy_problems]


def _can(node: m.NodeRow) -> str:
    """What a node can do for its notebooks, and why not the rest."""
    lacks = [f"not {tier} ({why.partition(';')[0]})" for tier, why in node.tier_problems.items()]
    return f"node {node.name}: {', '.join([*node.tiers, *lacks]) or 'nothing is known of it yet'}"


async def _named(client: SchedulerClient, name: str) -> m.WorkloadView:
    """By its id, else by its kernel's: what that kernel asked for last. Raises NotFound."""
    try:
        return await client.workload(name)
    except NotFound:
        asked = (await client.workloads(kernel_id=name)).workloads
        if not asked:
            raise
        return asked[-1]


@click.command()
@click.argument("workload", shell_complete=name_of("workload"))
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def why(workload: str, transport: HttpTransport, as_json: bool) -> int:
    """Why WORKLOAD (its id, or that of its kernel) waits: the reason, its numbers, its place in the
    queue, and what would help.
    """
    seen = ask(transport, lambda client: _named(client, workload))
    if as_json:
        body = m.to_json(seen)
        told = ("id", "state", "reason", "queue_position", "expected_wait", "message")
        click.echo(json.dumps({name: body[name] for name in told}, indent=2))
        return 0
    if seen.reason is None:
        click.echo(_without_reason(seen))
        return 0
    place = f" It is number {seen.queue_position} in its queue." if seen.queue_position else ""
    click.echo(
        "\n".join(
            [
                f"{seen.id} is {seen.state}: {seen.reason.message}{place}",
                *_expected(seen.expected_wait),
            ]
        )
    )
    click.echo(_numbers_and_helps(seen.reason), nl=False)
    return 0


def _expected(wait: m.ExpectedWait | None) -> list[str]:
    return [] if wait is None else [f"  {wait.message}"]


def _without_reason(seen: m.WorkloadView) -> str:
    where = ", ".join(sorted({pod.lease.node for pod in seen.pods if pod.lease}))
    if seen.state == "ended":
        return f"{seen.id} has ended: {seen.message}" if seen.message else f"{seen.id} has ended."
    return f"{seen.id} {f'runs on {where}' if where else 'is being looked at'}."


def _numbers_and_helps(reason: m.ReasonBody) -> str:
    numbers = ", ".join(
        f"{name.replace('_', ' ')} {amount(value)}" for name, value in reason.numbers.items()
    )
    lines = [
        f"  {reason.code}{f': {numbers}' if numbers else ''}",
        *(f"  would help: {help_.message}" for help_ in reason.helps),
    ]
    return "\n".join([*lines, ""])


@click.command(name="what-if")
@scheduler_options
@click.option("--project", shell_complete=name_of("project"), help="Default: your first project.")
@click.option("--gpu", help="GPUs: 0.5, 1, 2.")
@click.option("--gpu-memory", help="GPU memory in place of --gpu: 20GiB.")
@click.option(
    "--pool",
    "pools",
    shell_complete=names_of("pool"),
    help="Node pools in order of preference: a100,default.",
)
@click.option("--priority", shell_complete=name_of("priority"), help="Priority class, or a number.")
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def what_if(
    transport: HttpTransport,
    gpu: str | None,
    gpu_memory: str | None,
    pools: str | None,
    priority: str | None,
    as_json: bool,
    **more: Any,
) -> int:
    """Would it start now, where, and whom would it displace? Changes nothing."""
    if (gpu is None) == (gpu_memory is None):
        raise click.UsageError("Give one of --gpu and --gpu-memory.")
    pod = m.PodRequest(gpu=gpu, gpu_memory=gpu_memory)
    level = int(priority) if priority is not None and priority.isdecimal() else priority
    listed = [pool.strip() for pool in pools.split(",")] if pools else []
    request = m.WorkloadRequest(
        id="what-if", pods=[pod], priority_class=level, node_pools=listed, **more
    )
    answer = ask(transport, lambda client: client.what_if(request))
    click.echo(
        json.dumps(m.to_json(answer), indent=2) if as_json else "\n".join(_what_if_lines(answer))
    )
    return 0


def _what_if_lines(answer: m.WhatIfAnswer) -> list[str]:
    lines = []
    if answer.starts_now:
        lines.append(
            f"It would start now on {answer.node}{f' ({answer.planned_gpu})' if answer.planned_gpu else ''}."
        )
    elif answer.reason is not None:
        lines += [
            f"It would wait: {answer.reason.message}",
            *_expected(answer.expected_wait),
            _numbers_and_helps(answer.reason).rstrip("\n"),
        ]
    else:
        lines += [
            f"It would start on {answer.node} as soon as others have made room.",
            *_expected(answer.expected_wait),
        ]
    lines += [
        f"  displaces {one.workload} of {one.project}: {one.message}" for one in answer.displaces
    ]
    return lines + [f"  instead: {other.message}" for other in answer.alternatives]
