"""The scheduler remembers what the queues held and whom it evicted, and tells each person what they
may see of it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.service.loop import SchedulingLoop
from jupyter_gpushare.scheduler.service.service import SchedulerService
from jupyter_gpushare.scheduler.state.history import MOST_POINTS
from jupyter_gpushare.scheduler.store.store import Store
from tests.scheduler.agents import node
from tests.scheduler.running_server import asking, open_server

POLICY = """\
departments: [{name: research, pools: {default: {gpu: {quota: 2}}}}]
projects:
  - {name: vision, department: research, members: [alice], pools: {default: {gpu: {quota: 2}}}}
  - {name: course, department: research, members: [bob]}
"""
ALICE, BOB, ADMIN = (
    Identity("alice", (), "person"),
    Identity("bob", (), "person"),
    Identity("root", (), "admin"),
)


class Quiet:
    def publish(self, frame: m.SchedulerFrame, project: str | None, user: str | None) -> None: ...


class Bench:
    """A service with two GPUs and a clock in the hand."""

    def __init__(self, folder: Path, time: int = 1_000_000_000) -> None:
        self.folder, self.time = folder, time
        self.store = Store(f"sqlite:///{folder}/x.db")
        self.service = SchedulerService(
            self.store, parse_policy(POLICY), Quiet(), clock=lambda: self.time
        )
        self.service.agent_hello(m.AgentHello(version="1", node=node()), lambda _: None)
        self.loop = SchedulingLoop(self.service)
        self.pass_ms(0)

    def pass_ms(self, ms: int) -> None:
        self.time += ms
        self.loop.turn(is_tick=True)

    def restarted(self) -> Bench:
        self.store.close()
        return Bench(self.folder, self.time)

    def lease(self, id_: str) -> m.LeaseBody:
        (lease,) = self.service.unit_of_work.records[id_].leases.values()
        return lease

    def course_is_reclaimed(self) -> None:
        """Bob's course holds both GPUs over quota; Alice asks for one of hers."""
        for id_ in ("c1", "c2"):
            self.service.submit(BOB, asking(id_, 1, name=f"{id_}.ipynb"))
            self.pass_ms(1000)
        self.service.submit(ALICE, asking("v", 1, name="secret.ipynb"))
        self.pass_ms(1000)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def of(history: m.QueueHistory, queue: str) -> list[float]:
    return [sample.allocated for sample in history.samples if sample.queue == queue]


def test_queues_are_sampled_over_time(bench: Bench):
    bench.pass_ms(5000)
    bench.service.submit(ALICE, asking("a", 0.5))
    bench.pass_ms(1000)
    bench.pass_ms(4000)
    history = bench.service.queries.queue_history(ADMIN, None, "60")
    assert of(history, "vision")[-1] == 0.5
    assert of(history, "vision")[0] == 0.0
    assert len({sample.time for sample in history.samples}) >= 2


def test_a_member_sees_the_departments_and_the_own_projects(bench: Bench):
    bench.pass_ms(5000)
    seen = {
        sample.queue
        for sample in bench.service.queries.queue_history(ALICE, "default", None).samples
    }
    assert "vision" in seen
    assert "research" in seen
    assert "course" not in seen


def test_an_answer_is_bounded_whatever_happened(bench: Bench):
    for _ in range(3 * MOST_POINTS):
        bench.pass_ms(5000)
    samples = bench.service.queries.queue_history(ADMIN, None, "1440").samples
    assert len({sample.time for sample in samples}) == MOST_POINTS


@pytest.mark.parametrize(
    ("pool", "minutes", "field"),
    [("moon", None, "pool"), (None, "soon", "minutes"), (None, "0", "minutes")],
)
def test_a_question_that_makes_no_sense_names_its_field(bench: Bench, pool, minutes, field):
    with pytest.raises(InvalidInput) as refused:
        bench.service.queries.queue_history(ADMIN, pool, minutes)
    assert refused.value.field == field


def test_an_eviction_names_owner_beneficiary_action_and_reason(bench: Bench):
    bench.course_is_reclaimed()
    (row,) = bench.service.queries.evictions(ADMIN).evictions
    assert (row.project, row.user, row.action, row.by, row.by_project) == (
        "course",
        "bob",
        "reclaim",
        "v",
        "vision",
    )
    assert row.name in ("c1.ipynb", "c2.ipynb")
    assert row.message


def test_evicted_users_see_the_project_but_not_the_notebook_and_others_see_nothing(bench: Bench):
    bench.course_is_reclaimed()
    (row,) = bench.service.queries.evictions(BOB).evictions
    assert (row.by, row.by_project) == ("", "vision")
    assert bench.service.queries.evictions(ALICE).evictions == []


def test_it_is_remembered_after_both_workloads_are_gone(bench: Bench):
    bench.course_is_reclaimed()
    for id_ in ("c1", "c2", "v"):
        bench.service.end(ADMIN, id_)
    assert len(bench.service.queries.evictions(ADMIN).evictions) == 1


def test_a_restarted_scheduler_remembers_evictions_and_a_sample_of_every_ten_minutes(bench: Bench):
    bench.pass_ms(5000)
    bench.course_is_reclaimed()
    bench.pass_ms(10 * 60_000)
    known = bench.service.queries.evictions(ADMIN)
    again = bench.restarted().service.queries
    assert again.evictions(ADMIN) == known
    before, after = of(again.queue_history(ADMIN, None, "60"), "research")
    assert before == 0.0
    assert after >= 1.0


def test_a_restarted_scheduler_knows_when_evicted_leases_began(bench: Bench):
    bench.course_is_reclaimed()
    bench.pass_ms(60_000)
    kept = next(id_ for id_ in ("c1", "c2") if bench.lease(id_).wanted == "hold")
    record = bench.service.unit_of_work.records[kept]
    bench.service.unit_of_work.evict_leases(record, [bench.lease(kept)], "drain", "drained", 0)
    began = {id_: dict(bench.service.unit_of_work.records[id_].started) for id_ in ("c1", "c2")}
    assert all(bench.lease(id_).wanted == "evict" for id_ in began)
    again = bench.restarted()
    for id_, starts in began.items():
        assert again.service.unit_of_work.records[id_].started == starts


def test_what_cannot_be_read_keeps_no_scheduler_from_starting(bench: Bench):
    bench.course_is_reclaimed()
    with bench.store.transaction() as write:
        for kind in ("eviction", "queues"):
            write.history(kind, bench.time, b'{"of": "another version"}')
    assert len(bench.restarted().service.queries.evictions(ADMIN).evictions) == 1


def test_samples_are_stored_for_a_day_and_no_longer(bench: Bench):
    for _ in range(30):
        bench.pass_ms(3600_000)
    stored = bench.store.history("queues", 0, 1000)
    assert bench.time - stored[0][0] <= 24 * 3600_000
    assert len(stored) == 25


def test_both_are_tables(tmp_path: Path):
    async def story():
        async with open_server(tmp_path) as running:
            for path, kind in (("history/queues", m.QueueSample), ("evictions", m.EvictionRow)):
                whole = await running.raw(
                    "GET", f"/api/v1/{path}?format=csv", None, running.admin_token
                )
                assert whole.body.decode().splitlines()[0] == ",".join(kind.__annotations__)
                some = await running.raw(
                    "GET",
                    f"/api/v1/{path}?format=csv&columns=message,time",
                    None,
                    running.admin_token,
                )
                assert some.code == (200 if "message" in kind.__annotations__ else 400)
            assert (await running.admin.evictions()).evictions == []
            assert isinstance(await running.admin.queue_history("default", 5), m.QueueHistory)

    asyncio.run(story())
