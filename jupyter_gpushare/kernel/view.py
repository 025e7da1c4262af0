"""What a person reads: the share of this notebook as text and as HTML. Takes plain dicts, gives strings; shows nothing by itself."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from jupyter_gpushare.core.quantity import memory_text

from .link import Json

__all__ = [
    "Shown",
    "ShownKernel",
    "events_text",
    "kernel_rows",
    "kernel_text",
    "lines_html",
    "reason_text",
    "share_text",
    "table",
    "title",
    "what_if_text",
]

BAR_CELLS: Final = 24
SIMULATED: Final = "simulated"


class Shown:
    """A value that a notebook shows as text or as HTML, with the same words unless there is HTML that says more."""

    def __init__(self, text: str, picture: str = "") -> None:
        self.text = text
        self._picture = picture

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self._picture or lines_html(self.text)


class ShownKernel(dict[str, Any]):
    """A kernel's status as a mapping that a notebook shows as `%gpu` does."""

    def __repr__(self) -> str:
        return kernel_text(self)

    def _repr_html_(self) -> str:
        return lines_html(kernel_text(self))


def lines_html(text: str) -> str:
    """Aligned text as HTML in the notebook's own colours."""
    return f'<pre style="margin:0;line-height:1.35">{html.escape(text)}</pre>'


def share_text(share: Json) -> str:
    """`0.5 GPU`, `20 GiB`, or "" when nothing was asked."""
    if share.get("gpu") is not None:
        return f"{share['gpu']:g} GPU" + ("s" if share["gpu"] > 1 else "")
    memory = share.get("gpu_memory_mib")
    return memory_text(memory) if memory is not None else ""


def kernel_text(kernel: Json, *, away: bool = False) -> str:
    """The answer of `%gpu`."""
    bar = f"\n{_bar(kernel['memory_mib'], kernel['gpu_memory_total_mib'])}" if kernel["gpu_memory_total_mib"] else ""
    rows = [(name, text + bar if name == "memory" else text) for name, text in kernel_rows(kernel, away=away)]
    return "\n".join([title(kernel), *_aligned(rows)])


def title(kernel: Json) -> str:
    """What the rest is about; a simulated GPU is always called so."""
    return "GPU share of this notebook" + (f" ({SIMULATED} GPU)" if kernel.get("simulated") else "")


def kernel_rows(kernel: Json, *, away: bool = False) -> list[tuple[str, str]]:
    """Names and what is to be said of each; a text may have several lines."""
    rows = [("state", _state_text(kernel))]
    if kernel["state"] == "detached" and not kernel["workload"]:
        rows.append(("", "ask for a share with `%gpu request 0.5`"))
    else:
        rows += [("share", _request_text(kernel)), ("memory", _memory_text(kernel)), ("project", kernel["project"] or "")]
    if kernel["reason"] is not None:
        rows += [("waiting", reason_text(kernel["reason"], kernel["queue_position"]))]
    if kernel["notice_deadline"]:
        rows.append(("notice", f"memory above the share is taken at {_clock(kernel['notice_deadline'])}"))
    if kernel["pinned"]:
        rows.append(("pinned", "not suspended while idle"))
    if kernel["events"]:
        rows.append(("last", _event_line(kernel["events"][-1])))
    if away:
        rows.append(("agent", "cannot be reached now; this is what it said last"))
    return rows


def reason_text(reason: Json, position: int | None = None) -> str:
    """The sentence, the numbers, the place in the queue, and what would help."""
    numbers = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in reason.get("numbers", {}).items())
    lines = [reason["message"] + (f" [{reason['code']}]" if reason.get("code") else "")]
    if numbers:
        lines.append(f"numbers: {numbers}")
    if position:
        lines.append(f"place in the queue: {position}")
    lines += [f"would help: {one['message']}" for one in reason.get("helps", [])]
    return "\n".join(lines)


def what_if_text(answer: Json) -> str:
    """The answer of `%gpu what-if`."""
    if answer["starts_now"]:
        where = " on " + (answer["planned_gpu"] or answer["node"]) if answer["node"] else ""
        lines = [f"It would start now{where}."]
    else:
        lines = ["It would wait."] + ([reason_text(answer["reason"])] if answer["reason"] else [])
    lines += [f"displaces {one['workload']} of {one['project']}: {one['message']}" for one in answer["displaces"]]
    lines += [f"instead: {one['message']}" for one in answer["alternatives"]]
    return "\n".join(lines)


def events_text(events: Sequence[Json]) -> str:
    """One line per event, oldest first."""
    return "\n".join(_event_line(event) for event in events) or "Nothing happened yet."


def table(rows: Sequence[Json], columns: Sequence[str]) -> str:
    """Aligned columns; numbers to the right, `-` for unlimited or unknown."""
    if not rows:
        return "none"
    cells = [list(columns)] + [[_cell(row.get(column)) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    right = [all(isinstance(row.get(column), (int, float)) for row in rows) for column in columns]
    lines = ("  ".join(_pad(*cell) for cell in zip(line, widths, right, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines)


def _pad(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _state_text(kernel: Json) -> str:
    where = ""
    if kernel["gpu_uuid"]:
        where = f" · {kernel['gpu_uuid']} on {kernel['node']}"
    elif kernel["node"] and kernel["state"] not in ("detached", "pending"):
        where = f" · on {kernel['node']}"
    return kernel["state"] + where


def _request_text(kernel: Json) -> str:
    asked, ceiling = share_text(kernel["request"]), share_text(kernel["limit"])
    guaranteed = kernel["memory_mib"]["guaranteed"]
    parts = [asked or "unknown"]
    if guaranteed:
        parts.append(f"= {memory_text(guaranteed)} guaranteed")
    return " ".join(parts) + (f", up to {ceiling}" if ceiling else ", up to the whole GPU")


def _memory_text(kernel: Json) -> str:
    memory, total = kernel["memory_mib"], kernel["gpu_memory_total_mib"]
    if not total:
        return "none on a GPU" + (f"; {memory_text(memory['used'])} saved in host memory" if memory["used"] else "")
    borrowed = f", {memory_text(memory['borrowed'])} of it borrowed" if memory["borrowed"] else ""
    return f"{memory_text(memory['used'])} of {memory_text(total)} used{borrowed}"


def _bar(memory: Json, total: int) -> str:
    """One cell is a 24th of the GPU, judged at its middle."""
    cells = []
    for i in range(BAR_CELLS):
        middle = (i + 0.5) * total / BAR_CELLS
        if middle < memory["used"]:
            cells.append("#" if middle < memory["guaranteed"] else "+")
        else:
            cells.append("-" if middle < memory["guaranteed"] else ".")
    return "[" + "".join(cells) + "]  # used  + borrowed  - guaranteed and free"


def _event_line(event: Json) -> str:
    return f"{_clock(event['time'])}  {event['kind']:<10}  {event['message']}"


def _clock(stamp: str) -> str:
    try:
        return datetime.fromisoformat(stamp).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return stamp


def _aligned(rows: Sequence[tuple[str, str]]) -> list[str]:
    lines = []
    for name, text in rows:
        first, *more = text.split("\n")
        lines.append(f"  {name:<9}{first}")
        lines += [f"  {'':<9}{line}" for line in more]
    return lines
