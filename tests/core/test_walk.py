"""The walk limited by the easiest requests decides what the full walk decides."""

from __future__ import annotations

import random

import pytest

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cluster.easiest_requests import covers, request_sizes
from jupyter_gpushare.core.cycle import walk
from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.amounts import GPU
from jupyter_gpushare.core.model.decisions import Decisions
from jupyter_gpushare.core.model.events import WorkloadEnded, WorkloadSubmitted
from jupyter_gpushare.core.model.model import Department, Node, Pod, Policy, Project, Workload
from tests.core.strategies import quota, release, world
from tests.example_counts import examples

SEEDS = range(examples(40))
CYCLES = 4


def department_policy(choose: random.Random) -> Policy:
    """Four projects in two departments."""
    return Policy(
        departments=tuple(
            Department(name, None, {"default": quota(choose.choice([0, 4, 8]))}) for name in "de"
        ),
        projects=tuple(
            Project(
                f"p{i}",
                "de"[i % 2],
                {"default": quota(choose.choice([0, 1, 2, 4]), choose.choice([None, None, 4]))},
            )
            for i in range(4)
        ),
    )


def request(choose: random.Random, number: int) -> Workload:
    """One of many kinds: whole GPUs, shares, gangs, elastic workloads, two priorities."""
    count = choose.choice([1, 1, 1, 1, 2, 3])
    gpu, cpu = choose.choice([GPU, GPU, 2 * GPU, 4 * GPU, 500, 300]), choose.randrange(0, 4000, 100)
    priority = choose.choice([50, 50, 75, 100])
    return Workload(
        f"w{number:03}",
        f"p{choose.randrange(4)}",
        tuple(Pod(f"w{number:03}-{i}", gpu=gpu, cpu=cpu) for i in range(count)),
        priority=priority,
        preemptible=priority < 100,
        created=choose.randrange(9),
        min_pods=choose.choice([None, 1]),
    )


def history(seed: int) -> list[Decisions]:
    """The decisions of a few cycles in which workloads come and go."""
    choose = random.Random(seed)
    sizes = [choose.choice([2, 4, 8]) for _ in range(3)]
    machines = [Node(f"n{i}", gpus=gpus, cpu=16_000) for i, gpus in enumerate(sizes)]
    cluster = world(department_policy(choose), machines)
    found, number = [], 0
    for at in range(CYCLES):
        for _ in range(choose.choice([3, 10, 20])):
            cluster.apply(WorkloadSubmitted(request(choose, number)))
            number += 1
        found.append(cycle(cluster, 1000 * at))
        release(cluster, found[-1])
        for id_ in choose.sample(sorted(cluster.workloads), 2):
            cluster.apply(WorkloadEnded(id_))
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_limited_walk_decides_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "SOME", 1000)
    expected = history(seed)
    for limit in ("MANY", "RATIO", "SOME"):
        monkeypatch.setattr(walk, limit, 0)
    limited = history(seed)
    for one, other in zip(limited, expected, strict=True):
        assert (one.binds, one.pipelines, one.evictions) == (
            other.binds,
            other.pipelines,
            other.evictions,
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_every_pending_request_asks_for_no_less_than_an_easiest_one(seed: int) -> None:
    """After requests have come and gone, and with the priority of the easier one at least as
    high.
    """
    choose = random.Random(seed)
    cluster: Cluster = world(department_policy(choose), [])
    for number in range(60):
        cluster.apply(WorkloadSubmitted(request(choose, number)))
        if number % 3 == 2:
            cluster.apply(WorkloadEnded(choose.choice(sorted(cluster.workloads))))
        cluster._state.refresh()
    groups = cluster._state.easiest.groups("default")
    assert sum(len(group.all()) for group in groups) == len(cluster._state.eq_classes)
    for group in groups:
        easiest = {
            eq_class: request_sizes(eq_class.sample.members_to_place())
            for eq_class in group.easiest()
        }
        for eq_class in group.all():
            sizes = request_sizes(eq_class.sample.members_to_place())
            assert any(
                covers(sizes, other) and eq_class.sample.priority <= easier.sample.priority
                for easier, other in easiest.items()
            )
