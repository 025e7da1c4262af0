"""A second, slow implementation of the scheduling rules, to compare the engine with.

It covers whole GPUs, one pool, gangs, and queues of any depth (docs/explanation/scheduling.md).
Every number is recomputed from the list of pods when it is needed; nothing is indexed or cached. It
shares only the division of fair shares with the engine, which has its own test vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from jupyter_gpushare.core.fairness.fairshare import Claim, divide

from .reference_world import ACTIVE, BIG, Job, Queue, Task, World, active, asked, held, waiting

__all__ = ["BIG", "Job", "Queue", "Task", "World", "run_cycle"]


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
