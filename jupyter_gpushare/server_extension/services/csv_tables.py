"""The tables that people look at as CSV: one line per row, with the columns that were asked for.
Pure.
"""

from __future__ import annotations

import csv
import io
import json
import typing
from collections.abc import Sequence
from typing import Any

from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.messages import (
    Evictions,
    KernelHistory,
    Nodes,
    Pools,
    Projects,
    QueueHistory,
    Queues,
    Workloads,
    to_json,
)

__all__ = ["Table", "as_csv"]

Table = Queues | Nodes | Pools | Projects | Workloads | Evictions | QueueHistory | KernelHistory
"""Answers whose first field is a list of rows."""


def as_csv(table: Table, columns: Sequence[str] | None) -> str:
    """Header and rows. `reason.code` is the field of a field, `pods.lease.node` that of every pod.
    A list of words is joined with `;`, anything deeper is JSON, null is empty.

    Raises:
        InvalidInput: there is no such column.
    """
    name = type(table).__struct_fields__[0]
    known = list(typing.get_args(typing.get_type_hints(type(table))[name])[0].__struct_fields__)
    wanted = list(columns) if columns else known
    for column in wanted:
        if not _is_column(type(table), name, column):
            raise InvalidInput(
                f"there is no column {column!r}; there are {', '.join(known)}", field="columns"
            )
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(wanted)
    writer.writerows(
        [_cell(_value(row, column)) for column in wanted] for row in to_json(table)[name]
    )
    return out.getvalue()


def _is_column(table: type[Any], rows: str, column: str) -> bool:
    """Whether the rows have such a field; a dot goes into the body that a field holds."""
    kinds = typing.get_args(typing.get_type_hints(table)[rows])
    for part in column.split("."):
        owners = [kind for kind in kinds if part in getattr(kind, "__struct_fields__", ())]
        if not owners:
            return False
        inner = typing.get_type_hints(owners[0])[part]
        kinds = typing.get_args(inner) or (inner,)
    return True


def _value(found: Any, column: str) -> Any:
    """Through a list it is a list, without those that have no such thing."""
    if isinstance(found, list):
        return [value for one in found if (value := _value(one, column)) is not None]
    head, _, rest = column.partition(".")
    value = found.get(head) if isinstance(found, dict) else None
    return _value(value, rest) if rest else value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ";".join(value)
    if isinstance(value, (list, dict)):
        return json.dumps(value, separators=(",", ":"))
    return f"{value:g}" if isinstance(value, float) else str(value)
