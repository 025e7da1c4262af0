"""The service keeps what it acknowledged, books nothing twice, and tells only what is committed.
Real SQLite; no network.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import Conflict, InvalidInput, NotAllowed, NotFound
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.service.service import SchedulerService
from jupyter_gpushare.scheduler.store.store import Store, StoreUnavailable, WorkloadRow
from tests.example_counts import examples
from tests.scheduler.databases import Database, check_invariants
from tests.scheduler.scheduler_harness import ADMIN, ALICE, MIB, Listener, SchedulerHarness


@pytest.fixture
def scheduler(database: Database) -> Iterator[SchedulerHarness]:
    scheduler = SchedulerHarness(database.url).joined()
    yield scheduler
    scheduler.close()
    check_invariants(database.url)


def test_two_halves_share_and_a_whole_one_fits_beside(scheduler: SchedulerHarness):
    a, b, c = scheduler.ask("a"), scheduler.ask("b"), scheduler.ask("c", 1)
    leases = [view.pods[0].lease for view in (a, b, c)]
    assert [lease.planned_gpus for lease in leases] == [[0], [0], [1]]
    assert [lease.request_mib for lease in leases] == [MIB // 2, MIB // 2, MIB]
    assert [type(order) for order in scheduler.listener.orders] == [m.Plan, *[m.LeaseUpdated] * 3]


def test_two_halves_on_two_gpus_are_planned_on_one_for_a_whole_one(scheduler: SchedulerHarness):
    scheduler.ask("a")
    scheduler.ask("b")
    kept = scheduler.ask("c").pods[0].lease
    scheduler.service.end(ALICE, "b")
    assert sorted(lease.planned_gpus for lease in scheduler.leases()) == [[0], [1]]
    scheduler.listener.orders.clear()
    whole = scheduler.ask("d", 1).pods[0].lease
    assert whole.planned_gpus == [1]
    moved = replace(kept, planned_gpus=[0])
    orders = [order.lease for order in scheduler.listener.orders]
    assert orders == [moved, whole], "the agent learns the new plan before the new lease"
    assert scheduler.service.queries.workload(ALICE, "c").pods[0].lease == moved
    assert "evicted" not in [
        event.kind for event in scheduler.service.unit_of_work.records["c"].events
    ]
    scheduler.nothing_is_booked_twice()
    scheduler.start()
    assert sorted(lease.planned_gpus for lease in scheduler.leases()) == [[0], [0], [1]]


def test_asking_twice_with_one_id_is_asking_once(scheduler: SchedulerHarness):
    first = scheduler.ask("a")
    assert scheduler.ask("a").pods[0].lease == first.pods[0].lease
    with pytest.raises(Conflict, match="different content"):
        scheduler.ask("a", 1)
    assert len(scheduler.leases()) == 1


def test_an_id_of_another_user_is_refused_without_its_state(scheduler: SchedulerHarness):
    """The same error whether the workload is pending, running or ended, and whatever it asks."""
    scheduler.ask("running", 1)
    scheduler.ask("pending", 2)
    scheduler.ask("ended")
    scheduler.service.end(ALICE, "ended")
    bob = Identity("bob", (), "person")
    errors = set()
    for id_ in ("running", "pending", "ended"):
        for gpu in (0.5, 1, 2):
            request = m.WorkloadRequest(id=id_, pods=[m.PodRequest(name="kernel", gpu=gpu)])
            with pytest.raises(Conflict) as refused:
                scheduler.service.submit(bob, request)
            errors.add((refused.value.code, refused.value.message, refused.value.field))
    assert errors == {("conflict", "this id cannot be used: choose another one", "id")}


def test_pods_without_a_name_are_numbered(scheduler: SchedulerHarness):
    request = m.WorkloadRequest(
        id="g", pods=[m.PodRequest(gpu=1), m.PodRequest(gpu=0.5, name="last")]
    )
    assert [pod.name for pod in scheduler.service.submit(ALICE, request).pods] == ["0", "last"]
    assert [pod.name for pod in scheduler.service.submit(ALICE, request).pods] == ["0", "last"]
    scheduler.start()
    assert [pod.name for pod in scheduler.service.submit(ALICE, request).pods] == ["0", "last"]
    gang = [m.PodRequest(gpu=0.1) for _ in range(3)]
    assert [
        pod.name
        for pod in scheduler.service.submit(ALICE, m.WorkloadRequest(id="h", pods=gang)).pods
    ] == ["0", "1", "2"]
    clash = m.WorkloadRequest(id="i", pods=[m.PodRequest(gpu=1, name="1"), m.PodRequest(gpu=1)])
    with pytest.raises(InvalidInput, match="duplicate pod name '1'"):
        scheduler.service.submit(ALICE, clash)


def test_what_was_granted_is_still_granted_after_a_restart(scheduler: SchedulerHarness):
    scheduler.ask("a")
    scheduler.ask("b", 1)
    scheduler.ask("c", 1)
    before = {lease.id: lease for lease in scheduler.leases()}
    scheduler.start()
    assert {lease.id: lease for lease in scheduler.leases()} == before
    scheduler.joined()
    assert isinstance(scheduler.listener.orders[-1], m.Plan)
    assert {lease.id for lease in scheduler.listener.orders[-1].leases} == set(before)
    scheduler.nothing_is_booked_twice()


def test_a_remembered_workload_that_makes_no_sense_any_more_keeps_nobody_waiting(
    scheduler: SchedulerHarness,
):
    """An older version took it; it is left alone in the store, and everybody else is served."""
    scheduler.ask("a")
    nonsense = m.WorkloadRequest(id="old", pods=[m.PodRequest(name="kernel", gpu=1.5)])
    with scheduler.store.transaction() as write:
        write.submitted(WorkloadRow(nonsense, "alice", "vision", 75, True, 1))
    scheduler.start()
    assert set(scheduler.service.unit_of_work.records) == {"a"}
    assert len(scheduler.leases()) == 1
    scheduler.joined()
    assert scheduler.ask("b").state == "running"


def test_an_ended_workload_frees_its_place_and_stays_ended(scheduler: SchedulerHarness):
    scheduler.ask("a", 2, project="vision")
    waiting = scheduler.ask("b", 1)
    assert waiting.state == "pending"
    assert waiting.reason is not None
    scheduler.service.end(ALICE, "a")
    scheduler.service.run_cycle()
    assert scheduler.service.queries.workload(ALICE, "b").state == "running"
    assert scheduler.service.end(ALICE, "a").ended
    with pytest.raises(Conflict, match="has ended"):
        scheduler.ask("a")
    with pytest.raises(NotFound):
        scheduler.service.end(ALICE, "never")


def test_a_process_that_is_gone_ends_its_workload(scheduler: SchedulerHarness):
    lease = scheduler.ask("a").pods[0].lease
    gone = m.LeaseReleased(lease=lease.id, ended=True, message="Its process is gone.")
    scheduler.service.agent_report("n0", gone)
    scheduler.service.agent_report("n0", gone)  # repeated until the plan lacks it
    assert scheduler.leases() == []
    assert "lost" in [
        frame.event.kind
        for frame in scheduler.listener.frames
        if isinstance(frame, m.WorkloadEvent)
    ]


def test_an_evicted_kernel_asks_again_with_its_age(scheduler: SchedulerHarness):
    """`course` borrows everything; `vision` claims its quota back; the borrower is notified,
    releases, and waits.
    """
    lease = scheduler.ask("borrower", 2, project="course").pods[0].lease
    assert lease is not None
    scheduler.ask("owner", 1, project="vision")
    wanted = [
        order.lease for order in scheduler.listener.orders if isinstance(order, m.LeaseUpdated)
    ][-1]
    assert (wanted.id, wanted.wanted) == (lease.id, "evict")
    assert wanted.message
    assert scheduler.service.queries.workload(ALICE, "owner").reason.code == "WaitingForReclaim"
    scheduler.start()  # an eviction survives a restart as well
    scheduler.joined()
    scheduler.service.agent_report("n0", m.LeaseReleased(lease=lease.id, ended=False))
    scheduler.service.run_cycle()
    assert scheduler.service.queries.workload(ALICE, "owner").state == "running"
    again = scheduler.service.queries.workload(ALICE, "borrower")
    assert (again.state, again.reason.code[:7]) == ("pending", "Waiting")


def test_a_commit_that_fails_changes_nothing(scheduler: SchedulerHarness, database: Database):
    scheduler.ask("a")
    before, frames = scheduler.leases(), len(scheduler.listener.frames)
    with database.refusing(scheduler.store):
        for id_ in ("b", "c"):
            with pytest.raises(StoreUnavailable):
                scheduler.ask(id_)
        with pytest.raises(StoreUnavailable):
            scheduler.service.end(ALICE, "a")
        assert scheduler.leases() == before
        assert len(scheduler.listener.frames) == frames
    assert scheduler.ask("b").state == "running"


def test_only_members_use_a_project_and_only_owners_end(tmp_path: Path):
    text = "projects: [{name: p, members: [alice], pools: {default: {gpu: {quota: 1}}}}, "
    text += "{name: q, members: [bob]}]"
    service = SchedulerService(
        Store(f"sqlite:///{tmp_path}/x.db"), parse_policy(text), Listener(), clock=lambda: 1
    )
    bob = Identity("bob", (), "person")
    service.submit(ALICE, m.WorkloadRequest(id="a", pods=[m.PodRequest(gpu=1)]))
    with pytest.raises(NotAllowed):
        service.submit(bob, m.WorkloadRequest(id="b", project="p", pods=[m.PodRequest(gpu=1)]))
    with pytest.raises(NotFound):
        service.end(bob, "a")
    assert service.queries.workloads(bob).workloads == []
    assert len(service.queries.workloads(ADMIN).workloads) == 1
    service.end(ADMIN, "a")


def test_a_star_among_the_members_is_everybody(tmp_path: Path):
    text = "projects: [{name: p, members: ['*']}, {name: q, members: [alice, '*']}]"
    service = SchedulerService(
        Store(f"sqlite:///{tmp_path}/x.db"), parse_policy(text), Listener(), clock=lambda: 1
    )
    bob = Identity("bob", (), "person")
    assert service.queries.status(bob).projects == ["p", "q"]
    assert (
        service.submit(
            bob, m.WorkloadRequest(id="b", project="q", pods=[m.PodRequest(gpu=1)])
        ).project
        == "q"
    )


def test_a_server_sees_every_project_and_a_person_theirs(tmp_path: Path):
    text = "projects: [{name: p, members: [alice]}, {name: q, members: [bob]}]"
    service = SchedulerService(
        Store(f"sqlite:///{tmp_path}/x.db"), parse_policy(text), Listener(), clock=lambda: 1
    )
    assert service.queries.status(ALICE).projects == ["p"]
    assert service.queries.status(Identity("hub", (), "server")).projects == ["p", "q"]
    assert service.queries.status(Identity("bob", (), "admin")).projects == ["q", "p"]


def test_a_silent_agents_leases_are_kept_and_its_node_takes_nothing_new(
    scheduler: SchedulerHarness,
):
    scheduler.ask("a")
    scheduler.service.agent_disconnected("n0", scheduler.listener.send)
    scheduler.time += 119_000
    scheduler.service.tick(scheduler.time)
    assert scheduler.service.queries.nodes(ADMIN).nodes[0].reasons == ["network unavailable"]
    scheduler.time += 2_000
    scheduler.service.tick(scheduler.time)
    node = scheduler.service.queries.nodes(ADMIN).nodes[0]
    assert (node.status, node.reasons) == ("Not ready", ["agent silent"])
    assert scheduler.ask("b").reason.code == "NodeNotReady"
    assert len(scheduler.leases()) == 1
    scheduler.joined()
    assert scheduler.service.queries.nodes(ADMIN).nodes[0].status == "Ready"
    assert scheduler.service.queries.workload(ALICE, "b").state == "running"


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("ask"),
            st.sampled_from("abcdef"),
            st.sampled_from([0.1, 0.3, 0.5, 1, 2]),
            st.sampled_from(["vision", "language", "course"]),
        ),
        st.tuples(st.just("end"), st.sampled_from("abcdef")),
        st.tuples(st.just("gone"), st.integers(0, 5)),
        st.tuples(st.just("let go"), st.integers(0, 5)),
        st.tuples(st.just("restart")),
    ),
    max_size=25,
)


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_whatever_happens_no_gpu_is_booked_twice_and_a_restart_changes_nothing(
    tmp_path_factory, steps
):
    """Ids are reused, agents report anything, the service is restarted at any moment."""
    scheduler = SchedulerHarness(f"sqlite:///{tmp_path_factory.mktemp('law')}/x.db").joined()
    for i, (what, *rest) in enumerate(steps):
        scheduler.time += 1000
        leases = scheduler.leases()
        try:
            if what == "ask":
                scheduler.ask(f"{rest[0]}{i // 6}", rest[1], project=rest[2])
            elif what == "end":
                scheduler.service.end(ALICE, f"{rest[0]}{i // 6}")
            elif what in ("gone", "let go") and leases:
                lease = leases[rest[0] % len(leases)]
                scheduler.service.agent_report(
                    "n0", m.LeaseReleased(lease=lease.id, ended=what == "gone")
                )
                scheduler.service.run_cycle()
            elif what == "restart":
                before = {lease.id: lease for lease in scheduler.leases()}
                scheduler.start()
                assert {lease.id: lease for lease in scheduler.leases()} == before
                scheduler.joined()
        except (Conflict, NotFound):
            pass
        scheduler.nothing_is_booked_twice()
    scheduler.close()
    check_invariants(scheduler.url)
