"""The scheduler's tables as CSV: one line per row, with the columns that were asked for. Pure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from ..core.errors import InvalidInput
from ..messages import Nodes, Pools, Projects, Queues, to_json

__all__ = ["as_csv"]


def as_csv(table: Queues | Nodes | Pools | Projects, columns: Sequence[str] | None) -> str:
    """Header and rows. A list of words is joined with `;`, anything deeper is JSON, null is empty.

    Raises:
        InvalidInput: there is no such column.
    """
    (name, kind), *_ = [(field, annotation) for field, annotation in _fields(type(table))]
    known = list(kind.__struct_fields__)
    wanted = list(columns) if columns else known
    for column in wanted:
        if column not in known:
            raise InvalidInput(f"there is no column {column!r}; there are {', '.join(known)}", field="columns")
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(wanted)
    writer.writerows([_cell(row[column]) for column in wanted] for row in to_json(table)[name])
    return out.getvalue()


def _fields(kind: type[Any]) -> list[tuple[str, type[Any]]]:
    """The one list in such an answer: its name, and the class of its rows."""
    import typing

    hints = typing.get_type_hints(kind)
    return [(field, typing.get_args(hints[field])[0]) for field in kind.__struct_fields__]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ";".join(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value, separators=(",", ":"))
    return f"{value:g}" if isinstance(value, float) else str(value)
