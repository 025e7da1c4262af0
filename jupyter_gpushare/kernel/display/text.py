"""What a person reads: the share of this notebook as text (`cards` has the HTML). Takes plain
dicts, gives strings; shows nothing by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from jupyter_gpushare.core.model.units import memory_text

from ..connection import Json

__all__ = [
    "cell_text",
    "clock",
    "events_text",
    "is_numeric",
    "kernel_rows",
    "kernel_text",
    "reason_text",
    "share_text",
    "table",
    "title",
    "what_if_text",
]

BAR_CELLS: Final = 24
SIMULATED: Final = "simulated"
NUMBERS: Final = {
    "requested": "asked for",
    "allocated": "held",
    "fair_share": "fair share",
    "quota": "quota",
    "limit": "limit",
    "free_total": "free",
    "free_largest": "free on one node",
}
"""The numbers of a reason in a person's words, in this order; the place in the queue has its own
line.
"""


def share_text(share: Json) -> str:
    """`0.5 GPU`, `20 GiB`, or "" when nothing was asked."""
    if share.get("gpu") is not None:
        return f"{share['gpu']:g} GPU" + ("s" if share["gpu"] > 1 else "")
    memory = share.get("gpu_memory_mib")
    return memory_text(memory) if memory is not None else ""


def kernel_text(kernel: Json, *, away: bool = False) -> str:
    """The answer of `%gpu`."""
    bar = (
        f"\n{_bar(kernel['memory_mib'], kernel['gpu_memory_total_mib'])}"
        if kernel["gpu_memory_total_mib"]
        else ""
    )
    rows = [
        (name, text + bar if name == "memory" else text)
        for name, text in kernel_rows(kernel, away=away)
    ]
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
        rows += [
            ("share", _request_text(kernel)),
            ("memory", _memory_text(kernel)),
            ("project", kernel["project"] or ""),
        ]
    if kernel["reason"] is not None:
        rows += [
            (
                "waiting",
                reason_text(
                    kernel["reason"],
                    kernel["queue_position"],
                    kernel.get("expected_wait"),
                    brief=True,
                ),
            )
        ]
    if kernel["notice_deadline"]:
        rows.append(
            ("notice", f"memory above the share is taken at {clock(kernel['notice_deadline'])}")
        )
    if kernel["pinned"]:
        rows.append(("pinned", "not suspended while idle"))
    if kernel["events"]:
        last = kernel["events"][-1]
        rows.append(("last", f"{clock(last['time'])}  {last['message']}"))
    if away:
        rows.append(("agent", "cannot be reached now; this is what it said last"))
    return rows


def reason_text(
    reason: Json, position: int | None = None, expected: Json | None = None, *, brief: bool = False
) -> str:
    """The sentence, the place in the queue, how long it may take, and what would help; unless
    `brief` also the code and the numbers.
    """
    code = f" [{reason['code']}]" if reason.get("code") and not brief else ""
    known = reason.get("numbers", {})
    numbers = ", ".join(
        f"{words} {known[name]:g}" for name, words in NUMBERS.items() if name in known
    )
    lines = [reason["message"] + code]
    if numbers and not brief:
        lines.append(f"in GPUs: {numbers}")
    if position:
        lines.append(f"place in the queue: {position}")
    if expected:
        lines.append(f"expected: {expected['message']}")
    lines += [f"would help: {one['message']}" for one in reason.get("helps", [])]
    return "\n".join(lines)


def what_if_text(answer: Json) -> str:
    """The answer of `%gpu what-if`."""
    if answer["starts_now"]:
        where = " on " + (answer["planned_gpu"] or answer["node"]) if answer["node"] else ""
        lines = [f"It would start now{where}."]
    else:
        lines = ["It would wait."]
        if answer["reason"]:
            lines.append(reason_text(answer["reason"], expected=answer.get("expected_wait")))
    lines += [
        f"displaces {one['workload']} of {one['project']}: {one['message']}"
        for one in answer["displaces"]
    ]
    lines += [f"instead: {one['message']}" for one in answer["alternatives"]]
    return "\n".join(lines)


def events_text(events: Sequence[Json]) -> str:
    """One line per event, oldest first."""
    return "\n".join(_event_line(event) for event in events) or "Nothing happened yet."


def table(rows: Sequence[Json], columns: Mapping[str, str]) -> str:
    """Aligned columns (key: name); numbers to the right, `-` for unlimited or unknown."""
    if not rows:
        return "none"
    cells = [list(columns.values())] + [
        [cell_text(row.get(key)) for key in columns] for row in rows
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    right = [is_numeric(rows, key) for key in columns]
    lines = (
        "  ".join(_pad(*cell) for cell in zip(line, widths, right, strict=True)) for line in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def is_numeric(rows: Sequence[Json], key: str) -> bool:
    """Whether a column is aligned to the right: numbers, perhaps some unlimited."""
    return all(row.get(key) is None or isinstance(row[key], (int, float)) for row in rows)


def _pad(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def cell_text(value: Any) -> str:
    """A value as a table shows it."""
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
    saved = (
        f"{memory_text(kernel['saved_mib'])} saved in host memory"
        if kernel.get("saved_mib")
        else ""
    )
    if not total:
        return saved or "none on a GPU"
    borrowed = f", {memory_text(memory['borrowed'])} of it borrowed" if memory["borrowed"] else ""
    return f"{memory_text(memory['used'])} of {memory_text(total)} used{borrowed}" + (
        f"; {saved}" if saved else ""
    )


def _bar(memory: Json, total: int) -> str:
    """One cell is a 24th of the GPU, judged at its middle."""
    cells = []
    for i in range(BAR_CELLS):
        middle = (i + 0.5) * total / BAR_CELLS
        if middle < memory["used"]:
            cells.append("#" if middle < memory["guaranteed"] else "+")
        else:
            cells.append("-" if middle < memory["guaranteed"] else ".")
    return "[" + "".join(cells) + "]\n # used  + borrowed  - guaranteed, free"


def _event_line(event: Json) -> str:
    return f"{clock(event['time'])}  {event['kind']:<10}  {event['message']}"


def clock(stamp: str) -> str:
    """The time of day here; what is no time is left as it is."""
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
