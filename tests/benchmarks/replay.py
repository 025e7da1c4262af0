"""Replays jobs with the scheduler's real cycle in virtual time: arrivals, ends, evictions, and
measured usage.

An evicted job continues where it stopped when it is allocated again: its state is assumed to be
saved, as the product does for notebooks. Cycles run at fixed steps of virtual time at which there
are events; evicted GPUs are free in the same step.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.fairness.usage import UsageSample, usage_of
from jupyter_gpushare.core.model.amounts import GPU, Amounts
from jupyter_gpushare.core.model.events import (
    NodeJoined,
    PodReleased,
    UsageMeasured,
    WorkloadEnded,
    WorkloadSubmitted,
)
from jupyter_gpushare.core.model.model import Node, Pod, Policy, TimeBased, Workload

__all__ = ["HOUR", "Job", "Replay", "jain", "water_filled"]

HOUR: Final = 3_600_000
MAX_CYCLES: Final = 5
"""Per step: after evictions, the preemptors start at once."""


@dataclass(slots=True)
class Job:
    """A request and its outcome. Times in ms; pods of up to eight GPUs."""

    id: str
    project: str
    gpus: int
    arrival: int
    duration: int
    per_pod: int = 8
    remaining: int = 0
    bound: set[str] = field(default_factory=set)
    since: int = 0
    first_start: int | None = None
    evictions: int = 0
    turn: int = 0
    done: bool = False

    def __post_init__(self) -> None:
        self.remaining = self.duration

    def pods(self) -> tuple[Pod, ...]:
        sizes = [self.per_pod] * (self.gpus // self.per_pod) + (
            [self.gpus % self.per_pod] if self.gpus % self.per_pod else []
        )
        return tuple(Pod(f"{self.id}-{i}", gpu=size * GPU) for i, size in enumerate(sizes))


class Replay:
    """One run. Afterwards `held` has GPU-hours per project, and `jobs` their outcomes."""

    def __init__(
        self,
        policy: Policy,
        nodes: Sequence[Node],
        jobs: Sequence[Job],
        *,
        step: int,
        usage_every: int = HOUR,
    ) -> None:
        self.cluster = Cluster(policy)
        for node in nodes:
            self.cluster.apply(NodeJoined(node))
        self.capacity = Amounts(sum(node.gpus for node in nodes) * GPU)
        self.jobs = {job.id: job for job in jobs}
        self.arrivals = sorted(jobs, key=lambda job: (job.arrival, job.id))
        self.parents = {project.name: project.department for project in policy.projects}
        self.step, self.usage_every = step, usage_every
        pool = policy.node_pools[0]
        self.time_based = pool.time_based
        self.samples: deque[UsageSample] = deque()
        self.recent: defaultdict[str, int] = defaultdict(int)
        """Milli-GPU x ms per queue since the last measurement of usage."""
        self.now = self.measured = self.cycles = self.position = 0
        self.ends: list[tuple[int, str, int]] = []
        self.holding: defaultdict[str, int] = defaultdict(int)
        self.held: defaultdict[str, float] = defaultdict(float)
        self.evicted_gpus = 0
        self.wall = 0.0

    def run(self, until: int) -> Replay:
        """Process all events before `until`; can be called again with a later time."""
        started = time.perf_counter()
        while True:
            due = [self.ends[0][0]] if self.ends else []
            due += (
                [self.arrivals[self.position].arrival] if self.position < len(self.arrivals) else []
            )
            due += [self.measured + self.usage_every] if self.time_based and due else []
            if not due or (at := -(-min(due) // self.step) * self.step) >= until:
                break
            self._pass_to(max(at, self.now))
            self._finish()
            while (
                self.position < len(self.arrivals)
                and self.arrivals[self.position].arrival <= self.now
            ):
                job = self.arrivals[self.position]
                self.cluster.apply(
                    WorkloadSubmitted(
                        Workload(job.id, job.project, job.pods(), created=job.arrival)
                    )
                )
                self.position += 1
            self._decide()
        self._pass_to(until)
        self.wall += time.perf_counter() - started
        return self

    def _pass_to(self, at: int) -> None:
        """Add the usage until then."""
        for project, gpus in self.holding.items():
            self.held[project] += gpus * (at - self.now) / HOUR
            for queue in (project, self.parents[project]):
                if queue is not None:
                    self.recent[queue] += gpus * GPU * (at - self.now)
        self.now = at
        if self.time_based is not None and at - self.measured >= self.usage_every:
            self._measure(self.time_based)

    def _measure(self, time_based: TimeBased) -> None:
        """Report the usage of every queue in the window to the cluster."""
        length = self.now - self.measured
        means = {queue: Amounts(used // length) for queue, used in self.recent.items()}
        self.samples.append(UsageSample(self.measured, length, self.capacity, means))
        self.measured = self.now
        self.recent.clear()
        while self.samples[0].start + self.samples[0].length <= self.now - time_based.window:
            self.samples.popleft()
        usage = usage_of(
            self.samples, self.now, window=time_based.window, half_life=time_based.half_life
        )
        for queue in sorted(usage):
            self.cluster.apply(UsageMeasured(queue, "default", usage[queue]))

    def _finish(self) -> None:
        while self.ends and self.ends[0][0] <= self.now:
            _, id_, turn = heappop(self.ends)
            job = self.jobs[id_]
            if job.turn == turn:
                job.done, job.remaining = True, 0
                job.turn += 1
                self.holding[job.project] -= job.gpus
                self.cluster.apply(WorkloadEnded(id_))

    def _decide(self) -> None:
        for _ in range(MAX_CYCLES):
            decisions = cycle(self.cluster, self.now)
            self.cycles += 1
            self._start(bind.workload for bind in decisions.binds)
            for eviction in decisions.evictions:
                self._stop(self.jobs[eviction.workload])
                self.cluster.apply(PodReleased(eviction.workload, eviction.pod))
            if not decisions.evictions:
                return

    def _start(self, bound: Iterable[str]) -> None:
        for id_ in dict.fromkeys(bound):
            job = self.jobs[id_]
            job.since = self.now
            job.first_start = self.now if job.first_start is None else job.first_start
            self.holding[job.project] += job.gpus
            heappush(self.ends, (self.now + job.remaining, id_, job.turn))

    def _stop(self, job: Job) -> None:
        """Record that a running job was evicted; its other pods follow."""
        if job.since >= 0:
            job.remaining = max(1, job.remaining - (self.now - job.since))
            job.since = -1
            job.turn += 1
            job.evictions += 1
            self.evicted_gpus += job.gpus
            self.holding[job.project] -= job.gpus


def jain(values: Sequence[float]) -> float:
    """Jain's index: 1 if all are equal, 1/n if one has everything."""
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def water_filled(total: float, demands: dict[str, float]) -> dict[str, float]:
    """Fair amounts with equal weights: at most the demand, and equal parts of the rest."""
    given: dict[str, float] = {}
    left = total
    for index, (name, demand) in enumerate(
        sorted(demands.items(), key=lambda item: (item[1], item[0]))
    ):
        given[name] = min(demand, left / (len(demands) - index))
        left -= given[name]
    return given
