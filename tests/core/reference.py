"""A second, slow implementation of the scheduling rules, to compare the engine with.

It covers whole GPUs, one pool, gangs, and queues of any depth (docs/explanation/scheduling.md).
Every number is recomputed from the list of pods when it is needed; nothing is indexed or cached. It
shares only the division of fair shares with the engine, which has its own test vectors.
"""

from __future__ import annotations

from collections.abc import Callable

from jupyter_gpushare.core.fairness.fairshare import Claim, divide

from .reference_rules import (
    Judge,
    Victims,
    all_placed,
    consolidation_may,
    consolidation_victims,
    could_move,
    fair,
    inside_quota,
    lower_in_queue,
    other_queues,
    reclaim_may,
)
from .reference_search import solve
from .reference_world import BIG, Job, Queue, Task, World, asked, waiting

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
    evicting(world, other_queues, fair, lambda w, j: reclaim_may(w, j), or_move=True)
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


def evicting(
    world: World,
    victims: Victims,
    judge: Judge,
    may: Callable[[World, Job], bool],
    *,
    or_move: bool = False,
) -> None:
    """`or_move`: if this fails, the victims may be moved, unless consolidation has tried that."""

    def serve(job: Job) -> bool:
        if not may(world, job):
            return False
        if solve(world, job, victims, judge):
            return True
        is_tried = not or_move or job.preemptible
        return not is_tried and could_move(world, job) and solve(world, job, victims, all_placed)

    in_turn(world, serve)
