"""Turns: what is idle gives way to waiting cells, and nothing else does."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cluster.work import Work
from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.activity import Activity
from jupyter_gpushare.core.model.decisions import Decisions, Evict
from jupyter_gpushare.core.model.errors import Conflict
from jupyter_gpushare.core.model.events import (
    ActivityReported,
    EvictionCancelled,
    PodReleased,
    WorkloadHeld,
    WorkloadSubmitted,
)
from jupyter_gpushare.core.model.model import Node, NodePool, Policy, Workload
from jupyter_gpushare.core.model.reason import ReasonCode
from jupyter_gpushare.core.pool_options import chosen
from jupyter_gpushare.scheduler.simulation.sessions import Notebook, Session, Wait
from tests.core.strategies import picture, policy_of, workload, world
from tests.example_counts import examples

EXAMPLES = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck)
)
GPU = Node("n0", gpus=1, gpu_memory=80_000)
IDLE = Activity(idle_since=1000, turn_since=0)


def sharing(min_turn: int = 1000, max_turn: int | None = None) -> tuple[NodePool, ...]:
    rules = (("enabled", True), ("min_turn", min_turn), ("max_turn", max_turn))
    return (NodePool("default", options=chosen(time_sharing=rules)),)


def policy(quotas: dict[str, float], **rules: Any) -> Policy:
    return policy_of(quotas, node_pools=sharing(**rules))


def notebook(id_: str, project: str = "p", gpu: float = 0.5, **more: Any) -> Workload:
    return workload(id_, project, gpu, priority=more.pop("priority", 75), **more)


def report(cluster: Cluster, id_: str, activity: Activity) -> None:
    cluster.apply(ActivityReported(id_, activity))


def classroom(*running: Workload, nodes: list[Node] | None = None, **rules: Any) -> Cluster:
    """These workloads run, and nothing is free on one GPU."""
    cluster = world(policy({"p": 1, "q": 0}, **rules), nodes or [GPU], running)
    cycle(cluster, 0)
    cycle(cluster, 0)
    return cluster


def wait(cluster: Cluster, asked: Workload, since: int, now: int = 20_000) -> Decisions:
    """A cell of this workload waits."""
    cluster.apply(WorkloadSubmitted(asked))
    report(cluster, asked.id, Activity(waits_since=since))
    return cycle(cluster, now)


def taken(decisions: Decisions) -> list[str]:
    return [e.workload for e in decisions.evictions if e.action == "rotate"]


def test_the_least_recently_used_gives_way_and_is_the_only_one() -> None:
    cluster = classroom(notebook("a"), notebook("b", created=1))
    report(cluster, "a", replace(IDLE, idle_since=3000))
    report(cluster, "b", replace(IDLE, idle_since=2000))
    decisions = wait(cluster, notebook("c", created=2), since=10_000)
    assert taken(decisions) == ["b"]
    assert [p.workload for p in decisions.pipelines] == ["c"]
    cluster.apply(PodReleased("b", "b-0"))
    cluster.apply(WorkloadHeld("b", held=True))
    assert [b.workload for b in cycle(cluster, 21_000).binds] == ["c"]


@pytest.mark.parametrize(
    "activity",
    [
        Activity(),
        Activity(turn_since=0),
        replace(IDLE, is_pinned=True),
        replace(IDLE, can_save=False),
        replace(IDLE, waits_since=5000),
        replace(IDLE, turn_since=19_500),
        replace(IDLE, turn_since=15_000, copy_ms=6000),
    ],
    ids=["unreported", "runs", "pinned", "unsavable", "waits", "min-turn", "copy"],
)
def test_what_is_in_use_or_protected_keeps_its_share(activity: Activity) -> None:
    cluster = classroom(notebook("a", gpu=1))
    report(cluster, "a", activity)
    assert not wait(cluster, notebook("c", gpu=1, created=2), since=10_000).evictions


def test_without_the_option_or_a_waiting_cell_nothing_gives_way() -> None:
    for pools, activity in (
        ((NodePool("default"),), Activity(waits_since=1)),
        (sharing(), Activity()),
    ):
        cluster = world(policy_of({"p": 1}, node_pools=pools), [GPU], [notebook("a", gpu=1)])
        cycle(cluster, 0)
        report(cluster, "a", IDLE)
        cluster.apply(WorkloadSubmitted(notebook("c", gpu=1, created=2)))
        report(cluster, "c", activity)
        assert not cycle(cluster, 20_000).evictions


def test_a_decision_says_when_the_next_turn_ends() -> None:
    cluster = classroom(notebook("a", gpu=1))
    report(cluster, "a", replace(IDLE, turn_since=19_500))
    assert wait(cluster, notebook("c", gpu=1, created=2), since=10_000).retry_at == 20_500


def test_cells_are_served_in_the_order_of_their_arrival_not_of_their_workloads() -> None:
    cluster = classroom(notebook("a", gpu=1))
    cluster.apply(WorkloadSubmitted(notebook("old", gpu=1, created=1)))
    cluster.apply(WorkloadSubmitted(notebook("quiet", gpu=1, created=1)))
    report(cluster, "old", Activity(waits_since=9000))
    report(cluster, "a", IDLE)
    decisions = wait(cluster, notebook("young", gpu=1, created=5), since=8000)
    assert [p.workload for p in decisions.pipelines] == ["young"]
    assert decisions.positions == {"young": 1, "old": 2, "quiet": 3}
    assert decisions.reasons["old"].code == ReasonCode.WAITING_FOR_TURN
    assert decisions.reasons["quiet"].code != ReasonCode.WAITING_FOR_TURN


def test_a_larger_copy_makes_a_notebook_wait_longer_before_it_gives_way() -> None:
    cluster = classroom(notebook("a"), notebook("b", created=1))
    report(cluster, "a", replace(IDLE, idle_since=1000, copy_ms=2000))
    report(cluster, "b", replace(IDLE, idle_since=2000))
    assert taken(wait(cluster, notebook("c", created=2), since=10_000)) == ["b"]


def test_a_whole_gpu_takes_two_halves_of_one_gpu_and_leaves_the_others() -> None:
    node = Node("n0", gpus=2, gpu_memory=80_000)
    halves = [notebook(name, created=i) for i, name in enumerate("abcd")]
    cluster = classroom(*halves, nodes=[node])
    for i, name in enumerate("acbd"):  # a and b share a GPU, and so do c and d
        report(cluster, name, replace(IDLE, idle_since=1000 + i))
    decisions = wait(cluster, notebook("whole", gpu=1, created=9), since=10_000)
    assert set(taken(decisions)) == {"a", "b"}
    assert cluster.state("c", "c-0") == "running"


def test_a_higher_priority_and_a_non_preemptible_workload_do_not_give_way() -> None:
    cluster = classroom(notebook("a", priority=100, preemptible=True), notebook("b", priority=100))
    cluster2 = classroom(notebook("b", gpu=1, preemptible=False))
    for one, names in ((cluster, "ab"), (cluster2, "b")):
        for name in names:
            report(one, name, IDLE)
        assert not taken(wait(one, notebook("c", created=3), since=10_000))


@pytest.mark.parametrize(
    ("quotas", "other", "leaving"),
    [({"p": 0.5, "q": 0.5}, "p", []), ({"p": 1, "q": 0}, "q", ["a"])],
    ids=["at-its-fair-share", "above-it"],
)
def test_other_projects_give_way_only_above_their_fair_share(
    quotas: dict[str, float], other: str, leaving: list[str]
) -> None:
    cluster = world(policy(quotas), [GPU], [notebook("a", "q"), notebook("b", other)])
    cycle(cluster, 0)
    cycle(cluster, 0)
    report(cluster, "a", IDLE)
    assert taken(wait(cluster, notebook("c", "p", created=2), since=10_000)) == leaving


def test_after_max_turn_a_running_cell_gives_way_and_a_shorter_one_does_not() -> None:
    for now, leaving in ((59_000, []), (60_000, ["a"])):
        cluster = classroom(notebook("a", gpu=1), max_turn=60_000)
        report(cluster, "a", Activity(turn_since=0))
        decisions = wait(cluster, notebook("c", gpu=1, created=2), since=10_000, now=now)
        assert [e.workload for e in decisions.evictions if e.action == "max_turn"] == leaving
        assert decisions.retry_at == (None if leaving else 60_000)


def test_a_share_that_is_in_use_after_all_is_kept_and_counted_as_before() -> None:
    cluster = classroom(notebook("a"), notebook("b", created=1))
    before = picture(cluster)
    report(cluster, "a", IDLE)
    assert taken(wait(cluster, notebook("c", created=2), since=10_000)) == ["a"]
    report(cluster, "a", Activity())
    cluster.apply(EvictionCancelled("a", "a-0"))
    assert cluster.state("a", "a-0") == "running"
    with pytest.raises(Conflict):
        cluster.apply(EvictionCancelled("a", "a-0"))
    assert not cycle(cluster, 30_000).evictions
    assert picture(cluster)["nodes"] == before["nodes"]


def test_full_host_memory_is_a_reason_before_anything_is_started() -> None:
    cluster = classroom(notebook("a", gpu=1))
    report(cluster, "a", replace(IDLE, can_save=False, is_host_full=True))
    decisions = wait(cluster, notebook("c", gpu=1, created=2), since=10_000)
    assert not decisions.evictions
    assert decisions.reasons["c"].code == ReasonCode.HOST_MEMORY_FULL


# ---- laws ----------------------------------------------------------------------------------------


@st.composite
def activities(draw: st.DrawFn) -> Activity:
    times = st.integers(0, 20_000)
    return Activity(
        waits_since=draw(st.none() | times),
        idle_since=draw(st.none() | times),
        turn_since=draw(st.none() | times),
        copy_ms=draw(st.sampled_from([0, 500, 12_000])),
        is_pinned=draw(st.sampled_from([False, False, True])),
        can_save=draw(st.sampled_from([True, True, False])),
    )


def is_over(activity: Activity, now: int) -> bool:
    """Whether a turn may end, from the rules alone."""
    idle = activity.idle_since is not None and activity.waits_since is None
    known = activity.turn_since is not None and activity.can_save and not activity.is_pinned
    if not idle or not known:
        return False
    assert activity.turn_since is not None
    return now >= activity.turn_since + max(1000, activity.copy_ms)


def holds(work: Work) -> bool:
    """Whether a pod runs, or was bound by the last cycle and runs from the next one on."""
    return any(member.status in ("running", "bound") for member in work.members.values())


@EXAMPLES
@given(st.data())
def test_only_idle_unprotected_preemptible_single_pods_give_way(data: st.DataObject) -> None:
    """Also: no limit is exceeded, no GPU is promised twice, and the waiting cell has a place."""
    quotas = {"p": data.draw(st.sampled_from([0, 1, 2])), "q": data.draw(st.sampled_from([0, 1]))}
    size = st.sampled_from([0.25, 0.5, 1.0])
    cluster = world(policy(quotas), [Node("n0", gpus=2, gpu_memory=80_000)])
    for i in range(data.draw(st.integers(2, 8))):
        asked = notebook(
            f"w{i}",
            data.draw(st.sampled_from("pq")),
            data.draw(size),
            pods=data.draw(st.sampled_from([1, 1, 1, 2])),
            priority=data.draw(st.sampled_from([50, 75, 75, 100])),
            preemptible=data.draw(st.sampled_from([True, True, False])),
            created=i,
        )
        cluster.apply(WorkloadSubmitted(asked))
    for now in (0, 10_000, 20_000):
        for id_ in cluster.workloads:
            report(cluster, id_, data.draw(activities()))
        started = {id_ for id_, work in cluster.workloads.items() if holds(work)}
        decisions = cycle(cluster, now)
        promised = {p.workload for p in decisions.pipelines}
        for evict in decisions.evictions:
            if evict.action == "rotate":
                work = cluster.workloads[evict.workload]
                assert evict.workload in started
                assert is_over(work.activity, now)
                assert work.preemptible
                assert len(work.members) == 1
                assert evict.by in promised
                assert cluster.workloads[evict.by].activity.waits_since is not None
        for node in cluster.nodes.values():
            held, _, later = node.gpu
            assert all(h + p <= node.capacity for h, p in zip(held, later, strict=True))
        for evict in decisions.evictions:
            cluster.apply(PodReleased(evict.workload, evict.pod))


def bound_ms(wait: Wait, slots: int, longest: int, copy: int, protect: int) -> int:
    """Those ahead and this one, in rounds of `slots`. Who has a protected turn may begin another
    cell just before its end.
    """
    rounds = -(-(wait.ahead + 1) // slots)
    return rounds * (longest + copy + protect)


@EXAMPLES
@given(st.data())
def test_every_waiting_cell_is_served_within_the_bound_of_a_first_come_queue(
    data: st.DataObject,
) -> None:
    slots = data.draw(st.sampled_from([2, 4]))
    count = data.draw(st.integers(1, 14))
    copy, min_turn = (
        data.draw(st.sampled_from([0, 300, 2000])),
        data.draw(st.sampled_from([0, 1000])),
    )
    cluster = world(
        policy({"p": 0}, min_turn=min_turn), [Node("n0", gpus=slots // 2, gpu_memory=80_000)]
    )
    pinned = data.draw(st.integers(0, slots - 1))
    evictions: list[tuple[int, Activity]] = []

    def watch(now: int, evict: Evict, activity: Activity) -> None:
        assert evict.action == "rotate"
        evictions.append((now, activity))

    def think(chance: random.Random) -> int:
        return chance.randint(1, 8000)

    notebooks = [
        Notebook(
            notebook(f"w{i:02}", created=i),
            think,
            lambda chance: chance.randint(1, 3000),
            copy,
            is_pinned=i < pinned,
        )
        for i in range(count)
    ]
    session = Session(cluster, notebooks, seed=data.draw(st.integers(0, 99)), watch=watch)
    waits = session.run(60_000)
    for now, activity in evictions:
        assert activity.idle_since is not None
        assert not activity.is_pinned
        assert activity.turn_since is not None
        assert now >= activity.turn_since + max(min_turn, copy)
    free = slots - min(pinned, count)
    for one in waits:
        assert one.waited <= bound_ms(one, free, 3000, copy, max(min_turn, copy))
    for _, waited in session.unserved(60_000):
        assert waited <= bound_ms(Wait("", 0, 0, 0, count), free, 3000, copy, max(min_turn, copy))
