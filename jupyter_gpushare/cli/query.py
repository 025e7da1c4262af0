"""`status`, `queue`, `waiting`, `nodes`, `pools`, `projects`, `whoami`: the scheduler's tables."""

from __future__ import annotations

import json
import operator

import click
from msgspec import Struct

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.discovery import ask, scheduler_options
from jupyter_gpushare.cli.gpu_table import show_gpus
from jupyter_gpushare.cli.output_formats import OutputFormat, cell, output_options
from jupyter_gpushare.cli.tables import amount
from jupyter_gpushare.client import HttpTransport, SchedulerClient
from jupyter_gpushare.core.model.reason import counted
from jupyter_gpushare.routes import API_ROOT

__all__ = ["nodes", "pools", "projects", "queue", "status", "waiting", "whoami"]

WORKLOAD = ("id", "name", "user", "project", "state", "gpu", "node", "position", "reason")
EMPTY = {
    "queues": "No queues.",
    "nodes": "No nodes.",
    "pools": "No node pools.",
    "projects": "No projects.",
    "waiting": "No pending workloads.",
}


def _show_table(
    transport: HttpTransport, name: str, row: type[Struct], output: OutputFormat
) -> int:
    """Prints one of the scheduler's tables."""
    if output.as_csv:
        click.echo(_fetch_csv(transport, name, output.columns), nl=False)
        return 0
    columns = m.columns_of(row)
    default = [column.name for column in columns.values() if column.cli]
    output.chosen(columns, default)  # refuse an unknown column before asking the scheduler
    body = m.to_json(ask(transport, operator.methodcaller(name)))
    return output.show(
        body[name],
        list(columns),
        default=default,
        document=body,
        key=name,
        empty=EMPTY[name],
        cells=lambda value, column: cell(value, columns[column].null),
    )


def _fetch_csv(transport: HttpTransport, name: str, columns: str | None) -> str:
    """The CSV as the service writes it."""

    async def fetch(_client: SchedulerClient) -> str:
        query = {"format": "csv", **({"columns": columns} if columns else {})}
        status, _form, body = await transport.call("GET", f"{API_ROOT}/{name}", query, None)
        if status != 200:
            raise m.error_from(status, body)
        return body.decode()

    return ask(transport, fetch)


@click.command()
@scheduler_options
@output_options(*m.columns_of(m.QueueRow))
def queue(transport: HttpTransport, output: OutputFormat) -> int:
    """Quota, limit, fair share and allocation of the queues: GPUs, cores and MiB."""
    return _show_table(transport, "queues", m.QueueRow, output)


@click.command()
@scheduler_options
@output_options(*m.columns_of(m.NodeRow))
@click.option(
    "--gpus",
    is_flag=True,
    help="One row per GPU: memory, memory of other processes, utilization, health.",
)
def nodes(transport: HttpTransport, output: OutputFormat, gpus: bool) -> int:
    """The nodes, their conditions and their GPUs."""
    if gpus:
        return show_gpus(ask(transport, operator.methodcaller("nodes")).nodes, output)
    return _show_table(transport, "nodes", m.NodeRow, output)


@click.command()
@scheduler_options
@output_options(*m.columns_of(m.PoolRow))
def pools(transport: HttpTransport, output: OutputFormat) -> int:
    """The node pools."""
    return _show_table(transport, "pools", m.PoolRow, output)


@click.command()
@scheduler_options
@output_options(*m.columns_of(m.ProjectRow))
def projects(transport: HttpTransport, output: OutputFormat) -> int:
    """The projects that you may see, with their quotas and allocations."""
    return _show_table(transport, "projects", m.ProjectRow, output)


@click.command()
@scheduler_options
@output_options(*m.columns_of(m.WaitingRow))
def waiting(transport: HttpTransport, output: OutputFormat) -> int:
    """The queue of pending workloads. Names and users are shown where you may see them."""
    return _show_table(transport, "waiting", m.WaitingRow, output)


@click.command()
@scheduler_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def whoami(transport: HttpTransport, as_json: bool) -> int:
    """How the scheduler authenticates you, and what you may do."""
    who = ask(transport, lambda client: client.whoami())
    if as_json:
        click.echo(json.dumps(m.to_json(who), indent=2))
        return 0
    admin = ", admin" if who.admin and who.scope != "admin" else ""
    click.echo(f"{who.user} ({who.scope}{admin}), authenticated by {who.source}")
    users = ["every user" if user == "*" else user for user in who.users]
    for name, values in (("groups", who.groups), ("projects", who.projects), ("acts for", users)):
        if values:
            click.echo(f"{name}: {', '.join(values)}")
    return 0


@click.command()
@scheduler_options
@output_options(*WORKLOAD)
def status(transport: HttpTransport, output: OutputFormat) -> int:
    """The scheduler, its policy, your projects, and the workloads that you may see."""
    output.chosen(WORKLOAD, WORKLOAD)
    service, listed = ask(transport, _status_and_workloads)
    if not output.as_json and not output.as_csv:
        rows = ask(transport, operator.methodcaller("nodes")).nodes
        click.echo("\n".join(_service_lines(service) + [_node_line(node) for node in rows]) + "\n")
    document = {**m.to_json(service), "workloads": m.to_json(listed.workloads)}
    return output.show(
        [_workload_row(workload, output) for workload in listed.workloads],
        WORKLOAD,
        document=document,
        key="workloads",
        empty="No workloads.",
    )


async def _status_and_workloads(client: SchedulerClient) -> tuple[m.ServiceStatus, m.Workloads]:
    return await client.status(), await client.workloads()


def _workload_row(workload: m.WorkloadView, output: OutputFormat) -> dict[str, str]:
    leases = [pod.lease for pod in workload.pods if pod.lease is not None]
    position = workload.queue_position
    return {
        "id": workload.id,
        "name": workload.name,
        "user": workload.user,
        "project": workload.project,
        "state": output.state(workload),
        "gpu": _share_text(workload.request),
        "node": ", ".join(sorted({lease.node for lease in leases})),
        "position": "" if position is None else str(position),
        "reason": workload.reason.code if workload.reason else "",
    }


def _share_text(share: m.Share) -> str:
    if share.gpu is None and share.gpu_memory_mib:
        return f"{share.gpu_memory_mib} MiB"
    return amount(share.gpu or 0)


def _service_lines(service: m.ServiceStatus) -> list[str]:
    admin = " (admin)" if service.admin else ""
    projects = ", ".join(service.projects) or "none"
    lines = [
        f"scheduler {service.version}, policy {service.policy_file or 'built in'}",
        f"user {service.user}{admin}; projects: {projects}",
        f"agents: {', '.join(service.agents) or 'none'}",
    ]
    if service.time_zones:
        lines.append(f"time zones: {service.time_zones}")
    lines += _kubernetes_lines(service.kubernetes)
    lines += [f"policy changed {service.policy_changed}: {line}" for line in service.policy_changes]
    return lines + [f"policy problem: {problem}" for problem in service.policy_problems]


def _kubernetes_lines(known: m.KubernetesStatus | None) -> list[str]:
    if known is None:
        return []
    lines = [f"Kubernetes: {counted(known.nodes, 'managed node')}"]
    if known.unreachable_since:
        lines[0] += f"; the API server has not responded since {known.unreachable_since}"
    lines += [f"Kubernetes problem: {problem}" for problem in known.problems]
    for node, kernels in known.undrained.items():
        lines.append(f"node {node} was taken out without a drain; still there: {_listed(kernels)}")
    return lines


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _node_line(node: m.NodeRow) -> str:
    """The capability tiers of a node, and why others are missing."""
    missing = [f"not {tier} ({why.partition(';')[0]})" for tier, why in node.tier_problems.items()]
    tiers = ", ".join([*node.tiers, *missing])
    return (
        f"node {node.name}: can {tiers}" if tiers else f"node {node.name}: self-test not finished"
    )
