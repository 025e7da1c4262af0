"""Plots of simulations and usage. matplotlib is imported on use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_gpushare.core.model.errors import Unavailable

__all__ = ["draw"]


def draw(results: list[dict[str, Any]], file: Path) -> None:
    """One panel per scenario and node pool: allocated GPUs (solid) and fair share (dashed).

    Raises Unavailable without matplotlib, or if the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise Unavailable(
            "--plot needs matplotlib: pip install 'jupyter-gpushare[plot]'", field="--plot"
        ) from error
    panels = [(result, pool) for result in results for pool in result["cycles"][0]["fair_share"]]
    figure = Figure(figsize=(8, 3.2 * max(1, len(panels))), layout="constrained")
    for i, (result, pool) in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, i + 1)
        cycles = result["cycles"]
        numbers = range(1, len(cycles) + 1)
        for queue in cycles[-1]["fair_share"][pool]:
            fair = [cycle["fair_share"][pool].get(queue, {}).get("gpu", 0.0) for cycle in cycles]
            held = [
                cycle["allocated"].get(pool, {}).get(queue, {}).get("gpu", 0.0) for cycle in cycles
            ]
            (line,) = axes.plot(numbers, held, marker="o", label=queue)
            axes.plot(numbers, fair, linestyle="--", color=line.get_color())
        axes.set(
            title=f"{result['name']}: pool {pool}",
            xlabel="cycle",
            ylabel="GPUs (dashed: fair share)",
            ylim=(0, None),
        )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if cycles[-1]["fair_share"][pool]:
            axes.legend(fontsize="small")
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise Unavailable(f"the plot cannot be written: {error}", field=str(file)) from error


def draw_usage(usage: Any, by: str, file: Path, most: int = 20) -> None:
    """A bar per project, person or notebook, for the `most` largest: used and idle GPU-hours, and
    borrowed and lent ones.

    Raises Unavailable without matplotlib, or if the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise Unavailable(
            "--plot needs matplotlib: pip install 'jupyter-gpushare[plot]'", field="--plot"
        ) from error
    rows = usage.usage[:most][::-1]
    names = [
        {
            "project": row.project,
            "person": f"{row.user} ({row.project})",
            "notebook": row.notebook or "(no name)",
        }[by]
        for row in rows
    ]
    places = range(len(rows))
    figure = Figure(figsize=(8, 1.5 + 0.35 * max(4, len(rows))), layout="constrained")
    axes = figure.add_subplot()
    axes.barh(places, [row.used for row in rows], 0.4, label="allocated: used", color="#1f77b4")
    axes.barh(
        places,
        [row.idle for row in rows],
        0.4,
        left=[row.used for row in rows],
        label="allocated: idle",
        color="#aec7e8",
    )
    lower = [place - 0.35 for place in places]
    axes.barh(lower, [row.borrowed for row in rows], 0.25, label="borrowed", color="#ff7f0e")
    axes.barh(
        lower,
        [row.lent for row in rows],
        0.25,
        left=[row.borrowed for row in rows],
        label="lent",
        color="#2ca02c",
    )
    axes.set(
        title=f"GPU-hours by {by}, {usage.since[:16]} to {usage.until[:16]}",
        xlabel="GPU-hours",
        yticks=list(places),
        yticklabels=names,
    )
    axes.legend(fontsize="small")
    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise Unavailable(f"the plot cannot be written: {error}", field=str(file)) from error
