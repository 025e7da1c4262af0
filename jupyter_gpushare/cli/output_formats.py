"""`--json`, `--csv` and `--columns`: how a command prints rows."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.completion_values import some_of
from jupyter_gpushare.cli.tables import amount, table
from jupyter_gpushare.core.model.errors import InvalidInput

__all__ = ["OutputFormat", "cell", "output_options"]

Cell = Callable[[Any, str], str]


def cell(value: object, null: str = "") -> str:
    """One value in a text table. `null` is the text for None; without one it is `-`."""
    match value:
        case None:
            return null or "-"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return amount(value)
        case dict():
            return "; ".join(f"{name}: {text}" for name, text in value.items())
        case list():
            return ", ".join(map(_entry, value))
        case _:
            return str(value)


def _entry(entry: object) -> str:
    if isinstance(entry, str):
        return entry
    uuid = entry.get("uuid") if isinstance(entry, dict) else None
    return uuid if isinstance(uuid, str) else json.dumps(entry)


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The format that the user chose. `columns` is the text of `--columns`, if it was given."""

    as_json: bool
    as_csv: bool
    columns: str | None

    def chosen(self, known: Iterable[str], default: Sequence[str]) -> list[str]:
        """Column names in order. Raises InvalidInput for an unknown one (field `columns`)."""
        if self.columns is None:
            return list(default)
        known = list(known)
        wanted = [column.strip() for column in self.columns.split(",")]
        for column in wanted:
            if column not in known:
                listed = ", ".join(known)
                raise InvalidInput(
                    f"there is no column {column!r}; there are: {listed}", field="columns"
                )
        return wanted

    def state(self, workload: m.WorkloadView) -> str:
        """Its label in a table; its state of the REST API in CSV and JSON."""
        scripted = self.as_csv or self.as_json
        return workload.state if scripted else m.workload_label(workload)

    def show(
        self,
        rows: Sequence[Mapping[str, Any]],
        known: Sequence[str],
        *,
        default: Sequence[str] | None = None,
        empty: str = "",
        note: str = "",
        document: object = None,
        key: str = "",
        cells: Cell = lambda value, _column: cell(value),
    ) -> int:
        """Prints the rows and returns exit status 0.

        Args:
            rows: One mapping from column name to value per row.
            known: All columns.
            default: The columns of a table without `--columns`; None: all.
            empty: The line that replaces an empty table.
            note: A line below the table.
            document: What `--json` prints in place of the rows.
            key: The key of the rows in `document`.
            cells: Formats a value for the table, given its column.
        """
        wanted = self.chosen(known, known if default is None else default)
        if self.as_json:
            click.echo(json.dumps(self._json(rows, wanted, document, key), indent=2))
        elif self.as_csv:
            values = ([row[column] for column in wanted] for row in rows)
            click.echo(m.values_as_csv(wanted, values), nl=False)
        elif rows:
            text = [[cells(row[column], column) for column in wanted] for row in rows]
            click.echo(table("", wanted, text))
            if note:
                click.echo(note)
        else:
            click.echo(empty)
        return 0

    def _json(
        self, rows: Sequence[Mapping[str, Any]], wanted: Sequence[str], document: object, key: str
    ) -> object:
        if self.columns is None:
            return rows if document is None else document
        chosen = [{column: row[column] for column in wanted} for row in rows]
        return {**document, key: chosen} if isinstance(document, Mapping) else chosen


def output_options(*known: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds `--json`, `--csv` and `--columns`; the command receives them as `output`."""

    def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
        @click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")
        @click.option(
            "--columns",
            metavar="A,B",
            shell_complete=some_of(*known),
            help="Print these columns, in this order.",
        )
        @functools.wraps(command)
        def with_output(
            *args: Any, as_json: bool, as_csv: bool, columns: str | None, **more: Any
        ) -> Any:
            if as_json and as_csv:
                raise click.UsageError(
                    "--json and --csv exclude each other", click.get_current_context()
                )
            return command(*args, output=OutputFormat(as_json, as_csv, columns), **more)

        return with_output

    return with_options
