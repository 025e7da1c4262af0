"""This notebook's share as HTML in the colours of the front end: a card with a memory bar, tables,
lines. Takes plain dicts.

Plain text in `<pre>` breaks inside words in a narrow notebook; these do not.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..kernel_body import Json
from . import text as text_view

__all__ = [
    "DisplayValue",
    "KernelStatusDisplay",
    "card_html",
    "preformatted_html",
    "lines_html",
    "table_html",
]

USED: Final = "var(--jp-success-color1,#388e3c)"
BORROWED: Final = "var(--jp-warn-color1,#f57c00)"
BORDER: Final = "var(--jp-border-color1,#bdbdbd)"
TABLE: Final = (
    '<table style="line-height:1.4;border-spacing:0;border-collapse:collapse;'
    'table-layout:auto;margin:0">'
)
ROW: Final = '<tr style="background:none">'
"""Front ends stripe the rows of tables."""
LINES_STYLE: Final = "line-height:1.35;white-space:pre-wrap;overflow-wrap:anywhere"
CHART_STYLE: Final = "line-height:1.2;white-space:pre;overflow-x:auto"
LABEL_STYLE: Final = (
    "text-align:left;vertical-align:top;font-weight:normal;padding:0 12px 0 0;opacity:.75;"
    "white-space:nowrap"
)
VALUE_STYLE: Final = "text-align:left;white-space:pre-line;padding:0"
BAR_STYLE: Final = (
    f"display:flex;position:relative;height:12px;max-width:480px;border:1px solid {BORDER};"
    "margin:4px 0"
)


class DisplayValue:
    """A value that a notebook shows as text or as HTML, with the same words."""

    def __init__(self, text: str, as_html: str = "") -> None:
        self.text = text
        self._html = as_html or lines_html(text)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self._html


class KernelStatusDisplay(dict[str, Any]):
    """A kernel's status as a mapping that a notebook shows as `%gpu` does."""

    def __repr__(self) -> str:
        return text_view.kernel_text(self)

    def _repr_html_(self) -> str:
        return card_html(self)


def card_html(kernel: Json, *, agent_problem: str = "") -> str:
    """State, share, memory bar, why it waits, and the last event."""
    rows = text_view.kernel_rows(kernel, agent_problem=agent_problem)
    lines = "".join(_line(label, text) for label, text in rows if text)
    return f"<b>{html.escape(text_view.title(kernel))}</b>{TABLE}{lines}</table>{_bar(kernel)}"


def table_html(rows: Sequence[Json], columns: Mapping[str, str]) -> str:
    """Named columns (key: name); numbers to the right, `-` for unlimited or unknown."""
    if not rows:
        return "<p>none</p>"
    sides = {key: "right" if text_view.is_numeric(rows, key) else "left" for key in columns}
    head = "".join(_cell(name, sides[key], "th") for key, name in columns.items())
    body = "".join(_table_row(row, sides) for row in rows)
    return f"{TABLE}<thead>{ROW}{head}</tr></thead><tbody>{body}</tbody></table>"


def lines_html(text: str) -> str:
    """Lines that break between words."""
    return f'<div style="{LINES_STYLE}">{html.escape(text)}</div>'


def preformatted_html(text: str) -> str:
    """Lines of block characters, which scroll in a narrow notebook."""
    return f'<pre style="{CHART_STYLE}">{html.escape(text)}</pre>'


def _table_row(row: Json, sides: Mapping[str, str]) -> str:
    cells = (_cell(text_view.cell_text(row.get(key)), side, "td") for key, side in sides.items())
    return f"{ROW}{''.join(cells)}</tr>"


def _cell(text: str, side: str, tag: str) -> str:
    weight = "600" if tag == "th" else "normal"
    style = f"text-align:{side};font-weight:{weight};padding:1px 16px 1px 0"
    return f'<{tag} style="{style}">{html.escape(text)}</{tag}>'


def _line(label: str, text: str) -> str:
    return (
        f'{ROW}<th scope="row" style="{LABEL_STYLE}">{html.escape(label)}</th>'
        f'<td style="{VALUE_STYLE}">{html.escape(text)}</td></tr>'
    )


def _bar(kernel: Json) -> str:
    memory, total = kernel["memory_mib"], kernel["gpu_memory_total_mib"]
    if not total:
        return ""
    own = _bar_part(memory["used"] - memory["borrowed"], total, USED)
    borrowed = _bar_part(memory["borrowed"], total, BORROWED)
    mark = (
        f'<div style="position:absolute;left:{100 * memory["guaranteed"] / total:.1f}%;'
        'top:0;bottom:0;border-left:2px solid"></div>'
    )
    values = f'aria-valuemin="0" aria-valuemax="{total}" aria-valuenow="{memory["used"]}"'
    return (
        f'<div role="meter" aria-label="GPU memory" {values} style="{BAR_STYLE}">'
        f"{own}{borrowed}{mark}</div>"
    )


def _bar_part(mib: int, total: int, colour: str) -> str:
    return f'<div style="flex:none;width:{100 * mib / total:.1f}%;background:{colour}"></div>'
