"""`people`, `limit`, `next-turn`, `release`: the people of projects, and what managers do."""

from __future__ import annotations

import click
from msgspec import UNSET

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.completion_values import name_of
from jupyter_gpushare.cli.discovery import ask, scheduler_options
from jupyter_gpushare.cli.output_formats import OutputFormat, output_options
from jupyter_gpushare.transports import HttpTransport

__all__ = ["limit", "next_turn", "people", "release"]

COLUMNS = tuple(m.columns_of(m.PersonRow))
SHOWN = tuple(name for name, info in m.columns_of(m.PersonRow).items() if info.cli)


@click.command()
@scheduler_options
@click.option("--project", help="Only this project.", shell_complete=name_of("project"))
@output_options(*COLUMNS)
def people(transport: HttpTransport, project: str | None, output: OutputFormat) -> int:
    """You, and the people of projects that you manage: state, turns and GPU minutes today."""
    found = ask(transport, lambda client: client.people())
    rows = [row for row in found.people if project in (None, row.project)]
    return output.show(
        [m.to_json(row) for row in rows],
        COLUMNS,
        default=SHOWN,
        document=m.to_json(m.People(people=rows)),
        key="people",
        empty="No people in projects with a members_policy or managers.",
    )


@click.command()
@click.argument("project", shell_complete=name_of("project"))
@click.argument("user")
@scheduler_options
@click.option("--gpu", type=float, help="GPUs that the person may hold.")
@click.option("--notebooks", type=int, help="Notebooks that the person may have.")
@click.option("--pending", type=int, help="Requests of the person that may wait.")
@click.option("--reset", is_flag=True, help="Limits that are not stated are those of the policy.")
def limit(
    project: str,
    user: str,
    transport: HttpTransport,
    gpu: float | None,
    notebooks: int | None,
    pending: int | None,
    reset: bool,
) -> int:
    """Limit USER in PROJECT, within the policy's limits. For managers of the project. Running
    notebooks keep their GPUs.
    """
    absent = None if reset else UNSET
    body = m.MemberLimit(
        project=project,
        user=user,
        gpu=absent if gpu is None else gpu,
        notebooks=absent if notebooks is None else notebooks,
        pending=absent if pending is None else pending,
    )
    found = ask(transport, lambda client: client.limit_person(body)).people
    for row in found:
        bounds = (row.gpu_limit, row.notebook_limit, row.pending_limit)
        words = ("unlimited" if one is None else f"{one:g}" for one in bounds)
        click.echo("{} in {}: {} GPUs, {} notebooks, {} waiting".format(user, project, *words))
    return 0


@click.command()
@click.argument("workload", shell_complete=name_of("workload"))
@scheduler_options
def next_turn(workload: str, transport: HttpTransport) -> int:
    """Put the pending WORKLOAD first in its project, until it starts. For managers."""
    view = ask(transport, lambda client: client.next_turn(workload))
    click.echo(f"Workload {view.id} of {view.user} is next in project {view.project}.")
    return 0


@click.command()
@click.argument("workload", shell_complete=name_of("workload"))
@scheduler_options
def release(workload: str, transport: HttpTransport) -> int:
    """Release the GPU of WORKLOAD, or cancel its request: yours, or of a project that you manage.
    The notebook keeps running without a GPU.
    """
    ended = ask(transport, lambda client: client.end(workload))
    click.echo(f"Workload {ended.id} has released its GPU.")
    return 0
