"""Second implementation: which victims each evicting action may take, and what it judges."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from .reference_world import BIG, Job, World, active, asked

Victims = Callable[[World, Job], list[Job]]
Judge = Callable[[World, Job, int, list[Job], dict[str, int]], bool]


def consolidation_may(world: World, job: Job) -> bool:
    return job.preemptible and could_move(world, job)


def could_move(world: World, job: Job) -> bool:
    """Whether enough is free in total, and no limit or quota is the obstacle."""
    free = sum(world.room(node)[1] for node in world.nodes)
    return free >= asked(job) and world.gate(job, asked(job))


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
