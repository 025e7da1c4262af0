"""Schema of notebooks in virtual time (docs/reference/files.md), and what is simulated from it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from jupyter_gpushare.core.model.model import NON_PREEMPTIBLE_FROM, Pod, Workload

from ..config.fields import Bytes, Duration, Gpus, Name, refused
from ..config.schemas import StrictSchema
from .sessions import Notebook

__all__ = ["NotebookSchema", "SessionSchema", "notebooks_of"]

LONGEST: Final = 7 * 86_400_000
Distribution = Literal["exponential", "uniform", "fixed"]


class NotebookSchema(StrictSchema):
    """Equal notebooks: each thinks, runs a cell, and thinks again. `think` and `cell` are means;
    `uniform` is between half and one and a half of them.
    """

    name: Name
    project: Name
    count: Annotated[int, Field(strict=True, ge=1, le=1000)] = 1
    gpu: Gpus = 500
    priority: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 75
    node_pools: list[Name] = []
    think: Duration
    cell: Duration
    think_varies: Distribution = "exponential"
    cell_varies: Distribution = "fixed"
    memory: Bytes = 0
    pinned: bool = False


class SessionSchema(StrictSchema):
    """How long to simulate, and what copies cost. Waits before `warm_up` are not reported."""

    duration: Duration = 1_200_000
    warm_up: Duration = 60_000
    seed: Annotated[int, Field(strict=True, ge=0)] = 1
    copy_rate: Bytes = 0
    overhead: Duration = 0
    notebooks: list[NotebookSchema]

    @model_validator(mode="after")
    def _is_bounded(self) -> SessionSchema:
        if self.duration > LONGEST:
            raise refused("a simulation lasts at most 7 days")
        if self.warm_up >= self.duration:
            raise refused("warm_up must be shorter than the duration")
        return self


def notebooks_of(session: SessionSchema) -> Iterator[Notebook]:
    """All notebooks, in the order of the file."""
    number = 0
    for kind in session.notebooks:
        for i in range(1, kind.count + 1):
            number += 1
            yield Notebook(
                _workload(kind, i, number),
                _draw(kind.think, kind.think_varies),
                _draw(kind.cell, kind.cell_varies),
                copy_ms=kind.memory * 1000 // session.copy_rate if session.copy_rate else 0,
                is_pinned=kind.pinned,
            )


def _workload(kind: NotebookSchema, i: int, number: int) -> Workload:
    return Workload(
        id=f"{kind.name}-{i:03}" if kind.count > 1 else kind.name,
        project=kind.project,
        pods=(Pod("kernel", gpu=kind.gpu),),
        priority=kind.priority,
        preemptible=kind.priority < NON_PREEMPTIBLE_FROM,
        created=number,
        node_pools=tuple(kind.node_pools),
    )


def _draw(mean: int, varies: Distribution) -> Callable[[random.Random], int]:
    """Draws a time in ms."""
    if varies == "fixed" or not mean:
        return lambda _chance: mean
    if varies == "uniform":
        return lambda chance: chance.randint(mean // 2, mean + mean // 2)
    return lambda chance: round(chance.expovariate(1 / mean))
