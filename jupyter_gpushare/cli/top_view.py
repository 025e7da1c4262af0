"""What `jupyter gpushare top` shows: nodes, GPUs and workloads as `rich` tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.control_characters import escape_controls
from jupyter_gpushare.cli.tables import amount
from jupyter_gpushare.core.model.reason import counted
from jupyter_gpushare.core.model.units import memory_text

__all__ = ["WIDE", "Snapshot", "frame"]

BAR: Final = 10
COMFORTABLE: Final = 130
"""Columns of a terminal that has room for bars."""
WIDE: Final = 240
"""Of output that no terminal limits."""
BLOCKS: Final = " ▏▎▍▌▋▊▉█"
"""Eighths of a character."""
STATE_STYLES: Final = {"running": "green", "waiting": "yellow", "suspended": "magenta"}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The tables at one moment. `time`: of day, as text; `problem`: why they are not newer."""

    nodes: list[m.NodeRow]
    workloads: list[m.WorkloadView]
    time: str
    problem: str = ""


def frame(
    shown: Snapshot, *, width: int = WIDE, height: int | None = None, hint: str = ""
) -> RenderableType:
    """One screen. With `height`, workloads that do not fit are counted in place of being shown."""
    bars = BAR if width >= COMFORTABLE else 0
    gpus = _gpu_table(shown, bars)
    room = None if height is None else max(1, height - gpus.row_count - 7)
    table, left = _workload_table(shown, bars, room)
    listed = table if shown.workloads else _plain("No workloads.", "dim")
    parts: list[RenderableType] = [_head(shown), gpus, Text(), listed]
    if left:
        parts.append(_plain(f"and {counted(left, 'more workload')}", "dim"))
    if shown.problem:
        parts.append(_plain(shown.problem, "bold red"))
    return Group(*parts, *([_plain(hint, "dim")] if hint else []))


def _head(shown: Snapshot) -> Text:
    gpus = sum(node.gpus for node in shown.nodes)
    held = round(sum(node.gpu_allocated for node in shown.nodes), 3)
    ready = sum(node.status == "Ready" for node in shown.nodes)
    waiting = sum(one.state in ("pending", "partial") for one in shown.workloads)
    simulated = "  simulated" if any(node.simulated for node in shown.nodes) else ""
    return _plain(
        f"{amount(held)} / {gpus} GPUs allocated  {ready} / {counted(len(shown.nodes), 'node')}"
        f" ready  {waiting} waiting  {shown.time}{simulated}",
        "bold",
    )


def _table(*columns: str, right: Collection[str] = (), flexible: Collection[str] = ()) -> Table:
    """`flexible` columns are shortened where the terminal is narrow, the others never."""
    table = Table(box=None, pad_edge=False, header_style="reverse")
    for name in columns:
        justify: Literal["right", "left"] = "right" if name in right else "left"
        table.add_column(name, justify=justify, no_wrap=name not in flexible)
    return table


def _gpu_table(shown: Snapshot, bars: int) -> Table:
    numbers = ("GPU", "KERNELS", "TEMP", "POWER")
    columns = ("NODE", "GPU", "USE", "MEMORY", "KERNELS", "TEMP", "POWER", "MODEL", "HEALTH")
    table = _table(*columns, right=numbers, flexible=("NODE", "MODEL", "HEALTH"))
    for node in shown.nodes:
        for number, device in enumerate(node.devices):
            table.add_row(*_gpu_row(node, number, device, bars))
        if not node.devices:
            state = ", ".join(node.reasons) or node.status
            table.add_row(_plain(node.name), *[""] * 6, "no GPUs", _plain(state))
    return table


def _gpu_row(node: m.NodeRow, number: int, device: m.DeviceRow, bars: int) -> Iterator[Text]:
    memory = device.memory_mib
    used = memory.used + device.foreign_mib
    problem = device.health or ("" if device.healthy else "unhealthy")
    problem = problem or ("" if node.status == "Ready" else ", ".join(node.reasons) or node.status)
    yield _plain(node.name if number == 0 else "")
    yield _plain(str(number))
    yield _share(device.utilization, bars)
    yield _memory(used, memory.total, bars)
    yield _plain(str(len(device.kernels)))
    yield _plain("" if device.temperature_c is None else f"{device.temperature_c} °C")
    yield _plain("" if device.power_w is None else f"{device.power_w} W")
    yield _plain(device.model)
    yield _plain(problem or "ok", "red" if problem else "green")


def _workload_table(shown: Snapshot, bars: int, room: int | None) -> tuple[Table, int]:
    """The workloads, and how many are left out: the waiting and the largest come first."""
    table = _table(
        *("WORKLOAD", "USER", "PROJECT", "STATE", "GPUS", "USE", "MEMORY", "NODE"),
        *("QUEUE", "REASON"),
        right=("GPUS", "QUEUE"),
        flexible=("WORKLOAD", "USER", "PROJECT", "NODE", "REASON"),
    )
    rows = sorted(shown.workloads, key=_order)
    fits = rows if room is None else rows[:room]
    for workload in fits:
        table.add_row(*_workload_row(workload, bars))
    return table, len(rows) - len(fits)


def _order(workload: m.WorkloadView) -> tuple[bool, int, str, str]:
    place = workload.queue_position
    return place is None, -_used(workload) if place is None else place, workload.name, workload.id


def _used(workload: m.WorkloadView) -> int:
    return sum(report.memory_mib.used for report in _reports(workload))


def _reports(workload: m.WorkloadView) -> list[m.LeaseReport]:
    return [pod.report for pod in workload.pods if pod.report is not None]


def _workload_row(workload: m.WorkloadView, bars: int) -> Iterator[Text]:
    label, reports = m.workload_label(workload), _reports(workload)
    busy = [one.utilization for one in reports if one.utilization is not None]
    nodes = sorted({pod.lease.node for pod in workload.pods if pod.lease is not None})
    share = workload.request
    place = workload.queue_position
    yield _plain(workload.name or workload.id)
    yield _plain(workload.user)
    yield _plain(workload.project)
    yield _plain(label, STATE_STYLES.get(label, ""))
    yield _plain(
        memory_text(share.gpu_memory_mib)
        if share.gpu is None and share.gpu_memory_mib
        else amount(share.gpu or 0)
    )
    yield _share(sum(busy) / len(busy) if busy else None, bars)
    yield _plain(memory_text(_used(workload)) if reports else "")
    yield _plain(", ".join(nodes))
    yield _plain("" if place is None else str(place))
    yield _plain(workload.reason.message if workload.reason else "")


def _share(value: float | None, bars: int) -> Text:
    if value is None:
        return Text()
    return _bar(value, f"{round(100 * value)} %", bars, "cyan")


def _memory(used: int, total: int, bars: int) -> Text:
    """The color says how full it is."""
    part = used / max(1, total)
    style = "red" if part > 0.95 else "yellow" if part > 0.8 else "green"
    return _bar(part, f"{memory_text(used)} / {memory_text(total)}", bars, style)


def _bar(part: float, words: str, width: int, style: str) -> Text:
    """A bar of fixed width and the words beside it."""
    if width == 0:
        return _plain(words, style)
    full, rest = divmod(round(max(0.0, min(1.0, part)) * width * 8), 8)
    drawn = "█" * full + (BLOCKS[rest] if rest else "")
    return Text.assemble((drawn.ljust(width, "·"), style), " ", words)


def _plain(text: str, style: str = "") -> Text:
    """No markup: names of notebooks may contain brackets; no control characters either."""
    return Text(escape_controls(text), style=style, overflow="ellipsis", no_wrap=True)
