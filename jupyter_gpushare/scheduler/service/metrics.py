"""Prometheus metrics. Gauges are read from the service on each scrape; counts and times are
recorded as they happen.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from typing import Final

import prometheus_client as prometheus
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.amounts import MILLI
from jupyter_gpushare.core.model.decisions import Decisions

from ..state.workload_records import WorkloadRecord
from ..store.reads import EVENTS_KEPT
from .metric_table import EVICTING, PREFIX, RUNGS, metric
from .queue_demand import queues_with_changes
from .service import SchedulerService
from .tables import queue_rows

__all__ = ["Metrics"]

MIB: Final = 1 << 20
UNLIMITED: Final = float("inf")
TOOK: Final = {
    "gate_waits_ms": "gate_wait_seconds",
    "suspends_ms": "suspend_seconds",
    "resumes_ms": "resume_seconds",
}
"""Field of a usage report -> histogram."""


class Metrics:
    """Of one service, in its own registry, so that two services in one process do not mix."""

    def __init__(self, service: SchedulerService) -> None:
        self._service = service
        self._registry = prometheus.CollectorRegistry()
        self._cycle_seconds = self._histogram("cycle_seconds")
        self._sync_seconds = self._histogram("sync_seconds")
        self._lag_seconds = self._histogram("loop_lag_seconds")
        self._grant_wait = self._histogram("grant_wait_seconds")
        self._took = {field: self._histogram(name) for field, name in TOOK.items()}
        self._evictions = self._counter("evictions")
        self._reclaims = self._counter("reclaims")
        # A series that starts at 0 has a rate from its first event on; one that appears with its
        # first event has lost that event.
        for action in EVICTING:
            self._evictions.labels(action)
        for rung in RUNGS:
            self._reclaims.labels(rung)
        service.unit_of_work.store.disk.on_synced = self._sync_seconds.observe
        service.unit_of_work.on_evicted = lambda one: self._evictions.labels(one.evict.action).inc()
        self._registry.register(_StateCollector(service))
        prometheus.ProcessCollector(registry=self._registry)
        prometheus.GCCollector(registry=self._registry)
        prometheus.PlatformCollector(registry=self._registry)

    def _histogram(self, name: str) -> prometheus.Histogram:
        row = metric(name)
        return prometheus.Histogram(
            PREFIX + name, row.help, row.labels, registry=self._registry, buckets=row.buckets
        )

    def _counter(self, name: str) -> prometheus.Counter:
        row = metric(name)
        return prometheus.Counter(PREFIX + name, row.help, row.labels, registry=self._registry)

    def text(self) -> bytes:
        """The text exposition format."""
        return prometheus.generate_latest(self._registry)

    def cycle(self, decisions: Decisions, seconds: dict[str, float]) -> None:
        """A cycle was committed; `seconds` of each action, and of "all"."""
        for action, took in seconds.items():
            self._cycle_seconds.labels(action).observe(took)
        granted = {(bind.workload, bind.spot.node) for bind in decisions.binds}
        for workload, nodes in Tally(workload for workload, _ in granted).items():
            record = self._service.unit_of_work.records.get(workload)
            if record is not None and _is_first_grant(record, nodes):
                self._grant_wait.observe(
                    max(0, self._service.unit_of_work.clock() - record.workload.created) / 1000
                )

    def lag(self, seconds: float) -> None:
        """One measurement of the event loop's lag."""
        self._lag_seconds.observe(seconds)

    def report(self, message: m.FromAgent) -> None:
        """A report of an agent was accepted."""
        if isinstance(message, m.UsageReport):
            for name, histogram in self._took.items():
                for ms in getattr(message, name):
                    histogram.observe(max(0, ms) / 1000)
            for rung in RUNGS:
                self._reclaims.labels(rung).inc(max(0, message.rungs.get(rung, 0)))


class _StateCollector:
    """Gauges of the service's state, as a Prometheus collector."""

    def __init__(self, service: SchedulerService) -> None:
        self._service = service

    def describe(self) -> list[Metric]:
        """Empty: registering would otherwise collect once."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._queues()
        yield self._workloads()
        yield self._people()
        yield self._bookings()
        yield self._memory()
        yield self._ungated()
        yield from self._nodes()

    def _queues(self) -> Iterator[Metric]:
        queues = queues_with_changes(self._service.unit_of_work)
        rows = queue_rows(queues, {q.queue for q in queues})
        for name in ("quota", "limit", "fair_share", "allocated", "requested"):
            family = _family(f"queue_{name}")
            for row in rows:
                value = getattr(row, name)
                family.add_metric(
                    [row.queue, row.kind, row.pool, row.resource],
                    UNLIMITED if value is None else value,
                )
            yield family

    def _workloads(self) -> Metric:
        family = _family("workloads")
        tally = Tally(self._kind(record) for record in self._service.unit_of_work.records.values())
        for labels, count in tally.items():
            family.add_metric(labels, count)
        return family

    def _people(self) -> Metric:
        """People, not names: the number of series does not grow with them."""
        holding: set[tuple[str, str]] = set()
        waiting: set[tuple[str, str]] = set()
        for record in self._service.unit_of_work.records.values():
            if record.leases:
                holding.add((record.project, record.user))
            elif record.pending_since is not None:
                waiting.add((record.project, record.user))
        family = _family("people")
        for state, people in (("holding", holding), ("waiting", waiting - holding)):
            for project, count in sorted(Tally(project for project, _ in people).items()):
                family.add_metric([project, state], count)
        return family

    def _kind(self, record: WorkloadRecord) -> tuple[str, str, str]:
        """The pool is where it runs, else the first that it may use. Not through a view: ten
        thousand views would delay decisions.
        """
        state, reason, pool = self._service.pending_status.summary(record)
        return state, str(reason.code) if reason else "", pool

    def _bookings(self) -> Metric:
        """Pools without bookings have no series."""
        family, unit_of_work = _family("booked_gpus"), self._service.unit_of_work
        now, booked, unused = unit_of_work.clock(), Tally[str](), Tally[str]()
        for window in unit_of_work.booked_windows:
            booked[window.pool] += window.gpu if window.is_open(now) else 0
        for room in unit_of_work.cluster.booked_rooms:
            unused[room.window.pool] += room.gpu
        for pool, milli in sorted((+booked).items()):
            family.add_metric([pool, "used"], max(0, milli - unused[pool]) / MILLI)
            family.add_metric([pool, "unused"], unused[pool] / MILLI)
        return family

    def _memory(self) -> Metric:
        family = _family("lease_memory_bytes")
        reports = [
            report.memory_mib
            for record in self._service.unit_of_work.records.values()
            for report in record.reports.values()
        ]
        for kind in ("used", "guaranteed", "borrowed"):
            family.add_metric([kind], MIB * sum(getattr(memory, kind) for memory in reports))
        return family

    def _ungated(self) -> Metric:
        family = _family("ungated_kernels")
        counts = dict.fromkeys(self._service.unit_of_work.cluster.nodes, 0)
        for record in self._service.unit_of_work.records.values():
            for lease in record.leases.values():
                report = record.reports.get(lease.id)
                if report is not None and not report.gated:
                    counts[lease.node] = counts.get(lease.node, 0) + 1
        for node, count in sorted(counts.items()):
            family.add_metric([node], count)
        return family

    def _nodes(self) -> Iterator[Metric]:
        ready = _family("node_ready")
        tiers = _family("agent_tier")
        for name, state in sorted(self._service.unit_of_work.cluster.nodes.items()):
            for reason in state.node.reasons or ("",):
                ready.add_metric([name, reason], 1 if state.node.ready else 0)
            for tier in self._service.unit_of_work.nodes.report(name).tiers:
                tiers.add_metric([name, tier], 1)
        yield ready
        yield tiers


def _family(name: str) -> GaugeMetricFamily:
    row = metric(name)
    return GaugeMetricFamily(PREFIX + name, row.help, labels=row.labels)


def _is_first_grant(record: WorkloadRecord, nodes: int) -> bool:
    """Whether what was just granted on so many nodes is its first grant: each node has an event,
    and no event has been dropped.
    """
    return (
        len(record.events) < EVENTS_KEPT
        and sum(event.kind == "granted" for event in record.events) == nodes
    )
