"""What consolidation may search in a pool over time."""

from __future__ import annotations

import random

import pytest

from jupyter_gpushare.core.cluster import trial_budget
from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cluster.trial_budget import BURST, PER_SECOND, TrialBudget
from jupyter_gpushare.core.cluster.undo_log import UndoLog
from jupyter_gpushare.core.cycle.cycle import cycle, what_if
from jupyter_gpushare.core.eviction.solver import MAX_TRIES, Solver
from jupyter_gpushare.core.model.events import WorkloadEnded, WorkloadSubmitted
from jupyter_gpushare.core.model.model import Node, Pod, Workload
from tests.core.strategies import picture, policy_of, release, workload, world


def test_it_fills_with_time_and_undoing_restores_it() -> None:
    budget, undo_log = TrialBudget(), UndoLog()
    budget.charge(undo_log, 1_000_000, BURST + 100)
    assert budget.left(1_000_000) == -100
    assert budget.left(1_001_000) == PER_SECOND - 100
    for now in range(1_000_000, 1_002_000):  # nothing is lost in small steps
        budget.charge(undo_log, now, 0)
    assert budget.left(1_002_000) == 2 * PER_SECOND - 100
    assert budget.left(9_000_000) == BURST
    undo_log.undo_to(0)
    assert budget.left(0) == BURST


def crowded() -> Cluster:
    """Forty GPUs full of small shares of ten projects, and much more that waits."""
    rng = random.Random(1)
    cluster = world(
        policy_of({f"P{i}": 4 for i in range(10)}),
        [Node(f"n{i}", gpus=8, gpu_memory=80_000) for i in range(5)],
    )
    for i in range(500):
        share = rng.choice([0.1, 0.25, 0.5, 0.7, 1, 2])
        asked = workload(f"w{i}", f"P{i % 10}", share, pods=rng.choice([1, 1, 2]), created=i)
        cluster.apply(WorkloadSubmitted(asked))
    return cluster


def searches(monkeypatch: pytest.MonkeyPatch) -> list[Solver]:
    """Collects those of consolidation."""
    found, solve = [], Solver.solve

    def recorded(solver: Solver) -> bool:
        if solver.max_moved is not None:
            found.append(solver)
        return solve(solver)

    monkeypatch.setattr(Solver, "solve", recorded)
    return found


def test_ends_in_a_crowded_pool_cost_a_bounded_number_of_trials(monkeypatch) -> None:
    found = searches(monkeypatch)
    cluster = crowded()
    for now in range(100, 5000, 100):
        release(cluster, cycle(cluster, now))
        running = sorted(w.id for w in cluster.workloads.values() if w.running)
        if running:
            cluster.apply(WorkloadEnded(running[now // 100 % len(running)]))
    assert BURST < sum(one.trials for one in found) <= BURST + PER_SECOND * 5 + MAX_TRIES


def test_every_class_is_searched_in_turn(monkeypatch) -> None:
    """With a budget of one search per second, none of three that all fail is forgotten."""
    monkeypatch.setattr(trial_budget, "BURST", 1)
    monkeypatch.setattr(trial_budget, "PER_SECOND", 100)
    found = searches(monkeypatch)
    nodes = [Node(f"n{i}", gpus=2, labels={"a": "x", "b": "x"}) for i in range(2)]
    cluster = world(policy_of({"A": 4}), nodes, [workload(f"v{i}", "A", 0.6) for i in range(4)])
    cycle(cluster, 0)
    for name, labels in (("w0", {}), ("w1", {"a": "x"}), ("w2", {"b": "x"})):
        pods = (Pod(name, gpu=700, node_selector=labels),)
        cluster.apply(WorkloadSubmitted(Workload(name, "A", pods, created=1)))
    for now in range(1000, 4000, 1000):
        cluster.apply(WorkloadSubmitted(workload(f"s{now}", "A", 0.1, created=now)))
        assert not cycle(cluster, now).evictions
        cluster.apply(WorkloadEnded(f"s{now}"))
    assert [one.work.id for one in found] == ["w0", "w1", "w2"]


def test_a_what_if_costs_nothing(monkeypatch) -> None:
    found = searches(monkeypatch)
    cluster = crowded()
    for now in (100, 200):
        release(cluster, cycle(cluster, now))
    trials = cluster._state.pools["default"].trials
    before, searched = (picture(cluster), trials.left(300)), len(found)
    what_if(cluster, workload("asked", "P0", 2, created=9000), 300)
    assert len(found) > searched
    assert (picture(cluster), trials.left(300)) == before
