"""Measures past usage of queues, for pools with time-based fair share, from the leases in the
store, so that restarts lose nothing. Decides nothing; its results are facts for the cluster.

Only GPUs are measured: leases hold nothing else. The past capacity is taken to be the present one,
from the first lease in the window on; for a cluster that grew this lowers all usage alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

import jupyter_gpushare.messages as m
from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.fairness.usage import UsageSample, usage_of
from jupyter_gpushare.core.model.amounts import GPU, Amounts
from jupyter_gpushare.core.model.events import UsageMeasured
from jupyter_gpushare.core.model.model import NodePool, Policy

from ..config.consistency import IMPLICIT_DEPARTMENT

__all__ = ["UsageMeter", "LeaseSpan", "spans_of", "usage_facts"]

INTERVAL: Final = 60_000
"""ms between two measurements; the resolution of usage queries in KAI-Scheduler."""


class LeaseSpan(NamedTuple):
    """One lease: `gpu` milli-GPU of a project in a pool, from `start` to `end` (ms)."""

    project: str
    pool: str
    gpu: int
    start: int
    end: int


class LeaseSpans(Protocol):
    """Where leases are stored."""

    def lease_spans(self, ended_after: int) -> list[tuple[m.LeaseBody, int, int | None]]: ...


class UsageMeter:
    """Measures once a minute. Ended leases are read once and kept while they are in a window;
    current ones are read every time.
    """

    def __init__(self, spans: LeaseSpans) -> None:
        self._spans = spans
        self._kept: list[LeaseSpan] = []
        self._read_until: int | None = None
        self._due = 0

    def measure(self, cluster: Cluster, now: int) -> list[UsageMeasured]:
        """Changes of usage; none between measurements, and none without a pool with time-based fair
        share.
        """
        windows = [pool.time_based.window for pool in cluster.policy.node_pools if pool.time_based]
        if not windows or now < self._due:
            return []
        self._due = now + INTERVAL
        horizon = now - max(windows)
        rows = self._spans.lease_spans(max(horizon, self._read_until or horizon))
        fresh = list(spans_of(rows, cluster, now))
        facts = usage_facts(
            cluster.policy, [*self._kept, *fresh], lambda pool: _capacity(cluster, pool), now
        )
        ended = [span for span, (_, _, end) in zip(fresh, rows, strict=True) if end is not None]
        self._kept = [span for span in (*self._kept, *ended) if span.end > horizon]
        self._read_until = max((span.end for span in ended), default=self._read_until)
        return [
            fact
            for fact in facts
            if cluster.usage.get((fact.queue, fact.pool), (0, 0, 0)) != fact.usage
        ]


def usage_facts(
    policy: Policy, spans: Iterable[LeaseSpan], capacity: Callable[[str], int], now: int
) -> list[UsageMeasured]:
    """The usage of every queue in every pool with time-based fair share: projects and their
    departments.
    """
    above = _paths(policy)
    by_pool: dict[str, list[LeaseSpan]] = {}
    for span in spans:
        by_pool.setdefault(span.pool, []).append(span)
    return [
        fact
        for pool in policy.node_pools
        if pool.time_based
        for fact in _in_pool(pool, by_pool, above, capacity(pool.name), now)
    ]


def _in_pool(
    pool: NodePool,
    by_pool: dict[str, list[LeaseSpan]],
    above: dict[str, list[str]],
    capacity: int,
    now: int,
) -> list[UsageMeasured]:
    assert pool.time_based is not None
    window, half_life = pool.time_based.window, pool.time_based.half_life
    spans = [span for span in by_pool.get(pool.name, []) if span.end > now - window]
    begun = max(now - window, min((span.start for span in spans), default=now))
    samples = [UsageSample(begun, now - begun, Amounts(capacity), {})]
    for span in spans:
        held = {queue: Amounts(span.gpu) for queue in above.get(span.project, [])}
        samples.append(UsageSample(span.start, span.end - span.start, Amounts(), held))
    usage = usage_of(samples, now, window=window, half_life=half_life)
    queues = sorted({queue for path in above.values() for queue in path})
    return [UsageMeasured(queue, pool.name, usage.get(queue, (0, 0, 0))) for queue in queues]


def spans_of(
    rows: Iterable[tuple[m.LeaseBody, int, int | None]], cluster: Cluster, now: int
) -> Iterable[LeaseSpan]:
    """The leases as spans; current ones end now."""
    for lease, start, end in rows:
        yield LeaseSpan(
            lease.project,
            lease.pool,
            _milli_gpu(lease, cluster),
            start,
            now if end is None else end,
        )


def _milli_gpu(lease: m.LeaseBody, cluster: Cluster) -> int:
    """The lease's milli-GPU: as requested, or by its memory on a node of known size."""
    if lease.request.gpu is not None and lease.request.gpu >= 1:
        return round(lease.request.gpu * GPU)
    if lease.request.gpu is not None:
        return round(lease.request.gpu * GPU) * len(lease.planned_gpus)
    node = cluster.nodes.get(lease.node)
    size = node.node.gpu_memory if node else 0
    return min(GPU, lease.request_mib * GPU // size) * len(lease.planned_gpus) if size else 0


def _capacity(cluster: Cluster, pool: str) -> int:
    """Milli-GPU of the pool's ready nodes."""
    return sum(
        node.total.gpu for node in cluster.nodes.values() if node.pool == pool and node.node.ready
    )


def _paths(policy: Policy) -> dict[str, list[str]]:
    """Each project with its departments."""
    parents = {department.name: department.parent for department in policy.departments}
    paths = {}
    for project in policy.projects:
        path, at = [project.name], project.department if policy.departments else IMPLICIT_DEPARTMENT
        while at is not None and at not in path:
            path.append(at)
            at = parents.get(at)
        paths[project.name] = path
    return paths
