"""The metrics: name, kind, labels and meaning. `metrics` fills them; docs/reference/metrics.md
lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["EVICTING", "METRICS", "PREFIX", "RUNGS", "MetricRow", "metric"]

WAITS: Final = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)
CYCLES: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30)
SYNCS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2)
RUNGS: Final = ("caches", "notice", "suspended", "moved", "killed")
"""The steps by which agents reclaim memory, as they count them."""

EVICTING: Final = (
    "consolidation",
    "reclaim",
    "preempt",
    "stale_gang_eviction",
    "drain",
    "max_running",
    "idle",
)
"""Sources of evictions: actions of the cycle, a drain, and rules of the policy."""
PREFIX: Final = "gpushare_"
QUEUE: Final = ("queue", "kind", "pool", "resource")


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One family. A counter's series end in `_total`. `note`: what an operator should know besides
    `help`, for the documentation.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    note: str = ""

    @property
    def series(self) -> str:
        """The name in queries."""
        return f"{PREFIX}{self.name}" + ("_total" if self.kind == "counter" else "")


METRICS: Final = (
    MetricRow("queue_quota", "gauge", "quota of a queue: GPUs, cores or MiB.", QUEUE),
    MetricRow(
        "queue_limit", "gauge", "limit of a queue: GPUs, cores or MiB.", QUEUE, note="`+Inf`: none."
    ),
    MetricRow("queue_fair_share", "gauge", "fair_share of a queue: GPUs, cores or MiB.", QUEUE),
    MetricRow("queue_allocated", "gauge", "allocated of a queue: GPUs, cores or MiB.", QUEUE),
    MetricRow("queue_requested", "gauge", "requested of a queue: GPUs, cores or MiB.", QUEUE),
    MetricRow(
        "workloads",
        "gauge",
        "Workloads by state and reason.",
        ("state", "reason", "pool"),
        note="`reason` is the [reason code](errors.md) of pending ones, empty for running ones.",
    ),
    MetricRow(
        "people",
        "gauge",
        "People with a GPU, or waiting without one, by project.",
        ("project", "state"),
        note="`state`: holding, waiting. Names of people are in no metric.",
    ),
    MetricRow(
        "booked_gpus",
        "gauge",
        "GPUs of the bookings that are under way.",
        ("pool", "state"),
        note="`state`: used, unused (kept free). A booking is under way from its lead on.",
    ),
    MetricRow(
        "lease_memory_bytes",
        "gauge",
        "GPU memory of all leases, as reported by agents.",
        ("kind",),
        note="`kind`: used, guaranteed, borrowed.",
    ),
    MetricRow(
        "ungated_kernels",
        "gauge",
        "Kernels with a lease whose cells do not ask before they run.",
        ("node",),
        note="[What is governed how](../how-to/kernels.md).",
    ),
    MetricRow(
        "node_ready",
        "gauge",
        "1: the node accepts workloads; 0: it does not, with the reason.",
        ("node", "reason"),
        note="One series per [node condition](errors.md).",
    ),
    MetricRow(
        "agent_tier",
        "gauge",
        "1: the node's agent has this capability.",
        ("node", "tier"),
        note="[Capability tiers](../how-to/real-gpus.md); no series otherwise.",
    ),
    MetricRow(
        "grant_wait_seconds", "histogram", "From submission to the first grant.", buckets=WAITS
    ),
    MetricRow(
        "gate_wait_seconds",
        "histogram",
        "From a cell's start until it is allowed to run.",
        buckets=WAITS,
    ),
    MetricRow(
        "suspend_seconds", "histogram", "Saving a kernel's GPU memory to the host.", buckets=CYCLES
    ),
    MetricRow("resume_seconds", "histogram", "Restoring a kernel's GPU memory.", buckets=CYCLES),
    MetricRow(
        "evictions",
        "counter",
        "Pods evicted, by the action that did it.",
        ("action",),
        note="An action of the cycle (`reclaim`, `preempt`, `consolidation`,"
        " `stale_gang_eviction`), an administrator's `drain`, or a rule of the policy"
        " (`max_running`, `idle`).",
    ),
    MetricRow(
        "reclaims",
        "counter",
        "GPU memory reclaimed on nodes, by step.",
        ("rung",),
        note="For other workloads: `caches`, `notice`, `suspended`, `moved`, `killed`. Actions of"
        " the owner (`%gpu suspend`) do not count.",
    ),
    MetricRow(
        "cycle_seconds",
        "histogram",
        "Duration of a cycle.",
        ("action",),
        CYCLES,
        note="`all` is the whole cycle, so do not sum over actions.",
    ),
    MetricRow(
        "sync_seconds",
        "histogram",
        "Syncing commits to the disk, before they are announced.",
        buckets=SYNCS,
        note="SQLite; a slow disk shows here first.",
    ),
    MetricRow(
        "loop_lag_seconds",
        "histogram",
        "Delay of a timer: how long calls wait while the event loop is busy.",
        buckets=CYCLES,
    ),
)


def metric(name: str) -> MetricRow:
    """The row of this name. Raises KeyError."""
    return _BY_NAME[name]


_BY_NAME: Final = {row.name: row for row in METRICS}
