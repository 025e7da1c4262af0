"""`jupyter gpushare nodes --gpus`: a row per GPU, with what is there that is nobody's of ours, and
how well it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.output_formats import OutputFormat
from jupyter_gpushare.cli.tables import amount

__all__ = ["COLUMNS", "show_gpus"]

COLUMNS: Final = (
    "node",
    "gpu",
    "model",
    "total_mib",
    "guaranteed_mib",
    "used_mib",
    "foreign_mib",
    "foreign_processes",
    "utilization",
    "kernels",
    "health",
    "uuid",
)


def show_gpus(nodes: Iterable[m.NodeRow], form: OutputFormat) -> int:
    """In the wanted form. Raises InvalidInput for a column that there is not."""
    rows = [
        _row(node.name, number, device)
        for node in nodes
        for number, device in enumerate(node.devices)
    ]
    return form.show(
        rows,
        COLUMNS,
        nothing="There are no GPUs to see.",
        cells=lambda value, _column: _cell(value),
    )


def _row(node: str, number: int, device: m.DeviceRow) -> dict[str, Any]:
    memory = device.memory_mib
    return {
        "node": node,
        "gpu": number,
        "model": device.model,
        "uuid": device.uuid,
        "total_mib": memory.total,
        "guaranteed_mib": memory.guaranteed,
        "used_mib": memory.used,
        "foreign_mib": device.foreign_mib,
        "foreign_processes": device.foreign_processes,
        "utilization": device.utilization,
        "kernels": len(device.kernels),
        "health": device.health or ("ok" if device.healthy else "not healthy"),
    }


def _cell(value: float | str | None) -> str:
    """`-`: not known."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else amount(value)
