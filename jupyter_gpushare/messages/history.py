"""History: samples of a kernel and of the queues, and evictions. Rows are ordered by time."""

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
    """One kernel at one time: GPU memory in MiB, the share in GPUs (null: none, or requested as
    memory), utilization 0..1.
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
    """Samples of the last day, kept in memory by the Jupyter server; older ones are coarser."""

    samples: list[KernelSample]
    kernel_id: str


class QueueSample(Body, frozen=True, kw_only=True):
    """One queue in one pool at one time, in GPUs; null = unlimited."""

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
    """An evicted pod. `action` is the action of the cycle, or `drain`, `max_running`, `idle`; `by`
    is the workload that it made room for ("": none, or not visible to the caller), `by_project` its
    project.
    """

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
