"""Tables as CSV. Every CSV of this project is written here: by the scheduler, by the Jupyter server
and by the command line.

* Null is `unlimited` in a column where it means that (quotas, limits), and empty elsewhere.
* A list of words is joined with `;`; mappings and deeper lists are JSON.
* Text that a spreadsheet would take for a formula gets a leading apostrophe (OWASP, "CSV
  Injection", https://owasp.org/www-community/attacks/CSV_Injection); numbers stay numbers.
"""

from __future__ import annotations

import csv
import io
import json
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from jupyter_gpushare.core.model.errors import InvalidInput

from .codec import to_json
from .columns import UNLIMITED_TEXT, columns_of, plain_types, row_type

__all__ = ["choose_columns", "rows_as_csv", "table_as_csv", "values_as_csv"]

_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
Row = type[Struct]


def table_as_csv(table: Struct, columns: Sequence[str] | None = None) -> str:
    """The rows of an answer such as `Nodes`, as `rows_as_csv` writes them."""
    name, row = row_type(type(table))
    return rows_as_csv(getattr(table, name), row, columns)


def rows_as_csv(rows: Iterable[Struct], row: Row, columns: Sequence[str] | None = None) -> str:
    """A header and a line per row.

    `columns` are names in the wanted order; `reason.code` is a field of a field, and
    `pods.lease.node` that of every pod. None: every column that fits into a cell.

    Raises:
        InvalidInput: there is no such column (field `columns`).
    """
    wanted = choose_columns(row, columns)
    unlimited = [_is_unlimited(row, name) for name in wanted]
    lines = []
    for body in rows:
        values = to_json(body)
        cells = []
        for name, null_is_unlimited in zip(wanted, unlimited, strict=True):
            value = _value(values, name)
            cells.append(UNLIMITED_TEXT if value is None and null_is_unlimited else value)
        lines.append(cells)
    return values_as_csv(wanted, lines)


def values_as_csv(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A header and rows of plain values (text, numbers, null, lists, mappings)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(name) for name in header])
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return text.getvalue()


def choose_columns(row: Row, columns: Sequence[str] | None) -> list[str]:
    """The wanted columns, or the default ones. Raises InvalidInput (field `columns`)."""
    if not columns:
        return list(_default_columns(row))
    for name in columns:
        if not _is_column(row, name):
            known = ", ".join(columns_of(row))
            raise InvalidInput(f"there is no column {name!r}; there are: {known}", field="columns")
    return list(columns)


def _default_columns(row: Row, prefix: str = "") -> Iterator[str]:
    """Fields that fit into a cell; a body in a field gives its own fields with a dot."""
    hints = typing.get_type_hints(row)
    for name, info in columns_of(row).items():
        if info.kind != "nested":
            yield prefix + name
            continue
        for kind in plain_types(hints[name]):
            if hasattr(kind, "__struct_fields__"):
                yield from _default_columns(kind, f"{prefix}{name}.")


def _is_column(row: Row, column: str) -> bool:
    """Whether the rows have such a field; a dot goes into the body that a field holds."""
    owners: list[Any] = [row]
    for part in column.split("."):
        owner = next(
            (kind for kind in owners if part in getattr(kind, "__struct_fields__", ())), None
        )
        if owner is None:
            return False
        owners = []
        for kind in plain_types(typing.get_type_hints(owner)[part]):
            owners += typing.get_args(kind) or (kind,)
    return True


def _is_unlimited(row: Row, column: str) -> bool:
    info = columns_of(row).get(column)
    return info is not None and info.null == UNLIMITED_TEXT


def _value(found: Any, column: str) -> Any:
    """Of a list: the values of its entries, without those that lack the field."""
    if isinstance(found, list):
        return [value for one in found if (value := _value(one, column)) is not None]
    head, _, rest = column.partition(".")
    value = found.get(head) if isinstance(found, dict) else None
    return _value(value, rest) if rest else value


def _cell(value: object) -> str:
    match value:
        case None:
            return ""
        case float():
            return str(int(value)) if value.is_integer() else str(value)
        case bool() | int():
            return str(value)
        case list() if all(isinstance(one, str) for one in value):
            return _text(";".join(value))
        case list() | dict():
            return json.dumps(value, separators=(",", ":"))
        case _:
            return _text(str(value))


def _text(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
