"""What was: samples of one kernel and of the queues, and evictions. Tables of plain rows, oldest
first, so that each is a CSV too.
"""

from __future__ import annotations

from typing import Annotated

from .columns import UNLIMITED_TEXT, column
from .common import Body, KernelState, Stamp

__all__ = [
    "EvictionRow",
    "Evictions",
    "KernelHistory",
    "KernelSample",
    "QueueHistory",
    "QueueSample",
]


class KernelSample(Body, frozen=True, kw_only=True):
    """One kernel at one moment: GPU memory in MiB, the share in GPUs (null: none, or asked for as
    memory), utilisation 0..1.
    """

    time: Stamp
    state: KernelState
    gpu: float | None
    guaranteed_mib: int
    used_mib: int
    borrowed_mib: int
    utilization: float | None = None
    """null: not known."""


class KernelHistory(Body, frozen=True, kw_only=True):
    """Kept in memory by the Jupyter server: every few seconds while young, coarser when old, for a
    day.
    """

    samples: list[KernelSample]
    kernel_id: str


class QueueSample(Body, frozen=True, kw_only=True):
    """One queue in one pool at one moment, in GPUs; null = unlimited."""

    time: Stamp
    queue: str
    kind: str
    pool: str
    quota: Annotated[float | None, column("Quota", null=UNLIMITED_TEXT)]
    fair_share: float
    allocated: float
    requested: float


class QueueHistory(Body, frozen=True, kw_only=True):
    samples: list[QueueSample]


class EvictionRow(Body, frozen=True, kw_only=True):
    """A pod whose place the scheduler took away. `action`: which action of the cycle, or `drain`,
    `max_running`, `idle`; `by`: the workload that it made room for ("" = none,
    or one that the caller may not see), `by_project` its project."""

    time: Stamp
    workload: str
    name: str
    pod: str
    user: str
    project: str
    node: str
    pool: str
    action: str
    by: str
    by_project: str
    message: str


class Evictions(Body, frozen=True, kw_only=True):
    evictions: list[EvictionRow]
