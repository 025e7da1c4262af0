"""What is reported of notebooks in virtual time: waits, throughput and turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.model.activity import Activity
from jupyter_gpushare.core.model.decisions import Evict

from .session_schemas import SessionSchema, notebooks_of
from .sessions import Session, Wait

__all__ = ["run_session"]

SECOND: Final = 1000


def run_session(cluster: Cluster, shape: SessionSchema) -> dict[str, Any]:
    """Runs the notebooks on this cluster; times in seconds."""
    turns: list[int] = []

    def watch(now: int, evict: Evict, activity: Activity) -> None:
        del evict, activity
        turns.append(now)

    notebooks = list(notebooks_of(shape))
    session = Session(cluster, notebooks, seed=shape.seed, overhead_ms=shape.overhead, watch=watch)
    end = shape.duration + shape.warm_up
    waits = [one for one in session.run(end) if one.arrived + one.waited >= shape.warm_up]
    by_notebook: dict[str, list[Wait]] = {one.workload.id: [] for one in notebooks}
    for one in waits:
        by_notebook[one.notebook].append(one)
    return {
        "seconds": shape.duration / SECOND,
        "turns": sum(now >= shape.warm_up for now in turns),
        **_numbers(waits),
        "longest_unserved": max((ms for _, ms in session.unserved(end)), default=0) / SECOND,
        "notebooks": {name: _numbers(own) for name, own in by_notebook.items()},
    }


def _numbers(waits: Sequence[Wait]) -> dict[str, Any]:
    ordered = sorted(one.waited for one in waits)
    return {
        "cells": len(ordered),
        "gpu_seconds": sum(one.ran for one in waits) / SECOND,
        "wait": {
            "mean": round(sum(ordered) / len(ordered) / SECOND, 3) if ordered else None,
            "p50": _quantile(ordered, 0.5),
            "p95": _quantile(ordered, 0.95),
            "max": _quantile(ordered, 1),
        },
    }


def _quantile(ordered: Sequence[int], part: float) -> float | None:
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] / SECOND
