"""Options of a node pool: off by default, and what each changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.events import UsageMeasured, WorkloadEnded, WorkloadSubmitted
from jupyter_gpushare.core.model.model import Node, NodePool, Policy, TimeBased
from jupyter_gpushare.core.model.reason import ReasonCode
from jupyter_gpushare.core.pool_options import chosen
from tests.core.strategies import policy_of, release, run, workload, world


def pool(**options: object) -> tuple[NodePool, ...]:
    fixed = {name: options.pop(name) for name in ("time_based", "defragment") if name in options}
    return (NodePool("default", options=chosen(**options), **fixed),)  # type: ignore[arg-type]


def with_pool(policy: Policy, **options: object) -> Policy:
    return replace(policy, node_pools=pool(**options))


@pytest.mark.parametrize(("victims", "lost"), [("fair", {"gang"}), ("smallest", {"small"})])
def test_smallest_victims(victims: str, lost: set[str]) -> None:
    """In victim order the newest is evicted, even a gang of five for one GPU; the option evicts the
    one that suffices.
    """
    policy = with_pool(policy_of({"A": 4, "B": 0}), victims=victims)
    cluster = world(
        policy,
        [Node("n0", gpus=8)],
        [
            workload("small", "B", created=0),
            workload("x", "A", 2),
            workload("gang", "B", pods=5, created=1),
        ],
    )
    cycle(cluster, 0)
    cluster.apply(WorkloadSubmitted(workload("w", "A", created=2)))
    decisions = cycle(cluster, 1000)
    assert {e.workload for e in decisions.evictions} == lost
    assert [p.workload for p in decisions.pipelines] == ["w"]


def stream(reserve_after: int | None) -> tuple[bool, set[str]]:
    """A gang of two whole nodes waits while small requests come and go.

    Returns whether it started, and the reasons of the last small requests.
    """
    policy = with_pool(policy_of({"A": 0}), reserve_after=reserve_after)
    small = [workload(f"s{i}", "A", created=i) for i in range(8)]
    cluster = world(policy, [Node("n0", gpus=4), Node("n1", gpus=4), Node("n2", gpus=1)], small)
    cycle(cluster, 0)
    cluster.apply(WorkloadSubmitted(workload("gang", "A", 4, pods=2, created=8000)))
    codes: set[str] = set()
    for i in range(8, 40):
        running = sorted(
            (w.created, w.id) for w in cluster.workloads.values() if w.running and w.id != "gang"
        )
        if running:
            cluster.apply(WorkloadEnded(running[0][1]))
        cluster.apply(WorkloadSubmitted(workload(f"s{i}", "A", created=1000 * i)))
        decisions = cycle(cluster, 1000 * i)
        codes = {r.code for id_, r in decisions.reasons.items() if id_ != "gang"}
        if "gang" in {b.workload for b in decisions.binds}:
            return True, codes
    return False, codes


def test_a_starving_gang_starts_only_with_a_reservation() -> None:
    assert stream(None)[0] is False
    assert stream(10_000)[0] is True


def test_a_reservation_is_named_as_the_reason() -> None:
    policy = with_pool(policy_of({"A": 0}), reserve_after=10_000)
    cluster = world(policy, [Node("n0", gpus=4)], [workload("a", "A", 2, created=0)])
    cycle(cluster, 0)
    cluster.apply(WorkloadSubmitted(workload("big", "A", 4, created=1)))
    cycle(cluster, 20_000)
    cluster.apply(WorkloadSubmitted(workload("late", "A", created=2)))
    decisions = cycle(cluster, 21_000)
    assert decisions.binds == ()
    assert decisions.reasons["late"].code == ReasonCode.WAITING_FOR_RESERVATION
    assert decisions.reasons["late"].numbers["free_total"] == 2
    cluster.apply(WorkloadEnded("big"))
    assert [b.workload for b in cycle(cluster, 22_000).binds] == ["late"]


MINUTE = 60_000


@pytest.mark.parametrize(
    ("running", "asked", "minutes", "starts"),
    [
        (3, 1, 60, True),
        (3, 1, 61, False),
        (3, 1, None, False),
        (2, 1, 600, False),
        (2, 2, 30, True),
        (2, 3, 30, False),
    ],
)
def test_what_ends_in_time_uses_reserved_gpus(running, asked, minutes, starts) -> None:
    """Four GPUs: some end after an hour, a gang needs all four. EASY backfilling: others may use
    what is free until then.
    """
    policy = with_pool(policy_of({"A": 0}), reserve_after=1)
    holds = workload("holds", "A", 1, pods=running, created=0, max_running=60 * MINUTE)
    cluster = world(policy, [Node("n0", gpus=4)], [holds])
    cycle(cluster, 2)
    cluster.apply(WorkloadSubmitted(workload("big", "A", 4, created=0)))
    limit = None if minutes is None else minutes * MINUTE
    cluster.apply(WorkloadSubmitted(workload("x", "A", asked, created=1, max_running=limit)))
    decisions = cycle(cluster, 2)
    assert (decisions.binds != ()) is starts, decisions.reasons
    assert cluster.state("big", "big-0") == "pending"


def test_reserved_gpus_are_kept_while_an_end_is_not_known() -> None:
    policy = with_pool(policy_of({"A": 0}), reserve_after=1)
    cluster = world(policy, [Node("n0", gpus=4)], [workload("holds", "A", 3, created=0)])
    cycle(cluster, 0)
    cluster.apply(WorkloadSubmitted(workload("big", "A", 4, created=0)))
    cluster.apply(WorkloadSubmitted(workload("x", "A", created=1, max_running=MINUTE)))
    assert cycle(cluster, 2).binds == ()


def test_no_reservation_takes_what_was_promised_to_who_evicted_for_it() -> None:
    """The evicted workloads have waited for longer, if the time counts from their creation."""
    policy = with_pool(policy_of({"A": 0}), reserve_after=3000)
    low = [workload(f"low{i}", "A", priority=50, created=0) for i in range(2)]
    cluster = world(policy, [Node("n0", gpus=2)], low)
    cycle(cluster, 0)
    high = workload("high", "A", 0.6, gpu_devices=2, priority=75, created=1)
    cluster.apply(WorkloadSubmitted(high))
    decisions = cycle(cluster, 5000)
    assert {e.workload for e in decisions.evictions} == {"low0", "low1"}
    release(cluster, decisions)
    assert [b.workload for b in cycle(cluster, 6000).binds] == ["high"]


@pytest.mark.parametrize(
    ("usage", "shares"), [("cluster", {"A": 3, "B": 7}), ("siblings", {"A": 1, "B": 9})]
)
def test_usage_among_siblings(usage: str, shares: dict[str, int]) -> None:
    """In a small department, the project that used more gets less; relative to capacity the
    difference is smaller.
    """
    policy = with_pool(policy_of({"A": 0, "B": 0}), usage=usage, time_based=TimeBased(k=1000))
    asks = [workload(f"{p}{i}", p, created=i) for p in "AB" for i in range(10)]
    cluster = world(policy, [Node("n0", gpus=10)], asks)
    cluster.apply(UsageMeasured("A", "default", (600_000, 0, 0)))
    cluster.apply(UsageMeasured("B", "default", (100_000, 0, 0)))
    found = {
        q.queue: q.fair_share.gpu // 1000 for q in cycle(cluster, 0).queues if q.kind == "project"
    }
    assert found == shares


def test_defragment_keeps_whole_gpus_whole() -> None:
    """Halves fill the node that lacks the CPU for whole-GPU requests."""
    nodes = [
        Node("n0", gpus=2, gpu_memory=1000, cpu=64_000),
        Node("n1", gpus=2, gpu_memory=1000, cpu=4_000),
    ]
    typical = [workload(f"t{i}", "A", 2, cpu=32_000, created=i) for i in range(6)]
    spots = {}
    for on in (False, True):
        cluster = world(
            with_pool(policy_of({"A": 8}), defragment=on),
            nodes,
            [workload("half", "A", 0.5, cpu=1000, created=-1), *typical],
        )
        decisions = cycle(cluster, 0)
        spots[on] = {b.workload: b.spot.node for b in decisions.binds}
        release(cluster, decisions)
    assert spots[False]["half"] == "n0"
    assert spots[True]["half"] == "n1"
    assert len(spots[True]) > len(spots[False])


def test_defaults_change_nothing() -> None:
    plain, named = (
        NodePool("default"),
        pool(victims="fair", reserve_after=None, usage="cluster", defragment=False)[0],
    )
    asks = [workload(f"w{i}", "A", created=i) for i in range(3)]
    one, other = (
        world(replace(policy_of({"A": 2}), node_pools=(p,)), [Node("n0", gpus=2)], asks)
        for p in (plain, named)
    )
    assert run(one, 3) == run(other, 3) or run(one).binds == run(other).binds
