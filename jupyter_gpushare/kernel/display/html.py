"""What a person reads, as HTML in the front end's own colours: a share with its memory bar, a
table, a list of events. Takes plain dicts.

Text in `<pre>` breaks in the middle of words in a narrow notebook; these do not.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..connection import Json
from . import text as text_view

__all__ = [
    "DisplayValue",
    "KernelStatusDisplay",
    "card_html",
    "events_html",
    "lines_html",
    "table_html",
]

PARTS: Final = {
    "used": "var(--jp-success-color1,#388e3c)",
    "borrowed": "var(--jp-warn-color1,#f57c00)",
}
TABLE: Final = '<table style="line-height:1.4;border-spacing:0;border-collapse:collapse;table-layout:auto;margin:0">'
ROW: Final = '<tr style="background:none">'
"""Front ends stripe the rows of tables; these are no data to be compared line by line."""


class DisplayValue:
    """A value that a notebook shows as text or as HTML, with the same words."""

    def __init__(self, text: str, picture: str = "") -> None:
        self.text = text
        self._picture = picture

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self._picture or lines_html(self.text)


class KernelStatusDisplay(dict[str, Any]):
    """A kernel's status as a mapping that a notebook shows as `%gpu` does."""

    def __repr__(self) -> str:
        return text_view.kernel_text(self)

    def _repr_html_(self) -> str:
        return card_html(self)


def card_html(kernel: Json, *, away: bool = False) -> str:
    """State, share, memory bar, why it waits, and what happened last."""
    lines = "".join(
        _line(name, text) for name, text in text_view.kernel_rows(kernel, away=away) if text
    )
    return f"<b>{html.escape(text_view.title(kernel))}</b>{TABLE}{lines}</table>{_bar(kernel)}"


def events_html(events: Sequence[Json]) -> str:
    """One line per event, oldest first: when and what."""
    if not events:
        return "<p>Nothing happened yet.</p>"
    return (
        TABLE
        + "".join(_line(text_view.clock(event["time"]), event["message"]) for event in events)
        + "</table>"
    )


def table_html(rows: Sequence[Json], columns: Mapping[str, str]) -> str:
    """Named columns (key: name); numbers to the right, `-` for unlimited or unknown."""
    if not rows:
        return "<p>none</p>"
    sides = {key: "right" if text_view.is_numeric(rows, key) else "left" for key in columns}
    head = "".join(_cell(name, sides[key], "th") for key, name in columns.items())
    body = "".join(
        ROW
        + "".join(_cell(text_view.cell_text(row.get(key)), sides[key], "td") for key in columns)
        + "</tr>"
        for row in rows
    )
    return f"{TABLE}<thead>{ROW}{head}</tr></thead><tbody>{body}</tbody></table>"


def lines_html(text: str) -> str:
    """Lines as they are, broken between words where there is no room."""
    return f'<div style="line-height:1.35;white-space:pre-wrap;overflow-wrap:anywhere">{html.escape(text)}</div>'


def _cell(text: Any, side: str, tag: str) -> str:
    weight = "600" if tag == "th" else "normal"
    return f'<{tag} style="text-align:{side};font-weight:{weight};padding:1px 16px 1px 0">{html.escape(str(text))}</{tag}>'


def _line(name: str, text: str) -> str:
    head = '<th scope="row" style="text-align:left;vertical-align:top;font-weight:normal;padding:0 12px 0 0;opacity:.75;white-space:nowrap">'
    cell = '<td style="text-align:left;white-space:pre-line;padding:0">'
    return f"{ROW}{head}{html.escape(name)}</th>{cell}{html.escape(text)}</td></tr>"


def _bar(kernel: Json) -> str:
    memory, total = kernel["memory_mib"], kernel["gpu_memory_total_mib"]
    if not total:
        return ""
    own = memory["used"] - memory["borrowed"]
    piece = '<div style="flex:none;width:{:.1f}%;background:{}"></div>'
    pieces = piece.format(100 * own / total, PARTS["used"]) + piece.format(
        100 * memory["borrowed"] / total, PARTS["borrowed"]
    )
    mark = f'<div style="position:absolute;left:{100 * memory["guaranteed"] / total:.1f}%;top:0;bottom:0;border-left:2px solid"></div>'
    return (
        f'<div role="meter" aria-label="GPU memory" aria-valuemin="0" aria-valuemax="{total}" aria-valuenow="{memory["used"]}" '
        'style="display:flex;position:relative;height:12px;max-width:480px;border:1px solid var(--jp-border-color1,#bdbdbd);margin:4px 0">'
        f"{pieces}{mark}</div>"
    )
