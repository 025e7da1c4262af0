"""A second, slow implementation of the scheduling rules, to compare the engine with.

It covers whole GPUs, one pool, gangs, and queues of any depth (docs/explanation/scheduling.md).
Every number is recomputed from the list of pods when it is needed; nothing is indexed or cached. It
shares only the division of fair shares with the engine, which has its own test vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cmp_to_key

from jupyter_gpushare.core.fairness.fairshare import Claim, divide

__all__ = ["BIG", "Job", "Queue", "Task", "World", "run_cycle"]

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


def run_cycle(world: World) -> None:
    """Runs a whole cycle in place: settles the last one, then the four actions that are
    compared.
    """
    for task in world.tasks():
        if task.state == "bound":
            task.state = "running"
        task.nominated = task.node if task.state == "pipelined" else None
        if task.state == "pipelined":
            task.state, task.node, task.old = "pending", None, None
        if task.state == "releasing":
            task.state, task.node = "pending", None
    divide_shares(world)
    allocate(world)
    evicting(world, consolidation_victims, all_placed, lambda w, j: consolidation_may(w, j))
    evicting(world, other_queues, fair, lambda w, j: reclaim_may(w, j))
    evicting(world, lower_in_queue, lambda *_: True, inside_quota)


def divide_shares(world: World) -> None:
    claims = []
    for queue in world.queues.values():
        wanted = sum(
            t.gpus
            for job in world.jobs_below(queue.name)
            for t in job.tasks
            if t.state in ("running", "pending")
        )
        claims.append(
            Claim(
                queue.name,
                queue.parent,
                queue.rank,
                queue.created,
                queue.quota if queue.quota < BIG else 1 << 60,
                queue.limit if queue.limit < BIG else 1 << 60,
                queue.weight,
                wanted,
            )
        )
    world.fair = divide(world.total(), claims, unit=1)


def in_turn(world: World, serve: Callable[[Job], bool]) -> None:
    """Tries every pending job once in order, which is recomputed after each."""
    todo = [job for job in world.jobs.values() if waiting(job)]
    while todo:
        job = world.pick(todo, None, asked, {}, last=False)
        todo.remove(job)
        serve(job)


def allocate(world: World) -> None:
    def serve(job: Job) -> bool:
        saved, tasks = world.save(), waiting(job)
        if not world.gate(job, asked(job)) or not all(
            [world.seat(task, only_promise=False) for task in tasks]
        ):
            world.restore(saved)
            return False
        if any(task.state == "pipelined" for task in tasks):
            for task in tasks:
                task.state = "pipelined"
        return True

    in_turn(world, serve)


# -- evicting actions

Victims = Callable[[World, Job], list[Job]]
Judge = Callable[[World, Job, int, list[Job], dict[str, int]], bool]


def evicting(
    world: World, victims: Victims, judge: Judge, may: Callable[[World, Job], bool]
) -> None:
    def serve(job: Job) -> bool:
        return may(world, job) and solve(world, job, victims, judge)

    in_turn(world, serve)


def solve(world: World, job: Job, victims: Victims, judge: Judge) -> bool:
    tasks, recorded = waiting(job), []
    start, before = world.save(), {name: world.allocated(name) for name in world.queues}
    for k in range(1, len(tasks) + 1):
        found = widen(world, job, tasks[:k], victims, judge, recorded, before)
        if found is None:
            world.restore(start)
            return False
        recorded = found
        if k < len(tasks):
            world.restore(start)
    return True


def widen(
    world: World,
    job: Job,
    tasks: list[Task],
    victims: Victims,
    judge: Judge,
    recorded: list[Job],
    before: dict[str, int],
) -> list[Job] | None:
    """Takes one more victim after the other until the tasks fit; returns the victims needed."""
    candidates, potential, taken = victims(world, job), [], {}
    if not candidates and not recorded:
        return None  # nothing is simulated without candidates
    if victims is other_queues:
        ask = asked(job)
        candidates = [
            v for v in candidates if may_take(world, job, ask, v, before)
        ]  # queues without anything to take are left out
    while True:
        # The engine also tries without victims, so that room left by an earlier eviction is used
        # first.
        for evicted in attempts(world, recorded, potential):
            saved = world.save()
            outcome = attempt(world, job, tasks, evicted, judge, before)
            if outcome is True:
                return evicted
            world.restore(saved)
            if outcome is None:
                break
        victim = None
        while (
            victim is None or victim in recorded
        ):  # these are popped again and count, but are evicted already
            if not candidates:
                return None
            victim = world.pick(candidates, None, held, taken, last=True)
            candidates.remove(victim)
            for name in world.path(victim.queue):
                taken[name] = taken.get(name, 0) + held(victim)
        potential.append(victim)


def held(job: Job) -> int:
    return sum(t.gpus for t in job.tasks if t.state in ("running", "bound"))


def attempts(world: World, recorded: list[Job], potential: list[Job]) -> Iterator[list[Job]]:
    """The sets to evict: the recorded ones, with all potential ones on a node of the latest."""
    if not potential:
        yield recorded
        return
    for node in sorted({t.node for t in potential[-1].tasks if t.node is not None}):
        yield [*recorded, *(v for v in potential if any(t.node == node for t in v.tasks))]


def attempt(
    world: World,
    job: Job,
    tasks: list[Task],
    evicted: list[Job],
    judge: Judge,
    before: dict[str, int],
) -> bool | None:
    """Evicts, places the tasks and then the victims in order. None: placed, but not allowed."""
    for victim in evicted:
        for task in victim.tasks:
            if task.state in ACTIVE:
                task.state = "releasing"
    gone = {victim.name: [t for t in victim.tasks if t.state == "releasing"] for victim in evicted}
    todo = {job.name: tasks, **gone}
    while todo:
        best = world.pick(
            [world.jobs[name] for name in todo],
            None,
            lambda j: sum(t.gpus for t in todo[j.name]),
            {},
            last=False,
        )
        wanted = todo.pop(best.name)
        saved = world.save()
        ask = sum(t.gpus for t in wanted)
        if not world.gate(best, ask) or not all([world.seat(t, only_promise=True) for t in wanted]):
            world.restore(saved)
            if best is job:
                return False
    lost = [v for v in evicted if any(t.state == "releasing" for t in v.tasks)]
    for victim in evicted:  # a job that is placed where it was is not affected
        for task in victim.tasks:
            if task.state == "pipelined" and task.old == task.node:
                task.state, task.old = "running", None
    return True if judge(world, job, sum(t.gpus for t in tasks), lost, before) else None


def consolidation_may(world: World, job: Job) -> bool:
    return job.preemptible and sum(world.room(node)[1] for node in world.nodes) >= asked(job)


def consolidation_victims(world: World, job: Job) -> list[Job]:
    return [v for v in world.jobs.values() if v is not job and v.preemptible and active(v)]


def all_placed(world: World, job: Job, ask: int, lost: list[Job], before: dict[str, int]) -> bool:
    del world, job, ask, before
    return not lost


def reclaim_may(world: World, job: Job) -> bool:
    return world.allocated(job.queue) + asked(job) <= world.fair[job.queue] and inside_quota(
        world, job
    )


def inside_quota(world: World, job: Job) -> bool:
    """Non-preemptible jobs evict only within quota, on every level."""
    levels = world.path(job.queue)
    return job.preemptible or all(
        world.allocated(name, non_preemptible=True) + asked(job) <= world.queues[name].quota
        for name in levels
    )


def other_queues(world: World, job: Job) -> list[Job]:
    return [v for v in world.jobs.values() if v.queue != job.queue and v.preemptible and active(v)]


def levelled(world: World, job: Job, victim: Job) -> tuple[str, str]:
    """The ancestors of both projects just below their lowest common ancestor."""
    mine, theirs = world.path(job.queue), world.path(victim.queue)
    common = next((name for name in mine if name in theirs), None)
    return (
        (mine[mine.index(common) - 1], theirs[theirs.index(common) - 1])
        if common
        else (mine[-1], theirs[-1])
    )


def may_take(world: World, job: Job, ask: int, victim: Job, rest: dict[str, int]) -> bool:
    """The victim's side is above its share; or the reclaimer stays within its quota and the
    victim's side is above its own.
    """
    a, b = levelled(world, job, victim)
    return rest[b] > world.share(b) or (
        rest[a] + ask <= world.queues[a].quota and rest[b] > world.queues[b].quota
    )


def lower_in_queue(world: World, job: Job) -> list[Job]:
    return [
        v
        for v in world.jobs.values()
        if v.queue == job.queue and v.preemptible and active(v) and v.priority < job.priority
    ]


def fair(world: World, job: Job, ask: int, lost: list[Job], before: dict[str, int]) -> bool:
    """The rules of reclaim for a set of victims (docs/explanation/scheduling.md, Reclaim)."""
    rest, touched = dict(before), set()
    for victim in lost:
        if not may_take(world, job, ask, victim, rest):
            return False
        touched.add(levelled(world, job, victim))
        for name in world.path(victim.queue):
            rest[name] -= sum(t.gpus for t in victim.tasks)
    for a, b in touched:
        x, share, other = rest[a] + ask, world.fair[a], world.fair[b]
        ratio = Fraction(x, share) if share else Fraction(BIG)
        if ratio > 1 and other > 0 and ratio >= Fraction(rest[b], other):
            return False
    return True
