"""This notebook's share, the reason of a wait, tables and events as plain text. Takes plain dicts,
returns strings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from ..documentation import address_of_code
from ..kernel_body import Json
from ..sizes import memory_text
from .state_words import state_word

__all__ = [
    "cell_text",
    "change_text",
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
NUMBERS: Final = {
    "requested": "requested",
    "allocated": "allocated",
    "fair_share": "fair share",
    "quota": "quota",
    "limit": "limit",
    "free_total": "free",
    "free_largest": "largest free part",
}
"""The numbers of a reason, in the order shown. The queue position has its own line."""


def share_text(share: Json) -> str:
    """`0.5 GPU`, `20 GiB`, or "" without a request."""
    if share.get("gpu") is not None:
        return f"{share['gpu']:g} GPU" + ("s" if share["gpu"] > 1 else "")
    memory = share.get("gpu_memory_mib")
    return memory_text(memory) if memory is not None else ""


def kernel_text(kernel: Json, *, agent_problem: str = "") -> str:
    """The output of `%gpu`."""
    lines = [title(kernel)]
    for label, text in kernel_rows(kernel, agent_problem=agent_problem):
        if not text:
            continue
        if label == "memory" and kernel["gpu_memory_total_mib"]:
            text += f"\n{_bar(kernel['memory_mib'], kernel['gpu_memory_total_mib'])}"
        first, *more = text.split("\n")
        lines.append(f"  {label:<9}{first}")
        lines += [f"  {'':<9}{line}" for line in more]
    return "\n".join(lines)


def title(kernel: Json) -> str:
    """The heading. A simulated GPU is always labelled."""
    return "GPU share of this notebook" + (" (simulated GPU)" if kernel.get("simulated") else "")


def kernel_rows(kernel: Json, *, agent_problem: str = "") -> list[tuple[str, str]]:
    """Labels and texts; a text may have several lines. `agent_problem`: why no agent answers."""
    rows = [("state", _state_text(kernel))]
    if kernel["state"] == "detached" and not kernel["workload"]:
        rows.append(("", "request a share with `%gpu request 0.5`"))
        if kernel.get("saved_mib"):
            rows.append(("memory", _memory_text(kernel)))
    else:
        rows.append(("share", _request_text(kernel)))
        rows.append(("memory", _memory_text(kernel)))
        rows.append(("project", kernel["project"] or ""))
    if kernel["reason"] is not None:
        expected = kernel.get("expected_wait")
        text = reason_text(kernel["reason"], kernel["queue_position"], expected, brief=True)
        rows.append(("waiting", text))
    if kernel.get("pending_change"):
        rows.append(("change", change_text(kernel)))
    if kernel["notice_deadline"]:
        deadline = clock(kernel["notice_deadline"])
        rows.append(("notice", f"GPU memory will be reclaimed at {deadline}"))
    if kernel["pinned"]:
        rows.append(("pinned", "not suspended while idle"))
    if kernel["events"]:
        last = kernel["events"][-1]
        rows.append(("last", f"{clock(last['time'])}  {last['message']}"))
    if agent_problem:
        rows.append(("agent", agent_problem))
    return rows


def reason_text(
    reason: Json, position: int | None = None, expected: Json | None = None, *, brief: bool = False
) -> str:
    """The sentence, the queue position, the expected wait, and what would help; unless `brief` also
    the code, the numbers and the address of the documentation.
    """
    code = f" [{reason['code']}]" if reason.get("code") and not brief else ""
    lines = [reason["message"] + code]
    known = reason.get("numbers", {})
    numbers = [f"{label} {known[name]:g}" for name, label in NUMBERS.items() if name in known]
    if numbers and not brief:
        lines.append(f"GPUs: {', '.join(numbers)}")
    if position:
        lines.append(f"queue position: {position}")
    if expected:
        lines.append(expected["message"])
    for one in reason.get("helps", []):
        is_change = one.get("change") != "wait"
        lines.append(f"to start sooner: {one['message']}" if is_change else one["message"])
    if code:
        lines.append(f"docs: {address_of_code(reason['code'])}")
    return "\n".join(lines)


def change_text(kernel: Json) -> str:
    """Another share that is requested and waits, while the notebook keeps this one."""
    change = kernel["pending_change"]
    reason = f" {change['reason']['message']}" if change["reason"] else ""
    kept = share_text(kernel["request"])
    text = f"{share_text(change['request'])} requested; {kept} is kept until then.{reason}"
    if change["queue_position"]:
        text += f" Queue position: {change['queue_position']}."
    return text


def what_if_text(answer: Json) -> str:
    """The output of `%gpu what-if`."""
    if answer["starts_now"]:
        lines = [_start_text(answer)]
        lines += [f"  {one['message']}" for one in answer["affected"]]
    else:
        lines = [] if answer.get("refused") else [_wait_text(answer)]
        if answer["reason"]:
            reason = _without_alternatives(answer["reason"], answer["alternatives"])
            lines.append(reason_text(reason, expected=answer.get("expected_wait")))
    for one in answer["displaces"]:
        lines.append(f"  {_displaced_name(one)} loses its GPU: {one['message']}")
    lines += [f"instead: {one['message']}" for one in answer["alternatives"]]
    return "\n".join(lines)


def _start_text(answer: Json) -> str:
    """When and where a request would start that can be granted now."""
    gpus = ", ".join(answer["gpus"]) or answer["planned_gpu"] or answer["node"]
    where = f" on {gpus}" if gpus else ""
    warned = [one for one in answer["affected"] if one["notice_ms"]]
    if not warned:
        return f"Would start now{where}."
    names = ", ".join(one["name"] for one in warned)
    return f"Would start{where} after a notice of {answer['notice_ms'] / 1000:g} s to {names}."


def _wait_text(answer: Json) -> str:
    """The first line for a request that does not start at once."""
    if not answer["displaces"]:
        return "Would wait."
    names = ", ".join(map(_displaced_name, answer["displaces"]))
    seconds = max(one.get("notice_ms", 0) for one in answer["displaces"]) / 1000
    return f"Would start after a notice of {seconds:g} s to {names}."


def _displaced_name(displaced: Json) -> str:
    """The notebook, or only its project."""
    return displaced.get("name") or f"a workload of project {displaced['project']}"


def _without_alternatives(reason: Json, alternatives: Sequence[Json]) -> Json:
    """Without the suggestions that the alternatives repeat."""
    repeated = {name for one in alternatives for name in one["request"]}
    helps = [one for one in reason.get("helps", []) if one.get("change") not in repeated]
    return {**reason, "helps": helps}


def events_text(events: Sequence[Json]) -> str:
    """One line per event, oldest first."""
    lines = [f"{clock(one['time'])}  {one['kind']:<10}  {one['message']}" for one in events]
    return "\n".join(lines) or "No events."


def table(rows: Sequence[Json], columns: Mapping[str, str]) -> str:
    """Aligned columns (key: name); numbers to the right, `-` for unlimited or unknown."""
    if not rows:
        return "none"
    body = [[cell_text(row.get(key)) for key in columns] for row in rows]
    lines = [list(columns.values()), *body]
    widths = [max(map(len, column)) for column in zip(*lines)]
    to_right = [is_numeric(rows, key) for key in columns]

    def aligned(line: list[str]) -> str:
        cells = zip(line, widths, to_right)
        padded = (text.rjust(w) if right else text.ljust(w) for text, w, right in cells)
        return "  ".join(padded).rstrip()

    return "\n".join(map(aligned, lines))


def is_numeric(rows: Sequence[Json], key: str) -> bool:
    """Whether a column is aligned to the right: numbers, and None for unlimited."""
    return all(row.get(key) is None or isinstance(row[key], (int, float)) for row in rows)


def cell_text(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def clock(stamp: str) -> str:
    """The local time of day; unchanged if it is no time."""
    try:
        return (
            datetime.fromisoformat(stamp.replace("Z", "+00:00")).astimezone().strftime("%H:%M:%S")
        )
    except ValueError:
        return stamp


def _state_text(kernel: Json) -> str:
    word = state_word(kernel)
    if kernel["gpu_uuid"]:
        return f"{word} · {kernel['gpu_uuid']} on {kernel['node']}"
    if kernel["node"] and kernel["state"] not in ("detached", "pending"):
        return f"{word} · on {kernel['node']}"
    return word


def _request_text(kernel: Json) -> str:
    request = share_text(kernel["request"]) or "unknown"
    guaranteed = kernel["memory_mib"]["guaranteed"]
    if guaranteed:
        request += f" = {memory_text(guaranteed)} guaranteed"
    return f"{request}, limit {share_text(kernel['limit']) or 'the whole GPU'}"


def _memory_text(kernel: Json) -> str:
    memory, total = kernel["memory_mib"], kernel["gpu_memory_total_mib"]
    parts = []
    if total:
        parts.append(f"{memory_text(memory['used'])} of {memory_text(total)} used")
    if total and memory["borrowed"]:
        parts.append(f"{memory_text(memory['borrowed'])} borrowed")
    if kernel.get("saved_mib"):
        parts.append(f"{memory_text(kernel['saved_mib'])} saved in host memory")
    return ", ".join(parts)


def _bar(memory: Json, total: int) -> str:
    """Each character is one 24th of the GPU, drawn by its middle."""
    cells = []
    for i in range(BAR_CELLS):
        middle = (i + 0.5) * total / BAR_CELLS
        if middle < memory["used"]:
            cells.append("#" if middle < memory["guaranteed"] else "+")
        else:
            cells.append("-" if middle < memory["guaranteed"] else ".")
    return "[" + "".join(cells) + "]\n # used  + borrowed  - guaranteed, free"
