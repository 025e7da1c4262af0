"""`jupyter gpushare nodes --gpus`: one row per GPU with its memory, other processes and health."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.cli.output_formats import OutputFormat

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
    "temperature_c",
    "power_w",
    "kernels",
    "ungated",
    "health",
    "uuid",
)


def show_gpus(nodes: Iterable[m.NodeRow], output: OutputFormat) -> int:
    """Prints the table. Raises InvalidInput for an unknown column."""
    rows = []
    for node in nodes:
        rows += [_row(node.name, number, device) for number, device in enumerate(node.devices)]
    return output.show(rows, COLUMNS, empty="No GPUs.")


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
        "temperature_c": device.temperature_c,
        "power_w": device.power_w,
        "kernels": len(device.kernels),
        "ungated": len(device.ungated),
        "health": device.health or ("ok" if device.healthy else "unhealthy"),
    }
