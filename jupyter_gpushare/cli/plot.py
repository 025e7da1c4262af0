"""Draws a simulation: what each queue holds and what its fair share is, over the cycles. Imports matplotlib when it draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_gpushare.core.errors import Unavailable

__all__ = ["draw"]


def draw(results: list[dict[str, Any]], file: Path) -> None:
    """One panel per scenario and node pool. Solid: GPUs held; dashed: fair share. Raises Unavailable without matplotlib."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise Unavailable("--plot needs matplotlib: pip install 'jupyter-gpushare[plot]'", field="--plot") from error
    panels = [(result, pool) for result in results for pool in result["cycles"][0]["fair_share"]]
    figure = Figure(figsize=(8, 3.2 * max(1, len(panels))), layout="constrained")
    for i, (result, pool) in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, i + 1)
        cycles = result["cycles"]
        numbers = range(1, len(cycles) + 1)
        for queue in cycles[-1]["fair_share"][pool]:
            fair = [cycle["fair_share"][pool].get(queue, {}).get("gpu", 0.0) for cycle in cycles]
            held = [cycle["allocated"].get(pool, {}).get(queue, {}).get("gpu", 0.0) for cycle in cycles]
            (line,) = axes.plot(numbers, held, marker="o", label=queue)
            axes.plot(numbers, fair, linestyle="--", color=line.get_color())
        axes.set(title=f"{result['name']}: pool {pool}", xlabel="cycle", ylabel="GPUs (dashed: fair share)", ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if cycles[-1]["fair_share"][pool]:
            axes.legend(fontsize="small")
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise Unavailable(f"the picture cannot be written: {error}", field=str(file)) from error
