"""The columns of the tables that people read: label, description, and what null stands for.

A table is the list of row bodies in an answer (`Nodes.nodes`, `Queues.queues`). A field of the row
class is a column; `column` adds what the CSV, the command line, the dashboard and the reference
need to know about it, so that a new column is one annotated field.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union

import msgspec

__all__ = ["UNLIMITED_TEXT", "ColumnInfo", "column", "columns_of", "row_type"]

UNLIMITED_TEXT = "unlimited"
Kind = Literal["number", "text", "nested"]


def column(
    label: str, description: str = "", *, null: str = "", cli: bool = True, dashboard: bool = True
) -> msgspec.Meta:
    """Describes a column, for `Annotated[type, column(...)]`.

    Args:
        label: The head of the column in the dashboard.
        description: One sentence for the reference and the OpenAPI document.
        null: What null means to a reader (`unlimited`, `off`); empty: nothing to show.
        cli: Whether the command line shows it unless `--columns` says otherwise.
        dashboard: Whether the dashboard shows it before the user chooses columns.
    """
    extra = {"null": null, "cli": cli, "dashboard": dashboard}
    return msgspec.Meta(title=label, description=description or None, extra=extra)


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """One column of a table. `kind` is `nested` for bodies, lists of bodies and mappings."""

    name: str
    label: str
    description: str
    kind: Kind
    null: str = ""
    cli: bool = True
    dashboard: bool = True


@cache
def columns_of(row: type[msgspec.Struct]) -> Mapping[str, ColumnInfo]:
    """The columns of a row class by name. Its own fields come before inherited ones."""
    hints = typing.get_type_hints(row, include_extras=True)
    inherited = [name for name in row.__struct_fields__ if name not in row.__annotations__]
    return {name: _info(name, hints[name]) for name in [*row.__annotations__, *inherited]}


@cache
def row_type(table: type[msgspec.Struct]) -> tuple[str, type[msgspec.Struct]]:
    """The name of the first field of an answer, which lists the rows, and the class of the rows."""
    name = table.__struct_fields__[0]
    (row,) = typing.get_args(typing.get_type_hints(table)[name])
    return name, row


def _info(name: str, hint: Any) -> ColumnInfo:
    meta = next((one for one in _metadata(hint) if isinstance(one, msgspec.Meta)), msgspec.Meta())
    extra = meta.extra or {}
    return ColumnInfo(
        name=name,
        label=meta.title or name.replace("_", " ").capitalize(),
        description=meta.description or "",
        kind=_kind(hint),
        null=extra.get("null", ""),
        cli=extra.get("cli", True),
        dashboard=extra.get("dashboard", True),
    )


def _metadata(hint: Any) -> tuple[Any, ...]:
    return tuple(hint.__metadata__) if typing.get_origin(hint) is Annotated else ()


def plain_types(hint: Any) -> list[Any]:
    """The types that a value may have, without `Annotated`, unions, and null."""
    if typing.get_origin(hint) is Annotated:
        return plain_types(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (Union, types.UnionType):
        return [one for part in typing.get_args(hint) for one in plain_types(part)]
    return [] if hint is type(None) else [hint]


def _kind(hint: Any) -> Kind:
    found = plain_types(hint)
    if any(_is_nested(kind) for kind in found):
        return "nested"
    return "number" if found and all(kind in (int, float) for kind in found) else "text"


def _is_nested(kind: Any) -> bool:
    if typing.get_origin(kind) is list:
        return any(_is_nested(inner) for inner in plain_types(typing.get_args(kind)[0]))
    return typing.get_origin(kind) is dict or hasattr(kind, "__struct_fields__")
