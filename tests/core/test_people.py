"""People inside a project of the cluster: order, limits, and courses in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core.cycle.cycle import cycle, what_if
from jupyter_gpushare.core.model.amounts import GPU
from jupyter_gpushare.core.model.events import (
    PersonMeasured,
    PodEvicted,
    PodReleased,
    WorkloadEnded,
    WorkloadHeld,
    WorkloadSubmitted,
)
from jupyter_gpushare.core.model.model import (
    MembersPolicy,
    Node,
    NodePool,
    PersonLimit,
    Policy,
    Project,
)
from tests.core.course import Course, Person, jain
from tests.core.strategies import picture, quota, workload, world
from tests.example_counts import examples

MINUTE = 60_000
DAY = 86_400_000
EQUAL = MembersPolicy("equal")
EXAMPLES = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck)
)


# -- in the cluster


def course(policy: MembersPolicy | None = EQUAL, gpus: int = 1, **more: object) -> Policy:
    project = Project("course", None, {"default": quota(0)}, members_policy=policy)
    other = Project("other", None, {"default": quota(0)})
    return Policy(projects=(project, other), **more)


def cluster_of(policy: Policy, *requests: tuple[str, str], gpus: int = 1, gpu: float = 0.5):
    """Requests as (id, user), a second apart."""
    cluster = world(policy, [Node("n", gpus=gpus, gpu_memory=80 * 1024)])
    for i, (id_, user) in enumerate(requests):
        cluster.apply(WorkloadSubmitted(workload(id_, "course", gpu, created=1000 * i, user=user)))
    return cluster


def started(decisions) -> list[str]:
    return [bind.workload for bind in decisions.binds]


HEAVY = [*((f"h{i}", "heavy") for i in range(4)), ("a1", "a"), ("b1", "b")]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(EQUAL, ["h0", "a1"]), (MembersPolicy("none"), ["h0", "h1"]), (None, ["h0", "h1"])],
)
def test_somebody_with_many_notebooks_gets_one_turn(policy: MembersPolicy | None, expected: list):
    cluster = cluster_of(course(policy), *HEAVY)
    assert started(cycle(cluster, 10_000)) == expected


def test_positions_are_the_order_of_grants():
    cluster = cluster_of(course(), *HEAVY, gpus=0)
    decisions = cycle(cluster, 10_000)
    positions = {id_: decisions.positions[id_] for id_, _ in HEAVY}
    assert sorted(positions, key=positions.__getitem__) == ["h0", "a1", "b1", "h1", "h2", "h3"]


def test_priority_comes_before_people():
    cluster = cluster_of(course(), ("a1", "a"))
    cluster.apply(PersonMeasured("course", "default", "b", 10**12, 0))
    cluster.apply(WorkloadSubmitted(workload("b1", "course", 1, created=1, user="b", priority=75)))
    assert started(cycle(cluster, 10)) == ["b1"]


def test_other_projects_are_not_affected():
    """The queue order between projects is that of the requests, regardless of their users."""
    found = {}
    for name, policy in (("plain", None), ("equal", EQUAL)):
        cluster = cluster_of(course(policy), *HEAVY, gpus=2)
        for i in range(4):
            cluster.apply(WorkloadSubmitted(workload(f"o{i}", "other", 0.5, created=i, user="o")))
        found[name] = [id_[0] == "o" for id_ in started(cycle(cluster, 10_000))]
    assert found["plain"] == found["equal"]


def test_held_time_is_charged_and_decides_the_next_turn():
    cluster = cluster_of(course(), ("a1", "a"), gpu=1)
    cycle(cluster, 0)
    cluster.apply(WorkloadSubmitted(workload("a2", "course", 1, created=1000, user="a")))
    cycle(cluster, 1000)
    cluster.advance(60_000)
    cluster.apply(WorkloadSubmitted(workload("b1", "course", 1, created=60_000, user="b")))
    cycle(cluster, 60_000)
    cluster.advance(61_000)
    cluster.apply(WorkloadEnded("a1"))
    people = cluster.people.of("course", "default")
    assert people.used("a").used == pytest.approx(61_000 * GPU, rel=1e-3)
    assert people.used("b").used == pytest.approx(60_000 * GPU, rel=1e-3), "starts like the others"
    assert started(cycle(cluster, 61_000)) == ["b1"], "a has waited as long, and was served"


def test_who_returns_does_not_collect_a_debt_of_others():
    """A newcomer alternates with the others at once, instead of having every turn for an hour."""
    cluster = cluster_of(course(), ("a1", "a"), ("b1", "b"))
    for user in "ab":
        measured = PersonMeasured("course", "default", user, 60 * MINUTE * GPU, 0, active_at=0)
        cluster.apply(measured)
    cycle(cluster, 0)
    cluster.apply(WorkloadSubmitted(workload("c1", "course", 0.5, created=1, user="c")))
    cycle(cluster, 1)
    least = cluster.people.of("course", "default").used("c").used
    assert least == pytest.approx(60 * MINUTE * GPU, rel=1e-3)


def test_time_that_a_share_was_held_is_no_waiting():
    cluster = cluster_of(course(), ("a1", "a"), gpu=1)
    cycle(cluster, 0)
    cluster.advance(5000)
    cluster.apply(PodEvicted("a1", "a1-0"))
    cluster.advance(6000)
    cluster.apply(PodReleased("a1", "a1-0"))
    assert cluster.workloads["a1"].pending_since == 6000
    cluster.apply(WorkloadHeld("a1", True))
    cluster.advance(9000)
    cluster.apply(WorkloadHeld("a1", False))
    assert cluster.workloads["a1"].pending_since == 9000


@EXAMPLES
@given(st.data())
def test_a_trial_leaves_no_trace(data: st.DataObject):
    """What-if and rollbacks leave usage, holdings and activity as they were."""
    users = st.sampled_from("abc")
    requests = [(f"w{i}", data.draw(users)) for i in range(data.draw(st.integers(1, 6)))]
    limit = PersonLimit(gpu=data.draw(st.sampled_from([None, 500, 1000])))
    cluster = cluster_of(course(replace(EQUAL, limit=limit)), *requests)
    cycle(cluster, 10_000)
    people = cluster.people.of("course", "default")

    def seen() -> object:
        held = {user: people.held[user] for user in "abc"}
        waits = {user: people.score(user) for user in "abc"}
        return (
            dict(people.usage),
            held,
            waits,
            dict(people.active),
            cluster.people.now,
            picture(cluster),
        )

    before = seen()
    what_if(cluster, workload("x", "course", 0.5, user=data.draw(users)), 20_000)
    mark = cluster.checkpoint()
    cluster.advance(30_000)
    for id_, _ in data.draw(st.lists(st.sampled_from(requests), unique=True)):
        cluster.apply(WorkloadEnded(id_))
    cycle(cluster, 30_000)
    cluster.rollback(mark)
    assert seen() == before


# -- limits


def limited(gpu: int | None, **more: object) -> Policy:
    return course(MembersPolicy(limit=PersonLimit(gpu=gpu)), **more)


def test_a_person_at_the_limit_waits_with_the_numbers():
    cluster = cluster_of(limited(500), ("a1", "a"), ("a2", "a"), ("b1", "b"), gpus=2)
    decisions = cycle(cluster, 10_000)
    assert started(decisions) == ["a1", "b1"]
    reason = decisions.reasons["a2"]
    assert str(reason.code) == "OverPersonLimit"
    assert reason.message == (
        'Over your limit in project "course": you hold 0.5 of 0.5 GPU, 0.5 more requested.'
    )
    assert (reason.numbers["limit"], reason.numbers["allocated"]) == (0.5, 0.5)
    assert [help_.change for help_ in reason.helps] == ["release", "wait"]
    cluster.apply(WorkloadEnded("a1"))
    assert started(cycle(cluster, 11_000)) == ["a2"]


def test_a_request_that_exceeds_the_limit_alone_gets_a_smaller_one_suggested():
    cluster = cluster_of(limited(500), gpus=1)
    found = what_if(cluster, workload("a1", "course", 1, user="a"), 0)
    assert str(found.reason.code) == "OverPersonLimit"
    assert [(help_.change, help_.to) for help_ in found.reason.helps] == [("gpu", "0.5")]


def test_the_limit_of_a_project_counts_in_all_pools_and_that_of_a_pool_there():
    rules = MembersPolicy(limit=PersonLimit(gpu=1000))
    own = {"b": MembersPolicy(limit=PersonLimit(gpu=500))}
    pools = {"default": quota(0), "b": quota(0)}
    project = Project("course", None, pools, members_policy=rules, pool_members_policies=own)
    policy = Policy(node_pools=(NodePool("default"), NodePool("b")), projects=(project,))
    nodes = [Node(f"n-{pool}", pool, gpus=4, gpu_memory=80) for pool in ("default", "b")]
    cluster = world(policy, nodes)
    for i, pool in enumerate(("b", "b", "default", "default")):
        one = workload(f"w{i}", "course", 0.5, created=i, user="a", node_pools=(pool,))
        cluster.apply(WorkloadSubmitted(one))
    assert started(cycle(cluster, 0)) == ["w0", "w2"]
    cluster.apply(WorkloadEnded("w0"))
    assert len(started(cycle(cluster, 1000))) == 1, "a release in one pool helps in the other"


@EXAMPLES
@given(st.data())
def test_nobody_exceeds_a_limit(data: st.DataObject):
    limit = data.draw(st.sampled_from([0, 500, 1000, 1500]))
    users = st.sampled_from("abc")
    fairness = data.draw(st.sampled_from(["equal", "none"]))
    rules = MembersPolicy(fairness, limit=PersonLimit(gpu=limit))
    cluster = cluster_of(course(rules), gpus=3)
    for i in range(data.draw(st.integers(1, 12))):
        size = data.draw(st.sampled_from([0.25, 0.5, 1, 2]))
        priority = data.draw(st.sampled_from([50, 75]))
        one = workload(f"w{i}", "course", size, created=i, user=data.draw(users), priority=priority)
        cluster.apply(WorkloadSubmitted(one))
        cycle(cluster, 1000 * i)
        held = dict.fromkeys("abc", 0)
        for work in cluster.workloads.values():
            held[work.user] += sum(
                m.charge.gpu for m in work.members.values() if m.status in ("running", "bound")
            )
        assert all(amount <= limit for amount in held.values())


# -- courses


def test_equal_shares_with_everybody_waiting():
    """30 people at a load of 1.5; one of them has ten notebooks. `tests/benchmarks` has the table
    for 60 people and 90 minutes.
    """
    people = [
        Person(f"p{i}", 5000, notebooks=10 if i == 0 else 1, is_fixed=True) for i in range(30)
    ]
    course = Course(people, EQUAL).run(20 * MINUTE, since=MINUTE)
    held = course.held()
    mean = sum(held) / len(held)
    assert jain(held) >= 0.99
    assert min(held) >= 0.8 * mean
    assert held[0] <= 1.1 * sum(held[1:]) / 29
    assert max(wait for person in people[1:] for wait in person.waits) <= 60_000


def test_without_fairness_the_one_with_many_notebooks_gets_most():
    """The course of the test above can tell the difference."""
    people = [
        Person(f"p{i}", 5000, notebooks=10 if i == 0 else 1, is_fixed=True) for i in range(30)
    ]
    held = Course(people, MembersPolicy("none")).run(5 * MINUTE, since=MINUTE).held()
    assert held[0] > 5 * sum(held[1:]) / 29


@pytest.mark.parametrize(
    ("demands", "weights", "expected"),
    [
        ([10, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0.8, 0.8, 0.8, 0.8, 0.8]),
        ([10, 0.5, 0.5, 1], [1, 1, 1, 1], [2, 0.5, 0.5, 1]),
        ([4, 4, 4], [2, 1, 1], [2, 1, 1]),
    ],
)
def test_four_slots_are_divided_by_demand_and_weight(
    demands: list[float], weights: list[float], expected: list[float]
):
    """Max-min fairness. A demand of d slots: d notebooks that never think, or ten that think for
    most of the time.
    """
    people = [
        Person(f"p{i}", think=0, notebooks=round(demand), is_fixed=True)
        if demand >= 1
        else Person(f"p{i}", think=1000 * (10 / demand - 1), notebooks=10)
        for i, demand in enumerate(demands)
    ]
    stated = {f"p{i}": round(weight * 1000) for i, weight in enumerate(weights)}
    course = Course(people, MembersPolicy("equal", weights=stated)).run(10 * MINUTE)
    slots = [held / (10 * MINUTE) for held in course.held()]
    assert slots == pytest.approx(expected, abs=0.1)
