"""How the command line lays out tables: plain text, columns as wide as needed, numbers to the
right.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

__all__ = ["amount", "csv_text", "table"]


def amount(value: float | None) -> str:
    """A number as people write it: no zeros behind the point; None is unlimited."""
    return "unlimited" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A title, a head and rows. The first column is to the left, and so is every column that holds
    something that is no number.
    """
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [
        i > 0 and bool(rows) and all(_is_number(cell) for cell in column[1:])
        for i, column in enumerate(columns)
    ]
    lines = [
        _line(head, widths, right),
        "  ".join("-" * width for width in widths),
        *(_line(row, widths, right) for row in rows),
    ]
    return "\n".join([title, *lines, ""] if title else [*lines, ""])


def csv_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A head and rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([head, *rows])
    return text.getvalue()


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _is_number(cell: str) -> bool:
    return cell in ("", "unlimited", "-") or cell.replace(".", "", 1).removeprefix("-").isdigit()
