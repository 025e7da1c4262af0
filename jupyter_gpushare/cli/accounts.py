"""`usage`, `audit`: what was used, by whom, and what administrators and the scheduler did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.finding import ask, scheduler_options
from jupyter_gpushare.cli.tables import csv_text, table
from jupyter_gpushare.core.errors import InvalidInput
from jupyter_gpushare.transports import HttpTransport

__all__ = ["audit", "usage"]

WHO: Final = {"project": ("project",), "person": ("project", "user"), "notebook": ("project", "user", "notebook")}
KINDS: Final = ("held", "used", "idle", "borrowed", "lent")


@click.command()
@scheduler_options
@click.option("--by", type=click.Choice(list(WHO)), default="project", show_default=True, help="What the hours are added up for.")
@click.option("--since", help="From when: a time, or how long ago. Default: 7d.")
@click.option("--until", help="Until when. Default: now.")
@click.option("--columns", metavar="A,B", help="Only these columns, in this order.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV: a head, then a line per row.")
@click.option("--json", "as_json", is_flag=True, help="JSON.")
@click.option("--plot", "picture", type=click.Path(dir_okay=False), help="Draw it into this file (PNG, SVG, PDF).")
def usage(
    transport: HttpTransport, by: str, since: str | None, until: str | None, columns: str | None, as_csv: bool, as_json: bool, picture: str | None
) -> int:  # fmt: skip
    """GPU-hours held, used, idle, borrowed and lent, per project, person or notebook."""
    said = ask(transport, lambda client: client.usage(by=by, since=since, until=until))
    if picture:
        from jupyter_gpushare.cli.plot import draw_usage

        draw_usage(said, by, Path(picture))
    if as_json:
        click.echo(json.dumps(m.to_json(said), indent=2))
        return 0
    rows = [m.to_json(row) for row in said.usage]
    _show(rows, columns or ",".join((*WHO[by], *KINDS)), as_csv, f"No GPU was held from {said.since} to {said.until}.")
    return 0


@click.command()
@scheduler_options
@click.option("--since", help="From when: a time, or how long ago. Default: 7d.")
@click.option("--until", help="Until when. Default: now.")
@click.option("--action", help="Only this action: evict, end, cordon, policy, create token, …")
@click.option("--columns", metavar="A,B", help="Only these columns, in this order.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV: a head, then a line per row.")
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def audit(
    transport: HttpTransport, since: str | None, until: str | None, action: str | None, columns: str | None, as_csv: bool, as_json: bool
) -> int:  # fmt: skip
    """What administrators did, and who was evicted, why and for whom. For admins."""
    said = ask(transport, lambda client: client.audit(since=since, until=until, action=action))
    if as_json:
        click.echo(json.dumps(m.to_json(said), indent=2))
        return 0
    rows = [m.to_json(row) for row in said.audit]
    _show(rows, columns or "time,actor,action,object,detail", as_csv, "Nothing of this is written down in that time.", m.AuditRow)
    return 0


def _show(rows: list[dict[str, Any]], columns: str, as_csv: bool, nothing: str, kind: type[Any] = m.UsageRow) -> None:
    wanted = [column.strip() for column in columns.split(",")]
    known = kind.__struct_fields__
    if unknown := [column for column in wanted if column not in known]:
        raise InvalidInput(f"there is no column {unknown[0]!r}; there are: {', '.join(known)}", field="columns")
    cells = [[_cell(row[column]) for column in wanted] for row in rows]
    if as_csv:
        click.echo(csv_text(wanted, cells), nl=False)
    else:
        click.echo(table("", wanted, cells) if cells else nothing)


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
