"""`jupyter gpushare fairshare FILE…`: divides resources among queues."""

from __future__ import annotations

import json
from typing import Any

import click

from jupyter_gpushare.cli import BAD_INPUT, print_error
from jupyter_gpushare.cli.tables import amount, table

__all__ = ["fairshare"]


@click.command()
@click.argument("files", type=click.Path(), nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "table"]),
    default="json",
    show_default=True,
    help="Output format.",
)
def fairshare(files: tuple[str, ...], form: str) -> int:
    """Divide the resources of each FILE among its queues. JSON: one object per file and line,
    in the same order.
    """
    from jupyter_gpushare.scheduler.config.diagnostics import error_object, name_in
    from jupyter_gpushare.scheduler.config.documents import FileErrors
    from jupyter_gpushare.scheduler.simulation.fairshare_file import fair_shares

    status = 0
    for file in files:
        try:
            result = fair_shares(file)
        except FileErrors as error:
            status = BAD_INPUT
            print_error(error.message, error.where)
            result = error_object(name_in(file), error)
        click.echo(json.dumps(result) if form == "json" else _table(file, result))
    return status


def _table(file: str, result: dict[str, Any]) -> str:
    if "error" in result:
        return f"{file}: {result['error']['message']}"
    rows = [
        [queue, *(amount(shares[r]) for r in ("gpu", "cpu", "memory"))]
        for queue, shares in result["fair_share"].items()
    ]
    rows.append(
        ["(unallocated)", *(amount(result["unallocated"][r]) for r in ("gpu", "cpu", "memory"))]
    )
    return table(result.get("name") or file, ["queue", "GPUs", "cores", "MiB"], rows)
