"""The latest start times of pending workloads."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core.cycle.projection import STEPS, project_starts
from jupyter_gpushare.core.model.events import (
    PodEvicted,
    PodReleased,
    WorkloadEnded,
    WorkloadSubmitted,
)
from jupyter_gpushare.core.model.model import Node, Policy, Project
from tests.core.strategies import picture, policy_of, quota, run, workload, world
from tests.example_counts import examples

NOTICE = 30_000


def starts(cluster, coming, now=0, **more):
    """Workload -> its latest start time."""
    return {
        id_: at
        for at, started in project_starts(cluster, coming, now, notice=NOTICE, **more)
        for id_ in started
    }


def full(*waiting, gpus=1, running=1):
    """`running` workloads of one GPU that run, and the pending ones behind them."""
    held = [workload(f"r{i}", "p", created=i) for i in range(running)]
    cluster = world(policy_of({"p": gpus}), [Node("n", gpus=gpus)], held)
    run(cluster, 2)
    for one in waiting:
        cluster.apply(WorkloadSubmitted(one))
    run(cluster)
    return cluster


def test_a_pending_workload_starts_when_running_ones_end():
    cluster = full(workload("w", "p", created=9))
    assert starts(cluster, [(5000, WorkloadEnded("r0"))]) == {"w": 5000}


def test_later_positions_start_later():
    cluster = full(workload("w", "p", created=8), workload("x", "p", created=9), gpus=2, running=2)
    assert starts(cluster, [(5000, WorkloadEnded("r0")), (9000, WorkloadEnded("r1"))]) == {
        "w": 5000,
        "x": 9000,
    }


def test_without_an_end_nothing_is_bound():
    cluster = full(workload("w", "p", created=8), workload("x", "p", created=9))
    assert starts(cluster, []) == {}
    assert starts(cluster, [(5000, WorkloadEnded("r0"))]) == {"w": 5000}


def test_evicted_pods_leave_at_the_end_of_their_notice():
    cluster = full(workload("w", "p", created=9))
    cluster.apply(PodEvicted("r0", "r0-0"))
    assert starts(cluster, [(7000, PodReleased("r0", "r0-0"))], now=1000) == {"w": 7000}


def test_a_workload_on_trial_waits_for_its_victims():
    policy = Policy(
        projects=(
            Project("p", None, {"default": quota(1)}),
            Project("q", None, {"default": quota(0)}),
        )
    )
    cluster = world(policy, [Node("n", gpus=1)], [workload("r0", "q")])
    run(cluster, 2)
    asked = workload("asked", "p", created=5)
    assert starts(cluster, [], now=1000, workload=asked) == {"asked": 1000 + NOTICE}
    assert starts(cluster, [], now=1000) == {}


def test_one_that_lost_its_place_does_not_end_when_it_would_have():
    """The longest running time starts again with the next lease."""
    policy = Policy(
        projects=(
            Project("p", None, {"default": quota(1)}),
            Project("q", None, {"default": quota(0)}),
        )
    )
    cluster = world(policy, [Node("n", gpus=1)], [workload("r0", "q")])
    run(cluster, 2)
    asked = workload("asked", "p", created=5)
    assert starts(cluster, [(NOTICE * 2, WorkloadEnded("r0"))], now=0, workload=asked) == {
        "asked": NOTICE
    }


def test_many_ends_are_taken_together_and_none_is_lost():
    waiting = [workload(f"w{i:02}", "p", created=100 + i) for i in range(30)]
    cluster = full(*waiting, gpus=30, running=30)
    coming = [(1000 * (i + 1), WorkloadEnded(f"r{i}")) for i in range(30)]
    found = starts(cluster, coming)
    assert set(found) == {one.id for one in waiting}
    assert len(set(found.values())) <= STEPS + 1
    assert all(found[f"w{i:02}"] >= 1000 * (i + 1) for i in range(30)), (
        "never earlier than the exact moment"
    )


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 4), st.lists(st.integers(0, 50_000), max_size=6), st.integers(0, 3))
def test_the_cluster_is_unchanged_also_if_the_projection_is_closed_early(waiting, ends, looks):
    cluster = full(
        *[workload(f"w{i}", "p", gpu=0.5, created=50 + i) for i in range(waiting)],
        gpus=3,
        running=3,
    )
    before = picture(cluster)
    coming = [(at, WorkloadEnded(f"r{i}")) for i, at in enumerate(ends)]
    with closing(
        project_starts(
            cluster, coming, 0, notice=NOTICE, workload=workload("asked", "p", created=99)
        )
    ) as seen:
        for _ in range(looks):
            next(seen, None)
    assert picture(cluster) == before


def test_an_invalid_workload_changes_nothing():
    cluster = full()
    before = picture(cluster)
    with pytest.raises(Exception, match="pods"):
        list(project_starts(cluster, [], 0, notice=NOTICE, workload=workload("w", "p", pods=0)))
    assert picture(cluster) == before
