"""History: samples of a kernel and of the queues, and evictions. Rows are ordered by time."""

from __future__ import annotations

from typing import Annotated, Literal

from .columns import UNLIMITED_TEXT, column
from .common import Body, KernelState, Stamp

__all__ = [
    "EvictionRow",
    "Evictions",
    "KernelHistory",
    "KernelSample",
    "NodeHistory",
    "QueueHistory",
    "QueueSample",
    "MeasuredSeries",
    "SeriesMetric",
]

SeriesMetric = Literal[
    "utilization", "memory", "temperature", "power", "cpu", "host_memory", "saved"
]
"""Of a GPU: utilization (0..1), memory in use (MiB), temperature (°C), power (W). Of a machine: CPU
time in use (0..1), memory in use, GPU memory saved in host memory (MiB).
"""


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


class MeasuredSeries(Body, frozen=True, kw_only=True):
    """One measurement over time, at the times of the answer; null: not known. `gpu` is the UUID, or
    "" for the machine. `total`: the whole memory, or the budget of saved images; null: none.
    """

    node: str
    gpu: str
    metric: SeriesMetric
    total: int | None = None
    values: list[float | None]


class NodeHistory(Body, frozen=True, kw_only=True):
    """What agents measured in the last hour. What a GPU does not measure has no series. `left_out`:
    GPUs beyond those that fit into one answer.
    """

    times: list[Stamp]
    series: list[MeasuredSeries]
    left_out: int = 0
