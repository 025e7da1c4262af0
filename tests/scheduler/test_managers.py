"""Managers of a project: what they see of its members, and what they may do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import Conflict, GpuShareError, InvalidInput, NotAllowed
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.service.feasibility import Impossible
from tests.scheduler.scheduler_harness import ADMIN
from tests.scheduler.test_people import CourseHarness

TEACHER = Identity("teacher", (), "person")
A = Identity("a", (), "person")


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[CourseHarness]:
    harness = CourseHarness(f"sqlite:///{tmp_path}/scheduler.sqlite")
    yield harness.joined()
    harness.close()


def audited(scheduler: CourseHarness) -> list[tuple[str, str]]:
    return [(row.actor, row.action) for row in scheduler.service.queries.audit().audit]


def test_a_manager_sees_everybody_by_name_and_a_member_only_themselves(scheduler: CourseHarness):
    scheduler.by("a", "a1", 1)
    scheduler.by("b", "b1", 1)
    scheduler.by("a", "a2", 0.5)
    service = scheduler.service
    rows = {row.user: row for row in service.people.people(TEACHER).people}
    assert set(rows) == {"a", "b"}
    assert [one.name for one in rows["a"].notebooks] == ["a1.ipynb", "a2.ipynb"]
    assert (rows["a"].gpu, rows["a"].gpu_limit, rows["a"].turns_today) == (1.0, 1.0, 1)
    assert rows["a"].managed
    (own,) = service.people.people(A).people
    assert (own.user, own.managed) == ("a", False)
    assert service.people.people(Identity("x", (), "person")).people == []
    assert {row.user for row in service.people.people(ADMIN).people} == {"a", "b"}
    assert service.queries.status(TEACHER).manages == ["course"]
    assert service.queries.status(A).manages == []
    shown = {view.id: view.name for view in service.queries.workloads(TEACHER).workloads}
    assert shown == {"a1": "a1.ipynb", "b1": "b1.ipynb", "a2": "a2.ipynb"}


def test_a_manager_does_not_see_commands(scheduler: CourseHarness):
    command = m.CommandRequest(argv=["train", "--secret"])
    request = m.WorkloadRequest(
        id="batch", project="course", pods=[m.PodRequest(gpu=0.5)], command=command
    )
    scheduler.service.submit(A, request)
    assert scheduler.service.queries.workload(TEACHER, "batch").command is None
    assert scheduler.service.queries.workload(A, "batch").command == ["train", "--secret"]
    with pytest.raises(NotAllowed):
        scheduler.service.queries.logs(TEACHER, "batch")


def test_a_manager_releases_a_share(scheduler: CourseHarness):
    scheduler.by("a", "a1", 1)
    scheduler.service.end(TEACHER, "a1")
    assert ("teacher", "end") in audited(scheduler)
    assert "a1" not in scheduler.service.unit_of_work.records
    scheduler.by("b", "b1", 1)
    with pytest.raises(NotAllowed):
        scheduler.service.end(A, "b1")


def test_the_next_turn_is_for_once_and_survives_a_restart(scheduler: CourseHarness):
    for user in ("a", "b"):
        scheduler.by(user, f"{user}1", 1)
    scheduler.time += 1000
    for user in ("c", "d"):
        scheduler.by(user, f"{user}1", 1)
        scheduler.time += 1000
    with pytest.raises(NotAllowed):
        scheduler.service.people.next_turn(A, "d1")
    with pytest.raises(Conflict, match="does not wait"):
        scheduler.service.people.next_turn(TEACHER, "a1")
    scheduler.service.people.next_turn(TEACHER, "d1")
    scheduler.service.people.next_turn(TEACHER, "d1")
    assert audited(scheduler).count(("teacher", "next turn")) == 1
    scheduler.start()
    scheduler.joined()
    rows = {row.user: row for row in scheduler.service.people.people(TEACHER).people}
    assert [one.next_turn for one in rows["d"].notebooks] == [True]
    assert rows["d"].notebooks[0].position == 1
    scheduler.end("a", "a1")
    granted = [bind.workload for bind in scheduler.service.run_cycle().binds]
    assert granted == ["d1"]
    assert scheduler.service.unit_of_work.promoted == set()
    assert not any(row.is_promoted for row in scheduler.store.load().workloads)


def test_a_manager_limits_a_person_within_the_policy(scheduler: CourseHarness):
    people = scheduler.service.people
    with pytest.raises(InvalidInput, match="at most 1, as the policy says"):
        people.limit_person(TEACHER, m.MemberLimit(project="course", user="a", gpu=2))
    for who, project in ((A, "course"), (TEACHER, "other")):
        with pytest.raises(NotAllowed):
            people.limit_person(who, m.MemberLimit(project=project, user="a", gpu=0.5))
    people.limit_person(TEACHER, m.MemberLimit(project="course", user="a", notebooks=1))
    limit = m.MemberLimit(project="course", user="a", gpu=0.5)
    (row,) = people.limit_person(TEACHER, limit).people
    assert (row.gpu_limit, row.notebook_limit, row.pending_limit) == (0.5, 1, 2)
    assert ("teacher", "limit person") in audited(scheduler)
    scheduler.start()
    scheduler.joined()
    waiting = scheduler.by("a", "a1", 1)
    assert waiting.reason.message.startswith("Over your limit in project")
    assert waiting.reason.numbers["limit"] == 0.5
    scheduler.end("a", "a1")
    scheduler.by("a", "a2", 0.5)
    with pytest.raises(Impossible, match="1 of 1 notebook"):
        scheduler.by("a", "a3", 0.25)
    scheduler.by("b", "b1", 1)
    reset = m.MemberLimit(project="course", user="a", gpu=None, notebooks=None)
    scheduler.service.people.limit_person(TEACHER, reset)
    scheduler.by("a", "a4", 0.25)


@pytest.mark.parametrize(
    "change", [{"user": ""}, {"gpu": -1}, {"notebooks": -1}, {"project": "x"}, {"user": "a\0"}]
)
def test_invalid_limits_change_nothing(scheduler: CourseHarness, change: dict):
    fields = {"project": "course", "user": "a", "gpu": 0.5, **change}
    with pytest.raises(GpuShareError):
        scheduler.service.people.limit_person(TEACHER, m.MemberLimit(**fields))
    assert scheduler.store.load().limits == []


def test_turns_and_minutes_of_today(scheduler: CourseHarness):
    scheduler.by("a", "a1", 0.5)
    scheduler.end("a", "a1")
    scheduler.by("a", "a2", 0.5)
    scheduler.time += 6000
    (row,) = scheduler.service.people.people(A).people
    assert row.turns_today == 2
    scheduler.time += 2 * 86_400_000
    rows = scheduler.service.people.people(A).people
    assert [one.turns_today for one in rows] == [0]
