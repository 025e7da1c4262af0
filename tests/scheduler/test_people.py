"""People of a project in the service: policy, limits, restarts, snapshots and simulation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.model import MembersPolicy, PersonLimit
from jupyter_gpushare.scheduler.auth.identity import Identity
from jupyter_gpushare.scheduler.config.documents import parse
from jupyter_gpushare.scheduler.policy.diff import changes
from jupyter_gpushare.scheduler.policy.policy_file import PolicyErrors, parse_policy
from jupyter_gpushare.scheduler.service.feasibility import Impossible
from jupyter_gpushare.scheduler.simulation.scenario import run
from jupyter_gpushare.scheduler.simulation.scenario_file import parse_scenario, scenario_of
from jupyter_gpushare.scheduler.simulation.snapshot import snapshot
from tests.scheduler.scheduler_harness import SchedulerHarness

POLICY = """
node_pools: [{name: default, workloads_per_gpu: 4}]
projects:
  - {name: course, managers: [teacher], pools: {default: {gpu: {quota: 2}}},
     members_policy: {fairness: equal, half_life: 1h, weights: {tutor: 2},
                      limit: {gpu: 1, notebooks: 3, pending: 2}}}
  - {name: other, pools: {default: {gpu: {quota: 0}}}}
"""
HOUR = 3_600_000


def policy(text: str) -> dict[str, tuple[MembersPolicy | None, dict[str, MembersPolicy]]]:
    loaded = parse_policy(text).policy
    return {p.name: (p.members_policy, dict(p.pool_members_policies)) for p in loaded.projects}


# -- the policy file


def test_rules_between_members_are_inherited_key_by_key():
    found = policy(
        """
        node_pools: [{name: a100}]
        projects:
          - {name: plain}
          - {name: own, members_policy: {fairness: none, limit: {gpu: 2}}}
          - {name: pools, pools: {a100: {members_policy: {limit: {gpu: 0.5}}}}}
        defaults: {members_policy: {fairness: equal, half_life: 2h, limit: {notebooks: 4}}}
        """
    )
    default = MembersPolicy("equal", 2 * HOUR, limit=PersonLimit(None, 4, None))
    assert found["plain"] == (default, {})
    assert found["own"] == (MembersPolicy("none", 2 * HOUR, limit=PersonLimit(2000, 4, None)), {})
    in_pool = MembersPolicy("equal", 2 * HOUR, limit=PersonLimit(500, None, None))
    assert found["pools"] == (default, {"a100": in_pool})


def test_without_rules_nothing_is_counted():
    assert policy("projects: [{name: p}]") == {"p": (None, {})}
    assert policy("projects: [{name: p, managers: [t]}]") == {"p": (MembersPolicy(), {})}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{fairness: fair}", "fairness"),
        ("{half_life: -1h}", "must not be negative"),
        ("{weights: {a: 0}}", "must be more than 0"),
        ("{limit: {gpu: -1}}", "gpu"),
        ("{limit: {notebooks: 1.5}}", "notebooks"),
        ("{limits: {gpu: 1}}", "limits"),
    ],
)
def test_mistakes_are_reported_with_their_field(text: str, problem: str):
    with pytest.raises(PolicyErrors) as refused:
        parse_policy(f"projects: [{{name: p, members_policy: {text}}}]")
    assert problem in str(refused.value.problems[0])


def test_counts_are_limited_for_all_pools_only():
    text = "projects: [{name: p, pools: {default: {members_policy: {limit: {notebooks: 1}}}}}]"
    with pytest.raises(PolicyErrors):
        parse_policy(text)


def test_differences_of_policies_name_the_rules():
    before, after = POLICY, POLICY.replace("gpu: 1,", "gpu: 0.5,").replace("1h", "2h")
    found = [one.message for one in changes(parse_policy(before), parse_policy(after))]
    assert found == [
        "course: members_policy.half_life 3600 -> 7200",
        "course: members_policy.limit.gpu 1 -> 0.5",
    ]


# -- the service


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[CourseHarness]:
    harness = CourseHarness(f"sqlite:///{tmp_path}/scheduler.sqlite")
    yield harness.joined()
    harness.close()


class CourseHarness(SchedulerHarness):
    """A service with POLICY, one node of two GPUs, and requests of several people."""

    def start(self) -> None:
        super().start()
        self.service.use_policy(parse_policy(POLICY))
        self.restart_with_policy()

    def restart_with_policy(self) -> None:
        """The policy is in force while the state is restored, as in the real service."""
        from jupyter_gpushare.scheduler.service.service import SchedulerService

        self.service = SchedulerService(
            self.store, parse_policy(POLICY), self.listener, clock=lambda: self.time
        )

    def by(self, user: str, id_: str, gpu: object = 0.5, **more: object) -> m.WorkloadView:
        person = Identity(user, (), "person")
        pod = m.PodRequest(name="kernel", gpu=gpu)
        self.service.submit(
            person, m.WorkloadRequest(id=id_, name=f"{id_}.ipynb", project="course", pods=[pod])
        )
        self.service.run_cycle()
        return self.service.queries.workload(person, id_)

    def used(self, user: str) -> float:
        """GPU-seconds."""
        people = self.service.unit_of_work.cluster.people.of("course", "default")
        return people.used(user, self.time).used / 1e6

    def end(self, user: str, id_: str) -> None:
        self.service.end(Identity(user, (), "person"), id_)


def test_a_person_at_the_limit_waits_and_sees_it_before(scheduler: CourseHarness):
    scheduler.by("a", "a1", 1)
    ask = m.WorkloadRequest(id="x", project="course", pods=[m.PodRequest(name="k", gpu=0.5)])
    answer = scheduler.service.what_if(Identity("a", (), "person"), ask)
    assert (answer.starts_now, answer.reason.code, answer.refused) == (
        False,
        "OverPersonLimit",
        False,
    )
    waiting = scheduler.by("a", "a2")
    assert waiting.reason.code == "OverPersonLimit"
    assert waiting.reason.numbers["limit"] == 1.0
    assert scheduler.by("b", "b1").state == "running"
    scheduler.end("a", "a1")
    scheduler.service.run_cycle()
    view = scheduler.service.queries.workload(Identity("a", (), "person"), "a2")
    assert view.state == "running"


def test_a_request_that_exceeds_the_limit_alone_is_refused(scheduler: CourseHarness):
    with pytest.raises(Impossible, match="one person may hold at most 1 GPU") as refused:
        scheduler.by("a", "a1", 2)
    assert refused.value.code == "OverPersonLimit"


def test_too_many_notebooks_are_refused_with_their_names(scheduler: CourseHarness):
    for i in range(3):
        scheduler.by("a", f"a{i}", 0.25)
    ask = m.WorkloadRequest(id="x", project="course", pods=[m.PodRequest(name="k", gpu=0.25)])
    answer = scheduler.service.what_if(Identity("a", (), "person"), ask)
    assert (answer.starts_now, answer.refused) == (False, True)
    with pytest.raises(Impossible) as refused:
        scheduler.by("a", "a3", 0.25)
    assert str(refused.value) == (
        'Over your limit in project "course": you have 3 of 3 notebooks '
        "(a0.ipynb, a1.ipynb, a2.ipynb). Release one first."
    )
    replaced = m.WorkloadRequest(
        id="x", project="course", pods=[m.PodRequest(name="k", gpu=0.5)], replaces="a0"
    )
    scheduler.service.submit(Identity("a", (), "person"), replaced)  # a change of a share


def test_too_many_waiting_requests_are_refused(scheduler: CourseHarness):
    scheduler.by("b", "b1", 1)
    scheduler.by("c", "c1", 1)
    scheduler.by("a", "a1", 1)
    scheduler.by("a", "a2", 0.5)
    with pytest.raises(Impossible, match="2 of 2 waiting requests"):
        scheduler.by("a", "a3", 0.5)


def test_held_time_survives_a_restart(scheduler: CourseHarness):
    scheduler.by("a", "a1", 1)
    scheduler.time += 60_000
    scheduler.by("b", "b1", 0.5)
    scheduler.time += 60_000
    before = scheduler.used("a"), scheduler.used("b")
    assert before[0] == pytest.approx(119, abs=1), "of two minutes, a little has decayed"
    scheduler.start()
    assert (scheduler.used("a"), scheduler.used("b")) == pytest.approx(before, abs=0.01)
    scheduler.joined()
    scheduler.end("a", "a1")
    ended = scheduler.used("a")
    scheduler.time += HOUR
    scheduler.start()
    assert scheduler.used("a") == pytest.approx(ended / 2, rel=1e-3)
    assert scheduler.used("b") > ended


def test_usage_is_forgotten_after_five_half_lives(scheduler: CourseHarness):
    scheduler.by("a", "a1", 1)
    scheduler.time += 60_000
    scheduler.end("a", "a1")
    scheduler.service.run_cycle()
    scheduler.time += 6 * HOUR
    scheduler.service.tick(scheduler.time)
    assert scheduler.store.load().people == []
    assert scheduler.used("a") == 0


def test_a_refused_commit_charges_nobody(scheduler: CourseHarness):
    scheduler.by("a", "a1", 1)
    scheduler.time += 60_000
    people = scheduler.service.unit_of_work.cluster.people.of("course", "default")
    before = people.usage["a"]

    def fails() -> None:
        with scheduler.service.unit_of_work.transaction():
            people.settle("a")
            assert people.usage["a"] != before
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert people.usage["a"] == before


# -- scenarios

SCENARIO = """
name: people
cycles: 2
nodes: [{name: n, gpus: 1, gpu_memory: 80GiB}]
projects: [{name: course, members_policy: {fairness: equal}}]
workloads:
  - {name: h1, project: course, user: heavy, pods: [{name: p, gpu: 0.5}]}
  - {name: h2, project: course, user: heavy, pods: [{name: p, gpu: 0.5}]}
  - {name: a1, project: course, user: a, pods: [{name: p, gpu: 0.5}]}
people: [{user: heavy, project: course, gpu_hours: %s}]
"""


@pytest.mark.parametrize(("hours", "running"), [("0.0", ["a1", "h1"]), ("2.5", ["a1", "h1"])])
def test_a_scenario_states_people(hours: str, running: list[str]):
    found = run(parse_scenario(SCENARIO % hours))["cycles"][-1]
    states = {name: one["state"] for name, one in found["workloads"].items()}
    assert sorted(name for name, state in states.items() if state == "running") == running


def test_a_scenario_with_unknown_names_is_refused():
    from jupyter_gpushare.scheduler.simulation.scenario_file import ScenarioErrors

    with pytest.raises(ScenarioErrors, match="project"):
        parse_scenario(
            (SCENARIO % "0").replace("project: course, gpu_hours", "project: c, gpu_hours")
        )


def test_a_snapshot_replays_the_order_of_people(scheduler: CourseHarness):
    """Busy people wait behind others, in the service and in the simulation of its snapshot."""
    import yaml

    for user in ("a", "b"):
        scheduler.by(user, f"{user}1", 1)
    scheduler.time += 20_000
    for i, user in enumerate(("a", "c", "tutor")):
        scheduler.time += 1000
        scheduler.by(user, f"{user}w{i}", 0.5)
    cluster = scheduler.service.unit_of_work.cluster
    taken = yaml.safe_dump(snapshot(cluster, scheduler.time))
    document = parse(taken, "snapshot")
    assert snapshot_people(taken)
    scheduler.end("b", "b1")
    decisions = scheduler.service.run_cycle()
    shown = run(scenario_of(document, "s"))["cycles"][0]["workloads"]
    order = sorted(shown, key=lambda id_: shown[id_]["position"] or 0)
    live = [bind.workload for bind in decisions.binds]
    assert [id_ for id_ in order if shown[id_]["position"]][: len(live)] == live


def snapshot_people(text: str) -> list[str]:
    import yaml

    return [one["user"] for one in yaml.safe_load(text)["people"]]
