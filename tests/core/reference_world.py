"""The cluster model of the second implementation: queues, jobs, queue order, placement, gates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cmp_to_key

__all__ = [
    "BIG",
    "Job",
    "Queue",
    "Task",
    "World",
    "active",
    "asked",
    "held",
    "is_settled",
    "waiting",
]

BIG = 10**9


@dataclass
class Task:
    """One pod of `gpus` whole GPUs. `old` is the node that a moved pod has not left yet."""

    job: str
    name: str
    gpus: int
    state: str = "pending"
    node: str | None = None
    old: str | None = None
    nominated: str | None = None


@dataclass
class Job:
    """A gang: all its pods or none."""

    name: str
    queue: str
    priority: int
    created: int
    tasks: list[Task]

    @property
    def preemptible(self) -> bool:
        return self.priority < 100


@dataclass
class Queue:
    """Quota and limit in GPUs; BIG is unlimited."""

    name: str
    parent: str | None
    quota: int
    limit: int
    weight: int
    rank: int
    created: int = 0


@dataclass
class World:
    """The cluster. `fair` is fixed per cycle."""

    nodes: dict[str, int]
    queues: dict[str, Queue]
    jobs: dict[str, Job]
    fair: dict[str, int] = field(default_factory=dict)

    # -- sums

    def tasks(self) -> Iterator[Task]:
        for job in self.jobs.values():
            yield from job.tasks

    def path(self, queue: str) -> list[str]:
        """The queue and all its ancestors."""
        names = [queue]
        while (parent := self.queues[names[-1]].parent) is not None:
            names.append(parent)
        return names

    def jobs_below(self, queue: str) -> list[Job]:
        return [job for job in self.jobs.values() if queue in self.path(job.queue)]

    def allocated(self, queue: str, *, non_preemptible: bool = False) -> int:
        """Allocated GPUs: running, bound and promised pods; or only the non-preemptible ones."""
        return sum(
            task.gpus
            for job in self.jobs_below(queue)
            if not (non_preemptible and job.preemptible)
            for task in job.tasks
            if task.state in ("running", "bound", "pipelined")
        )

    def total(self) -> int:
        return sum(self.nodes.values())

    def share(self, queue: str) -> int:
        q = self.queues[queue]
        return q.limit if q.quota == BIG else min(q.limit, max(q.quota, self.fair[queue]))

    def room(self, node: str) -> tuple[int, int]:
        """GPUs that are idle and not promised; GPUs that are idle or being released and not
        promised.

        Promises take idle GPUs first.
        """
        held = sum(
            t.gpus for t in self.tasks() if t.node == node and t.state in ("running", "bound")
        )
        leaving = sum(
            t.gpus
            for t in self.tasks()
            if (t.node == node and t.state == "releasing") or t.old == node
        )
        promised = sum(t.gpus for t in self.tasks() if t.node == node and t.state == "pipelined")
        idle = self.nodes[node] - held - leaving
        return max(0, idle - promised), self.nodes[node] - held - promised

    # -- queue order

    def dominant(self, queue: str, amount: int) -> Fraction:
        share = self.share(queue)
        if share == BIG:
            return Fraction(amount, max(1, self.total()))
        return Fraction(amount, share) if share else Fraction(amount * 1000)

    def before(self, a: tuple[str, int, int], b: tuple[str, int, int]) -> int:
        """Compares two siblings: (name, GPUs requested, GPUs already taken from it)."""
        keys = []
        for name, ask, taken in (a, b):
            q, held = self.queues[name], self.allocated(name)
            keys.append(
                (
                    not held + ask <= q.quota,
                    -q.rank,
                    self.share(name) == 0 and held + ask > 0,
                    self.dominant(name, held + ask - taken),
                    self.dominant(name, held),
                    self.share(name),
                    q.created,
                    name,
                )
            )
        return -1 if keys[0] < keys[1] else 1

    def pick(
        self,
        jobs: list[Job],
        parent: str | None,
        ask: Callable[[Job], int],
        taken: dict[str, int],
        *,
        last: bool,
    ) -> Job:
        """The next job below `parent`; `last` reverses every comparison (victim order)."""
        siblings: dict[str, list[Job]] = {}
        for job in jobs:
            path = self.path(job.queue)
            level = path.index(parent) - 1 if parent is not None else len(path) - 1
            if level < 0:
                if last:
                    return max(jobs, key=lambda j: (-j.priority, j.created, j.name))
                return min(jobs, key=lambda j: (not promised(j), -j.priority, j.created, j.name))
            siblings.setdefault(path[level], []).append(job)
        best = {
            name: self.pick(below, name, ask, taken, last=last) for name, below in siblings.items()
        }
        if last:
            entries = [(name, 0, taken.get(name, 0) + ask(job)) for name, job in best.items()]
        else:
            entries = [(name, ask(job), 0) for name, job in best.items()]
        ordered = sorted(entries, key=cmp_to_key(self.before))
        return best[ordered[-1 if last else 0][0]]

    # -- placement

    def seat(self, task: Task, *, only_promise: bool) -> bool:
        """Places one pod on the best node; False if it fits nowhere."""
        rooms = {node: self.room(node) for node in self.nodes if self.nodes[node]}
        if not rooms:
            return False
        most, least = max(r[1] for r in rooms.values()), min(r[1] for r in rooms.values())
        scores = []
        for node, (now, later) in rooms.items():
            if later < task.gpus:
                continue
            packed = (
                Fraction(9) if most == least else 9 * (1 - Fraction(later - least, most - least))
            )
            if most == 0:
                packed = Fraction(0)
            scores.append(
                (-(packed + 100 * (now >= task.gpus) + 1_000_000 * (task.nominated == node)), node)
            )
        if not scores:
            return False
        node = min(scores)[1]
        now = self.room(node)[0] >= task.gpus
        if task.state == "releasing" and task.node == node:
            task.state = "running"  # it is not touched (decision 0009)
            return True
        if task.state == "releasing":
            task.old = task.node
        task.node, task.state = node, "bound" if now and not only_promise else "pipelined"
        return True

    def gate(self, job: Job, ask: int) -> bool:
        """The limit and, for non-preemptible jobs, the quota, on every level."""
        for name in self.path(job.queue):
            if self.allocated(name) + ask > self.queues[name].limit:
                return False
            if (
                not job.preemptible
                and self.allocated(name, non_preemptible=True) + ask > self.queues[name].quota
            ):
                return False
        return True

    def save(self) -> list[tuple[Task, str, str | None, str | None]]:
        return [(t, t.state, t.node, t.old) for t in self.tasks()]

    def restore(self, saved: list[tuple[Task, str, str | None, str | None]]) -> None:
        for task, state, node, old in saved:
            task.state, task.node, task.old = state, node, old


def promised(job: Job) -> bool:
    """Whether the last cycle promised it a place, so that it is first in its own queue (decision
    0009).
    """
    return any(t.nominated is not None and t.state == "pending" for t in job.tasks)


def waiting(job: Job) -> list[Task]:
    return [t for t in job.tasks if t.state == "pending"]


def asked(job: Job) -> int:
    return sum(t.gpus for t in waiting(job))


ACTIVE = ("running",)
"""Pods bound in this cycle are no victims (decision 0009)."""


def active(job: Job) -> bool:
    return any(t.state in ACTIVE for t in job.tasks)


def is_settled(job: Job) -> bool:
    """A gang of which a pod was moved in this cycle is no victim: that pod would stay alone."""
    return not any(t.state in ("bound", "pipelined") for t in job.tasks)


def held(job: Job) -> int:
    return sum(t.gpus for t in job.tasks if t.state in ("running", "bound"))
