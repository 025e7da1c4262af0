"""The forms in which a command shows rows: a table for people, JSON or CSV for scripts, and which
columns.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from jupyter_gpushare.cli.completion_values import some_of
from jupyter_gpushare.cli.tables import amount, csv_text, table
from jupyter_gpushare.core.model.errors import InvalidInput

__all__ = ["OutputFormat", "cell", "form_options"]


_BOUNDS = ("quota", "limit")
"""What the names of columns end in where null is no bound."""


def cell(value: object, column: str) -> str:
    """One value for people; a GPU is told by its UUID."""
    if value is None and column.rpartition("_")[2] not in _BOUNDS:
        return "off" if column == "workloads_per_gpu" else "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, (int, float)):
        return amount(value)
    if isinstance(value, dict):
        return "; ".join(f"{name}: {what}" for name, what in value.items())
    if isinstance(value, list):
        return ", ".join(
            one if isinstance(one, str) else one.get("uuid", json.dumps(one)) for one in value
        )
    return str(value)


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """What was asked for. `columns`: as written; None: the usual ones."""

    as_json: bool
    as_csv: bool
    columns: str | None

    def chosen(self, known: Sequence[str], usual: Sequence[str]) -> list[str]:
        """Names of columns, in order. Raises InvalidInput for one that there is not."""
        wanted = (
            [column.strip() for column in self.columns.split(",")]
            if self.columns is not None
            else list(usual)
        )
        if unknown := [column for column in wanted if column not in known]:
            raise InvalidInput(
                f"there is no column {unknown[0]!r}; there are: {', '.join(known)}", field="columns"
            )
        return wanted

    def show(
        self,
        rows: Sequence[Mapping[str, Any]],
        known: Sequence[str],
        *,
        usual: Sequence[str] | None = None,
        nothing: str = "",
        whole: object = None,
        under: str = "",
        cells: Callable[[Any, str], str] = cell,
    ) -> int:
        """Writes them. `whole`: what JSON gives in place of the rows, and `under` which key it has
        them; `nothing`: what people read when there is no row. Gives exit status 0.
        """
        wanted = self.chosen(known, known if usual is None else usual)
        if self.as_json:
            said = rows if whole is None else whole
            if self.columns is not None:
                chosen = [{column: row[column] for column in wanted} for row in rows]
                said = {**whole, under: chosen} if isinstance(whole, Mapping) else chosen
            click.echo(json.dumps(said, indent=2))
            return 0
        written = [[cells(row[column], column) for column in wanted] for row in rows]
        if self.as_csv:
            click.echo(csv_text(wanted, written), nl=False)
        else:
            click.echo(table("", wanted, written) if written else nothing)
        return 0


def form_options(*known: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds `--json`, `--csv` and `--columns` (of these); the command gets its `form` in their
    place.
    """

    def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--json", "as_json", is_flag=True, help="JSON.")
        @click.option("--csv", "as_csv", is_flag=True, help="CSV: a head, then a line per row.")
        @click.option(
            "--columns",
            metavar="A,B",
            shell_complete=some_of(*known),
            help="Only these columns, in this order.",
        )
        @functools.wraps(command)
        def with_form(
            *args: Any, as_json: bool, as_csv: bool, columns: str | None, **more: Any
        ) -> Any:
            if as_json and as_csv:
                raise click.UsageError(
                    "--json and --csv exclude each other", click.get_current_context()
                )
            return command(*args, form=OutputFormat(as_json, as_csv, columns), **more)

        return with_form

    return with_options
