"""A share is changed make-before-break: the old one stays until the new one is granted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import Conflict, InvalidInput, NotFound
from jupyter_gpushare.core.model.units import read_gpu
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.store.store import StoreUnavailable
from tests.example_counts import examples
from tests.scheduler.databases import Database, check_invariants
from tests.scheduler.scheduler_harness import ALICE, SchedulerHarness

BOB = Identity("bob", (), "person")
POLICY = """
departments: [{name: d, pools: {default: {gpu: {quota: 2}}}}]
projects:
  - {name: p, department: d, pools: {default: {gpu: {quota: 1, limit: 1}}}}
  - {name: q, department: d, pools: {default: {gpu: {quota: 1}}}}
"""


@pytest.fixture
def scheduler(database: Database) -> Iterator[SchedulerHarness]:
    scheduler = SchedulerHarness(database.url).joined()
    yield scheduler
    scheduler.close()
    check_invariants(database.url)


def live(scheduler: SchedulerHarness) -> dict[str, int]:
    """Workloads and how many leases they have."""
    records = scheduler.service.unit_of_work.records.values()
    return {record.id: len(record.leases) for record in records}


def test_the_old_share_ends_in_the_commit_that_grants_the_new_one(scheduler: SchedulerHarness):
    """Both GPUs are full: the new share only fits because the old one ends."""
    scheduler.ask("other", 1)
    old = scheduler.ask("old", 1).pods[0].lease
    scheduler.listener.orders.clear()
    scheduler.listener.frames.clear()
    new = scheduler.ask("new", 0.5, replaces="old")
    assert (new.state, new.replaces) == ("running", "old")
    assert live(scheduler) == {"other": 1, "new": 1}
    granted, revoked = scheduler.listener.orders
    assert isinstance(granted, m.LeaseUpdated)
    assert granted.lease == new.pods[0].lease
    assert isinstance(revoked, m.LeaseRevoked)
    assert revoked.lease == old.id
    kinds = [type(frame) for frame in scheduler.listener.frames]
    assert kinds[-1] is m.WorkloadGone, "the new share is published before the end of the old one"
    (gone,) = [frame for frame in scheduler.listener.frames if isinstance(frame, m.WorkloadGone)]
    assert (gone.id, gone.message) == ("old", "Replaced by 0.5 GPU.")


def test_an_old_share_that_changed_since_the_last_cycle_is_replaced(scheduler: SchedulerHarness):
    scheduler.ask("old", 0.5)
    scheduler.service.rename(ALICE, "old", m.WorkloadName(name="b.ipynb"))
    assert scheduler.ask("new", 1, replaces="old").state == "running"
    scheduler.service.run_cycle()
    assert live(scheduler) == {"new": 1}


def test_the_old_share_stays_while_the_new_one_waits(scheduler: SchedulerHarness):
    scheduler.ask("other", 1)
    old = scheduler.ask("old", 0.5).pods[0].lease
    new = scheduler.ask("new", 2, replaces="old")
    assert new.state == "pending"
    assert new.reason is not None, "it is explained like every pending workload"
    assert scheduler.service.queries.workload(ALICE, "old").pods[0].lease == old
    for _ in range(3):
        scheduler.service.run_cycle()
    assert live(scheduler) == {"other": 1, "old": 1, "new": 0}
    scheduler.service.end(ALICE, "other")
    scheduler.service.run_cycle()
    assert live(scheduler) == {"new": 1}


def test_a_refused_replacement_leaves_the_old_share_alone(scheduler: SchedulerHarness):
    before = scheduler.ask("old", 0.5)
    with pytest.raises(InvalidInput, match="unknown project"):
        scheduler.ask("new", 1, replaces="old", project="nonsense")
    with pytest.raises(Conflict):
        scheduler.ask("old", 1, replaces="old")
    assert scheduler.service.queries.workload(ALICE, "old") == before
    assert live(scheduler) == {"old": 1}


def test_a_replacement_that_is_cancelled_leaves_the_old_share_alone(scheduler: SchedulerHarness):
    scheduler.ask("other", 1)
    scheduler.ask("old", 0.5)
    scheduler.ask("new", 2, replaces="old")
    scheduler.service.end(ALICE, "new")
    scheduler.service.end(ALICE, "other")
    scheduler.service.run_cycle()
    assert live(scheduler) == {"old": 1}


def test_without_its_old_share_a_replacement_is_an_ordinary_request(scheduler: SchedulerHarness):
    scheduler.ask("other", 1)
    scheduler.ask("old", 0.5)
    scheduler.ask("new", 1.0, replaces="old", name="first")
    assert live(scheduler) == {"other": 1, "new": 1}
    scheduler.ask("newer", 2, replaces="new")
    scheduler.service.end(ALICE, "new")
    scheduler.service.run_cycle()
    assert live(scheduler) == {"other": 1, "newer": 0}
    scheduler.service.end(ALICE, "other")
    scheduler.service.run_cycle()
    assert live(scheduler) == {"newer": 1}
    assert scheduler.ask("latest", 1, replaces="new").state == "pending", "newer holds both GPUs"
    assert live(scheduler) == {"newer": 1, "latest": 0}, "what has ended cannot be replaced again"


def test_only_the_latest_request_for_a_place_counts(scheduler: SchedulerHarness):
    scheduler.ask("other", 1)
    scheduler.ask("old", 0.5)
    scheduler.ask("first", 2, replaces="old")
    scheduler.ask("second", 2, replaces="old")
    assert live(scheduler) == {"other": 1, "old": 1, "second": 0}
    scheduler.ask("third", 2, replaces="second")
    assert live(scheduler) == {"other": 1, "old": 1, "third": 0}
    scheduler.ask("fourth", 1, replaces="third")
    assert live(scheduler) == {"other": 1, "fourth": 1}


def test_a_pending_change_is_requested_in_the_tables(scheduler: SchedulerHarness):
    scheduler.ask("other", 1)
    scheduler.ask("old", 0.5)
    scheduler.ask("new", 2, replaces="old")
    rows = scheduler.service.queries.queues(ALICE).queues
    requested = {row.requested for row in rows if row.resource == "gpu" and row.requested}
    assert requested == {3.0}, "1 of the other, and 2 in place of 0.5; departments too"
    projects = scheduler.service.queries.projects(ALICE).projects
    assert {row.gpu_requested for row in projects if row.gpu_requested} == {3.0}


def test_a_pending_workload_is_replaced_at_once(scheduler: SchedulerHarness):
    scheduler.ask("other", 2)
    scheduler.ask("waiting", 2)
    assert scheduler.ask("new", 1, replaces="waiting").state == "pending"
    assert live(scheduler) == {"other": 1, "new": 0}


def test_a_repeated_replacement_is_answered_as_before(scheduler: SchedulerHarness):
    scheduler.ask("other", 1)
    scheduler.ask("old", 0.5)
    pending = scheduler.ask("new", 2, replaces="old")
    assert scheduler.ask("new", 2, replaces="old").state == pending.state == "pending"
    scheduler.service.end(ALICE, "other")
    scheduler.service.run_cycle()
    granted = scheduler.service.queries.workload(ALICE, "new").pods[0].lease
    assert scheduler.ask("new", 2, replaces="old").pods[0].lease == granted


def test_a_restart_between_changes_nothing(scheduler: SchedulerHarness):
    scheduler.ask("other", 1)
    scheduler.ask("old", 0.5)
    scheduler.ask("new", 2, replaces="old")
    scheduler.start()
    scheduler.joined()
    assert live(scheduler) == {"other": 1, "old": 1, "new": 0}
    scheduler.service.end(ALICE, "other")
    scheduler.service.run_cycle()
    assert live(scheduler) == {"new": 1}
    scheduler.start()
    scheduler.joined()
    assert live(scheduler) == {"new": 1}


def test_a_commit_that_fails_leaves_the_old_share(scheduler: SchedulerHarness, database: Database):
    scheduler.ask("other", 1)
    old = scheduler.ask("old", 1).pods[0].lease
    pods = [m.PodRequest(name="kernel", gpu=0.5, nodes=["n0"])]
    scheduler.service.submit(ALICE, m.WorkloadRequest(id="new", pods=pods, replaces="old"))
    orders = len(scheduler.listener.orders)
    with database.refusing(scheduler.store):
        with pytest.raises(StoreUnavailable):
            scheduler.service.run_cycle()
        assert scheduler.service.queries.workload(ALICE, "old").pods[0].lease == old
        assert len(scheduler.listener.orders) == orders
    scheduler.service.run_cycle()
    assert live(scheduler) == {"other": 1, "new": 1}


def test_another_users_workload_cannot_be_replaced(scheduler: SchedulerHarness):
    scheduler.ask("old", 0.5)
    request = m.WorkloadRequest(id="new", pods=[m.PodRequest(name="k", gpu=1)], replaces="old")
    admin = Identity("root", (), "admin")
    for identity in (BOB, admin):
        with pytest.raises(NotFound, match="unknown workload 'old'") as refused:
            scheduler.service.submit(identity, request)
        assert refused.value.field == "replaces"
    with pytest.raises(NotFound, match="unknown workload 'nothing'"):
        scheduler.ask("new", 1, replaces="nothing")
    scheduler.service.end(ALICE, "old")
    with pytest.raises(NotFound, match="unknown workload 'old'"):
        scheduler.service.submit(BOB, request)
    assert live(scheduler) == {}


def test_what_if_gives_the_old_share_up_as_the_request_would(scheduler: SchedulerHarness):
    scheduler.ask("other", 1)
    scheduler.ask("old", 1)
    request = m.WorkloadRequest(
        id="new", pods=[m.PodRequest(name="k", gpu=1, nodes=["n0"])], replaces="old"
    )
    assert scheduler.service.what_if(ALICE, request).starts_now
    assert live(scheduler) == {"other": 1, "old": 1}


def with_policy(tmp_path: Path) -> SchedulerHarness:
    scheduler = SchedulerHarness(f"sqlite:///{tmp_path}/s.sqlite")
    scheduler.service.use_policy(parse_policy(POLICY))
    return scheduler.joined()


def test_others_in_the_project_do_not_get_the_quota_of_the_old_share(tmp_path: Path):
    """The project's limit is 1 GPU: while the replacement waits, the old share counts."""
    scheduler = with_policy(tmp_path)
    scheduler.ask("other", 2, project="q")
    scheduler.service.end(ALICE, "other")
    scheduler.ask("old", 0.5, project="p")
    scheduler.ask("new", 2, project="p", replaces="old", queue_anyway=True)
    assert scheduler.ask("beyond", 1, project="p").state == "pending"
    assert scheduler.ask("beside", 0.5, project="p").state == "running"
    assert live(scheduler) == {"old": 1, "new": 0, "beyond": 0, "beside": 1}
    scheduler.close()


def test_a_replacement_reclaims_what_its_project_is_entitled_to(tmp_path: Path):
    """The borrower leaves first, then the new share is granted, and only then the old one ends."""
    scheduler = with_policy(tmp_path)
    scheduler.ask("old", 0.5, project="p")
    scheduler.ask("borrower", 1, project="q")
    scheduler.ask("borrower2", 0.5, project="q")
    assert scheduler.ask("new", 1, project="p", replaces="old").state == "pending"
    records = scheduler.service.unit_of_work.records
    evicted = [
        lease
        for id_ in ("borrower", "borrower2")
        for lease in records[id_].leases.values()
        if lease.wanted == "evict"
    ]
    assert evicted, "a trial that needs an eviction orders it"
    assert live(scheduler)["old"] == 1
    for lease in evicted:
        scheduler.service.agent_report("n0", m.LeaseReleased(lease=lease.id, ended=False))
    scheduler.service.run_cycle()
    assert live(scheduler)["new"] == 1
    assert "old" not in live(scheduler)
    scheduler.close()


STEPS = st.one_of(
    st.tuples(
        st.just("ask"),
        st.sampled_from("abcd"),
        st.sampled_from([0.25, 0.5, 1, 2]),
        st.sampled_from("pq"),
        st.booleans(),
    ),
    st.tuples(st.just("end"), st.sampled_from("abcd")),
    st.tuples(st.just("leave")),
    st.tuples(st.just("restart")),
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(STEPS, max_size=25))
def test_never_more_than_capacity_or_limit_and_never_without_a_share(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
):
    """Whatever is asked, ended and restarted: GPUs and limits are not exceeded, and a notebook
    whose share is replaced holds one until it gives it up or is evicted.
    """
    scheduler = with_policy(tmp_path_factory.mktemp("replacements"))
    names: dict[str, str] = {}
    for count, step in enumerate(steps):
        had = _held(scheduler)
        ended = ""
        match step:
            case ("ask", str(notebook), float() | int() as gpu, str(project), bool(replaces)):
                old = names.get(notebook) if replaces else None
                ended = "" if replaces else names.get(notebook, "")
                if ended in scheduler.service.unit_of_work.records:
                    scheduler.service.end(ALICE, ended)
                names[notebook] = f"{notebook}{count}"
                more = {"project": project, "replaces": old, "queue_anyway": True}
                scheduler.ask(f"{notebook}{count}", gpu, **more)
            case ("end", str(notebook)):
                ended = names.get(notebook, "")
                if ended in scheduler.service.unit_of_work.records:
                    scheduler.service.end(ALICE, ended)
            case ("leave",):
                _leave(scheduler)
            case ("restart",):
                scheduler.start()
                scheduler.service.use_policy(parse_policy(POLICY))
                scheduler.joined()
        scheduler.service.run_cycle()
        scheduler.nothing_is_booked_twice()
        assert _gpus(scheduler, "p") <= 1000
        kept = _held(scheduler)
        if step[0] != "leave":
            assert all(one in kept for one in had if not ended.startswith(one)), (had, kept, step)
    scheduler.close()


def _held(scheduler: SchedulerHarness) -> set[str]:
    """Notebooks with a lease."""
    records = scheduler.service.unit_of_work.records.values()
    return {record.id[0] for record in records if record.leases}


def _leave(scheduler: SchedulerHarness) -> None:
    """Evicted leases are released."""
    for lease in scheduler.leases():
        if lease.wanted == "evict":
            scheduler.service.agent_report("n0", m.LeaseReleased(lease=lease.id, ended=False))


def _gpus(scheduler: SchedulerHarness, project: str) -> int:
    """Milli-GPUs that a project holds and is not asked to give back."""
    return sum(
        read_gpu(record.request.pods[0].gpu or 0)
        for record in scheduler.service.unit_of_work.records.values()
        for lease in record.leases.values()
        if record.project == project and lease.wanted == "hold"
    )
