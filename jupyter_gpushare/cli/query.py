"""`jupyter gpushare status|queue|nodes|pools|projects|why|what-if`: what the scheduler knows, as this person may see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from jupyter_gpushare.cli.connect import Where, call, reaches_scheduler
from jupyter_gpushare.cli.tables import amount, table
from jupyter_gpushare.core.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from jupyter_gpushare import messages as m
    from jupyter_gpushare.client import SchedulerClient

__all__ = ["choose", "csv_text", "nodes", "pools", "print_rows", "projects", "queue", "status", "table_options", "what_if", "why"]

Row = Mapping[str, Any]

UNLIMITED: Final = ("quota", "limit", "gpu_quota", "gpu_limit")
"""Columns in which nothing means no end."""


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--json`, `--csv` and `--columns` as `form` and `columns`."""
    command = click.option("--columns", metavar="A,B", help="Only these columns, in this order.")(command)
    command = click.option("--csv", "form", flag_value="csv", help="CSV with a header line.")(command)
    return click.option("--json", "form", flag_value="json", help="JSON, with everything.")(command)


# -- rows ---------------------------------------------------------------------------------------------------------------------------


def choose(rows: Sequence[Row], known: Sequence[str], columns: str | None) -> list[dict[str, Any]]:
    """The rows with these columns only. Raises InvalidInput for one that there is not."""
    names = [name.strip() for name in columns.split(",")] if columns else list(known)
    for name in names:
        if name not in known:
            raise InvalidInput(f"there is no column {name!r}; there are: {', '.join(known)}", field="columns")
    return [{name: row[name] for name in names} for row in rows]


def csv_text(rows: Sequence[Row], head: Sequence[str]) -> str:
    """Rows as CSV."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_cell(name, row[name]) for name in head] for row in rows)
    return text.getvalue()


def print_rows(form: str | None, key: str, rows: Sequence[Row], known: Sequence[str], columns: str | None, shown: Sequence[str]) -> int:
    """Prints rows in this form. `known` are all columns; people see those `shown` unless they choose."""
    if form == "json":
        click.echo(json.dumps({key: choose(rows, known, columns) if columns else rows}, indent=1))
        return 0
    plain = [name for name in known if not _is_nested(rows, name)]
    if form == "csv":
        chosen = choose(rows, plain, columns)
        click.echo(csv_text(chosen, _names(plain, columns)), nl=False)
        return 0
    chosen = choose(rows, plain, columns or ",".join(shown))
    head = _names(plain, columns or ",".join(shown))
    click.echo(table("", head, [[_cell(name, row[name]) for name in head] for row in chosen]) if rows else "none", nl=not rows)
    return 0


def _names(known: Sequence[str], columns: str | None) -> list[str]:
    return [name.strip() for name in columns.split(",")] if columns else list(known)


def _is_nested(rows: Sequence[Row], name: str) -> bool:
    return any(isinstance(row[name], dict) or (isinstance(row[name], list) and any(isinstance(v, dict) for v in row[name])) for row in rows)


def _cell(name: str, value: object) -> str:
    if value is None:
        return "unlimited" if name in UNLIMITED else "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return amount(value)
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _fields(kind: Any) -> list[str]:
    return list(kind.__struct_fields__)


# -- tables of the scheduler --------------------------------------------------------------------------------------------------------


@click.command()
@reaches_scheduler
@table_options
def status(where: Where, form: str | None, columns: str | None) -> int:
    """What the scheduler says about itself and about you."""
    from jupyter_gpushare import messages as m

    body = m.to_json(call(where, lambda client: client.status()))
    known = _fields(m.ServiceStatus)
    if form == "json":
        click.echo(json.dumps(choose([body], known, columns)[0], indent=1))
        return 0
    if form == "csv":
        return print_rows("csv", "status", [body], known, columns, known)
    for name, value in choose([body], known, columns)[0].items():
        lines = value if name == "policy_problems" else [_cell(name, value)]
        for line in lines or ["-"]:
            click.echo(f"{name.replace('_', ' '):<17} {line or '-'}")
    return 0


@click.command()
@reaches_scheduler
@table_options
def queue(where: Where, form: str | None, columns: str | None) -> int:
    """Quota, limit, fair share and use of departments and projects, per node pool and resource."""
    from jupyter_gpushare import messages as m

    rows = m.to_json(call(where, lambda client: client.queues()))["queues"]
    known = _fields(m.QueueRow)
    shown = rows if form else [row for row in rows if row["resource"] == "gpu" or (row["quota"], row["limit"]) != (None, None)]
    return print_rows(form, "queues", shown, known, columns, known)


@click.command()
@reaches_scheduler
@table_options
def nodes(where: Where, form: str | None, columns: str | None) -> int:
    """The nodes: whether they take work, and what of their GPUs is given."""
    from jupyter_gpushare import messages as m

    rows = m.to_json(call(where, lambda client: client.nodes()))["nodes"]
    known = [name for name in _fields(m.NodeRow) if form == "json" or name != "devices"]
    return print_rows(form, "nodes", rows, known, columns, [name for name in known if name != "tiers"])


@click.command()
@reaches_scheduler
@table_options
def pools(where: Where, form: str | None, columns: str | None) -> int:
    """The node pools, how they place, and who waits for them."""
    from jupyter_gpushare import messages as m

    rows = m.to_json(call(where, lambda client: client.pools()))["pools"]
    known = _fields(m.PoolRow)
    return print_rows(form, "pools", rows, known, columns, known)


@click.command()
@reaches_scheduler
@table_options
def projects(where: Where, form: str | None, columns: str | None) -> int:
    """The projects that you may see, with their GPUs per node pool."""
    from jupyter_gpushare import messages as m

    rows = m.to_json(call(where, lambda client: client.projects()))["projects"]
    known = _fields(m.ProjectRow)
    return print_rows(form, "projects", rows, known, columns, known)


# -- why, and what if ---------------------------------------------------------------------------------------------------------------


@click.command()
@reaches_scheduler
@click.argument("workload")
@click.option("--json", "form", flag_value="json", help="JSON, with everything.")
def why(where: Where, workload: str, form: str | None) -> int:
    """Why WORKLOAD (its id, or its kernel's) waits: reason, numbers, place in the queue, and what would help."""
    from jupyter_gpushare import messages as m

    found = call(where, lambda client: _workload(client, workload))
    if form == "json":
        click.echo(json.dumps(m.to_json(found), indent=1))
        return 0
    click.echo(f"{found.id} of {found.user} in project {found.project}: {found.state}")
    for pod in found.pods:
        if pod.lease is not None:
            click.echo(f"  {pod.name} on {pod.lease.node}, planned on GPU {' '.join(map(str, pod.lease.planned_gpus))}")
    if found.reason is not None:
        _say_reason(found.reason)
    if found.queue_position is not None:
        click.echo(f"place in the queue: {found.queue_position}")
    return 0


async def _workload(client: SchedulerClient, name: str) -> m.WorkloadView:
    """By its id, else by its kernel's: the latest."""
    try:
        return await client.workload(name)
    except NotFound:
        of_kernel = (await client.workloads(kernel_id=name)).workloads
        if not of_kernel:
            raise
        return of_kernel[-1]


def _say_reason(reason: m.ReasonBody) -> None:
    click.echo(f"{reason.code}: {reason.message}")
    if reason.numbers:
        click.echo("  " + ", ".join(f"{name.replace('_', ' ')} {amount(value)}" for name, value in reason.numbers.items()))
    for one in reason.helps:
        click.echo(f"  what would help: {one.message}")


@click.command("what-if")
@reaches_scheduler
@click.option("--project", help="In which project; default: your first one.")
@click.option("--gpu", metavar="G", help="GPUs of each pod: a fraction, or a whole number.")
@click.option("--gpu-memory", metavar="M", help="Instead of --gpu: GPU memory, as 20GiB.")
@click.option("--gpu-limit", metavar="G", help="Burst ceiling in GPUs.")
@click.option("--pool", "pools", metavar="A,B", help="Node pools, tried in this order.")
@click.option("--priority", metavar="C", help="Priority class or number.")
@click.option("--pods", type=click.IntRange(1, 10_000), default=1, show_default=True, help="That many, all or none.")
@click.option("--json", "form", flag_value="json", help="JSON, with everything.")
def what_if(where: Where, form: str | None, **asked: Any) -> int:
    """Would it start now, where, and whom would it displace? Changes nothing."""
    from jupyter_gpushare import messages as m

    if (asked["gpu"] is None) == (asked["gpu_memory"] is None):
        raise InvalidInput("give --gpu G or --gpu-memory M, and not both", field="gpu")
    answer = call(where, lambda client: client.what_if(_request(asked)))
    if form == "json":
        click.echo(json.dumps(m.to_json(answer), indent=1))
    else:
        _say_answer(answer)
    return 0


def _request(asked: Mapping[str, Any]) -> m.WorkloadRequest:
    from jupyter_gpushare import messages as m

    amounts = {name: asked[name] for name in ("gpu", "gpu_memory", "gpu_limit")}
    return m.WorkloadRequest(
        id="what-if",
        project=asked["project"],
        pods=[m.PodRequest(name=str(i), **amounts) for i in range(asked["pods"])],
        priority_class=asked["priority"],
        node_pools=[name.strip() for name in asked["pools"].split(",")] if asked["pools"] else [],
    )


def _say_answer(answer: m.WhatIfAnswer) -> None:
    place = f" on {answer.node}" if answer.node else ""
    gpu = f", GPU {answer.planned_gpu}" if answer.planned_gpu else ""
    click.echo(f"It would start now{place}{gpu}." if answer.starts_now else "It would not start now.")
    for one in answer.displaces:
        click.echo(f"  displaces {one.workload} of project {one.project} ({one.action}): {one.message}")
    if answer.reason is not None:
        _say_reason(answer.reason)
    for other in answer.alternatives:
        click.echo(f"  instead: {other.message}")
