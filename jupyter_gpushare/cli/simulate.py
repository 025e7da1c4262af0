"""`jupyter gpushare simulate SCENARIO…`: the scheduler's decisions without a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from jupyter_gpushare.cli import BAD_INPUT, print_error
from jupyter_gpushare.cli.tables import amount, table

__all__ = ["simulate"]


@click.command()
@click.argument("scenarios", type=click.Path(), nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "table"]),
    default="json",
    show_default=True,
    help="Output format.",
)
@click.option(
    "--plot",
    type=click.Path(),
    metavar="FILE.png",
    help="Plot allocation and fair share of the queues over the cycles.",
)
def simulate(scenarios: tuple[str, ...], form: str, plot: str | None) -> int:
    """Run each SCENARIO file. JSON: one object per scenario and line, in the same order; an invalid
    file gives its error.
    """
    from jupyter_gpushare.scheduler.config.diagnostics import error_object, name_in
    from jupyter_gpushare.scheduler.config.documents import FileErrors
    from jupyter_gpushare.scheduler.simulation.scenario import run
    from jupyter_gpushare.scheduler.simulation.scenario_file import read_scenario

    status, results = 0, []
    for file in scenarios:
        try:
            result = run(read_scenario(file))
        except FileErrors as error:
            status = BAD_INPUT
            print_error(error.message, error.where)
            result = error_object(name_in(file), error)
        results.append(result)
        click.echo(json.dumps(result) if form == "json" else "\n".join(_tables(result)))
    if plot is not None:
        from jupyter_gpushare.cli.plot import draw

        draw([result for result in results if "cycles" in result], Path(plot))
    return status


def _tables(result: dict[str, Any]) -> Iterator[str]:
    """Tables of one scenario: per cycle the queues, pods, nodes, and pending workloads."""
    if "error" in result:
        yield f"{result['name']}: {result['error']['message']}\n"
        return
    if "virtual_time" in result:
        yield from _virtual_time(result["name"], result["virtual_time"])
    for i, cycle in enumerate(result["cycles"], start=1):
        counts = ", ".join(f"{value} {name}" for name, value in cycle["counts"].items())
        yield f"== {result['name']}: cycle {i} of {len(result['cycles'])} ({counts})\n"
        shares = [
            [pool, queue, *(amount(share[r]) for r in ("gpu", "cpu", "memory"))]
            for pool, queues in cycle["fair_share"].items()
            for queue, share in queues.items()
        ]
        yield table("Fair share", ["pool", "queue", "GPUs", "cores", "MiB"], shares)
        pods = [
            [pod, at["state"], at["node"] or "", ", ".join(at["gpus"])]
            for pod, at in cycle["pods"].items()
        ]
        yield table("Pods", ["pod", "state", "node", "GPUs"], pods)
        nodes = [
            [node, str(gpus["idle_gpus"]), str(gpus["releasing_gpus"])]
            for node, gpus in cycle["nodes"].items()
        ]
        yield table("Nodes", ["node", "idle GPUs", "releasing GPUs"], nodes)
        pending = [
            [name, w["reason"]["code"], w["reason"]["message"]]
            for name, w in cycle["workloads"].items()
            if w["reason"]
        ]
        if pending:
            yield table("Pending", ["workload", "code", "reason"], pending)


def _virtual_time(name: str, found: dict[str, Any]) -> Iterator[str]:
    """The waits of all cells, and of each notebook."""
    yield f"== {name}: {found['seconds']:g} s, {found['turns']} turns given to others\n"
    rows = [["all", found], *found["notebooks"].items()]
    columns = ("mean", "p50", "p95", "max")
    cells = [
        [who, str(one["cells"]), *(amount(one["wait"][column]) for column in columns)]
        for who, one in rows
    ]
    yield table("Waits in seconds", ["notebook", "cells", *columns], cells)
