"""Text tables for the terminal: columns as wide as their cells, numbers aligned to the right."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpushare.cli.control_characters import escape_controls

__all__ = ["amount", "table"]


def amount(value: float | None) -> str:
    """A number without trailing zeros; None is `unlimited`."""
    return "unlimited" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A title, a header and rows. Columns of numbers are aligned to the right, except the first."""
    rows = [[escape_controls(cell) for cell in row] for row in rows]
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [
        number > 0 and bool(rows) and all(map(_is_number, column[1:]))
        for number, column in enumerate(columns)
    ]
    rule = "  ".join("-" * width for width in widths)
    lines = [_line(header, widths, right), rule]
    lines += [_line(row, widths, right) for row in rows]
    return "\n".join([title, *lines, ""] if title else [*lines, ""])


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, to_right in zip(cells, widths, right, strict=True):
        padded.append(cell.rjust(width) if to_right else cell.ljust(width))
    return "  ".join(padded).rstrip()


def _is_number(cell: str) -> bool:
    return cell in ("", "unlimited", "-") or cell.replace(".", "", 1).removeprefix("-").isdigit()
