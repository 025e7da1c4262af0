"""The effects of a new policy and who is affected, before and when it comes into force; it kills
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import NotAllowed
from jupyter_gpushare.scheduler.policy.diff import changes
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from jupyter_gpushare.scheduler.state.audit import entries
from tests.scheduler.agents import FakeAgent
from tests.scheduler.databases import Database, check_invariants
from tests.scheduler.running_server import asking, open_server
from tests.scheduler.scheduler_harness import ADMIN, SchedulerHarness

BASE = """
node_pools: [{name: a100, label: {key: gpu, value: a100}}]
departments:
  - {name: research, pools: {default: {gpu: {quota: 2}}}}
projects:
  - {name: vision, department: research, pools: {default: {gpu: {quota: 2}}}}
  - {name: language, department: research, pools: {default: {gpu: {quota: 0}}}}
priority_classes: {night: 40}
defaults: {notice: 10s}
admins: [root]
"""
LOWERED = BASE.replace(
    "{name: vision, department: research, pools: {default: {gpu: {quota: 2}}}}",
    "{name: vision, department: research, pools: {default: {gpu: {quota: 1}}}}",
).replace(
    "{name: language, department: research, pools: {default: {gpu: {quota: 0}}}}",
    "{name: language, department: research, pools: {default: {gpu: {quota: 1}}}}",
)
WITHOUT_VISION = "\n".join(line for line in LOWERED.splitlines() if "name: vision" not in line)


def messages(old: str, new: str) -> list[str]:
    return [change.message for change in changes(parse_policy(old), parse_policy(new))]


def test_a_change_is_said_as_people_would_say_it():
    assert messages(BASE, LOWERED) == [
        "language: GPU quota in default 0 -> 1",
        "vision: GPU quota in default 2 -> 1",
    ]
    assert messages(BASE, BASE.replace("notice: 10s", "notice: 1m")) == [
        "defaults.notice: 10 s -> 60 s"
    ]
    assert messages(LOWERED, WITHOUT_VISION) == ["project vision is removed"]
    assert messages(WITHOUT_VISION, LOWERED) == ["project vision is new"]
    ruled = BASE.replace("notice: 10s", "notice: 10s, rules: {idle: {suspend: 30m}}")
    assert messages(BASE, ruled) == ["defaults.rules.idle.suspend: unset -> 30 min"]


def test_how_a_file_is_written_is_no_change():
    assert messages(BASE, BASE.replace("quota: 2", "quota: 2.0").replace("10s", '"10000ms"')) == []


@given(
    st.lists(
        st.sampled_from([BASE, LOWERED, WITHOUT_VISION, BASE.replace("binpack", "spread")]),
        min_size=2,
        max_size=2,
    )
)
def test_there_and_back_are_the_same_fields(both: list[str]):
    old, new = map(parse_policy, both)
    there, back = changes(old, new), changes(new, old)
    assert [(c.field, c.before, c.after) for c in there] == [
        (c.field, c.after, c.before) for c in back
    ]
    assert bool(there) == (both[0] != both[1])


@pytest.fixture
def scheduler(database: Database) -> Iterator[SchedulerHarness]:
    made = SchedulerHarness(database.url)
    made.service.use_policy(parse_policy(BASE))
    yield made.joined()
    made.close()
    check_invariants(database.url)


def ask(
    scheduler: SchedulerHarness, id_: str, gpu: float = 1, project: str = "vision", **more: object
) -> str:
    request = m.WorkloadRequest(
        id=id_, project=project, pods=[m.PodRequest(name="kernel", gpu=gpu)], **more
    )
    scheduler.service.submit(ADMIN, request)
    scheduler.service.run_cycle()
    return state(scheduler, id_)


def state(scheduler: SchedulerHarness, id_: str) -> str:
    view = scheduler.service.queries.workload(ADMIN, id_)
    return view.state if view.reason is None else f"{view.state} {view.reason.code}"


def affected(scheduler: SchedulerHarness, text: str) -> dict[str, m.PolicyAffected]:
    return {
        f"{one.kind} {one.name}": one
        for one in scheduler.service.check_policy(m.PolicyText(text=text)).affected
    }


def test_a_dry_run_names_who_is_affected_and_changes_nothing(scheduler: SchedulerHarness):
    ask(scheduler, "a")
    ask(scheduler, "b", priority_class="night")
    before = scheduler.service.queries.status(ADMIN)
    found = affected(scheduler, LOWERED)
    assert (
        found["project vision"].message
        == "vision: GPU quota in default 2 -> 1; uses 2: 1 GPU becomes reclaimable by others"
    )
    assert found["project vision"].workloads == ["a", "b"]
    gone = affected(scheduler, WITHOUT_VISION.replace("priority_classes: {night: 40}", ""))
    assert "keep running without a quota" in gone["project vision"].message
    assert gone["priority_class night"].workloads == ["b"]
    assert scheduler.service.check_policy(
        m.PolicyText(text="projects: 5", source="x.yaml")
    ).problems == ["x.yaml:1: projects: must be a list, got 5"]
    assert scheduler.service.queries.status(ADMIN) == before


def test_a_policy_that_comes_into_force_says_so_to_admins_and_is_audited(
    scheduler: SchedulerHarness,
):
    ask(scheduler, "a")
    ask(scheduler, "b")
    scheduler.service.use_policy(parse_policy(LOWERED))
    status = scheduler.service.queries.status(ADMIN)
    assert status.policy_changed == m.stamp(scheduler.time)
    assert "vision: GPU quota in default 2 -> 1" in status.policy_changes
    assert any(line.startswith("affected: vision:") for line in status.policy_changes)
    assert scheduler.service.queries.status(type(ADMIN)("bob", (), "person")).policy_changes == []
    last = entries(scheduler.store)[-1]
    assert (last.actor, last.action) == ("policy file", "policy")
    assert "vision: GPU quota in default 2 -> 1" in last.detail
    scheduler.service.use_policy(parse_policy(LOWERED))
    assert len(entries(scheduler.store)) == last.number, "the same policy again is no action"


def test_a_removed_project_drains(scheduler: SchedulerHarness):
    ask(scheduler, "a")
    ask(scheduler, "b")
    assert ask(scheduler, "c").startswith("pending")
    scheduler.service.use_policy(parse_policy(WITHOUT_VISION))
    scheduler.service.run_cycle()
    assert (state(scheduler, "a"), state(scheduler, "b")) == ("running", "running"), (
        "nobody is thrown out for it"
    )
    assert state(scheduler, "c") == "pending UnknownProject"
    scheduler.start()
    scheduler.service.use_policy(parse_policy(WITHOUT_VISION))
    scheduler.joined()
    assert (state(scheduler, "a"), state(scheduler, "c")) == (
        "running",
        "pending UnknownProject",
    ), "nor by a restart"
    assert ask(scheduler, "mine", project="language") == "pending WaitingForReclaim", (
        "a project with a quota reclaims from it"
    )
    (taken,) = [lease for lease in scheduler.leases() if lease.wanted == "evict"]
    assert taken.notice_ms == 10_000
    scheduler.service.agent_report("n0", m.LeaseReleased(lease=taken.id, ended=False))
    scheduler.service.run_cycle()
    assert state(scheduler, "mine") == "running"
    assert state(scheduler, taken.workload) == "pending UnknownProject"


def test_a_removed_priority_class_changes_nothing_for_who_has_it(scheduler: SchedulerHarness):
    ask(scheduler, "a", priority_class="night")
    ask(scheduler, "b", 2, priority_class="night")
    scheduler.service.use_policy(parse_policy(BASE.replace("priority_classes: {night: 40}", "")))
    assert [scheduler.service.queries.workload(ADMIN, one).priority for one in "ab"] == [40, 40]
    scheduler.start()
    scheduler.service.use_policy(parse_policy(BASE.replace("priority_classes: {night: 40}", "")))
    assert scheduler.service.queries.workload(ADMIN, "b").priority == 40


def test_a_removed_department_and_pool_keep_what_runs(scheduler: SchedulerHarness):
    ask(scheduler, "a")
    flat = (
        "projects: [{name: vision, pools: {default: {gpu: {quota: 2}}}}]\ndefaults: {notice: 10s}\n"
    )
    assert {"department research", "project vision"} <= affected(scheduler, flat).keys()
    scheduler.service.use_policy(parse_policy(flat))
    scheduler.service.run_cycle()
    assert state(scheduler, "a") == "running"
    assert ask(scheduler, "b") == "running"


def test_a_removed_pool_keeps_its_requests_pending_with_a_reason_also_after_a_restart(
    scheduler: SchedulerHarness,
):
    assert ask(scheduler, "a", node_pools=["a100"]).startswith("pending")
    assert ask(scheduler, "both", node_pools=["a100", "default"]) == "running"
    without = BASE.replace("node_pools: [{name: a100, label: {key: gpu, value: a100}}]", "")
    assert "node_pool a100" in affected(scheduler, without)
    scheduler.service.use_policy(parse_policy(without))
    scheduler.service.run_cycle()
    assert (state(scheduler, "a"), state(scheduler, "both")) == ("pending UnknownPool", "running")
    scheduler.start()
    scheduler.service.use_policy(parse_policy(without))
    scheduler.joined()
    assert (state(scheduler, "a"), state(scheduler, "both")) == ("pending UnknownPool", "running")


@pytest.mark.slow
def test_a_quota_lowered_under_use_is_reclaimed_fairly_by_those_who_have_it_now(tmp_path: Path):
    """A real service and an agent on a real socket: two whole GPUs of vision; language gets one of
    them, with notice, and not by a kill.
    """

    async def story() -> None:
        file = tmp_path / "gpushare.yaml"
        file.write_text(BASE)
        async with open_server(tmp_path / "state", policy_file=file) as running:
            admin, agent = running.admin, FakeAgent()
            async with agent.linked(admin):
                await agent.until(lambda: agent.plan is not None)
                await admin.submit(asking("a", 1, project="vision"))
                await admin.submit(asking("b", 1, project="vision"))
                await agent.until(lambda: len(agent.holds) == 2)
                check = await admin.check_policy(m.PolicyText(text=LOWERED))
                assert [one.workloads for one in check.affected if one.name == "vision"] == [
                    ["a", "b"]
                ]
                with pytest.raises(NotAllowed):
                    await running.of("alice").check_policy(m.PolicyText(text=LOWERED))
                running.server.loop.policy_file.write_text(LOWERED)
                running.server.loop.reload_policy(force=True)
                await asyncio.sleep(0)
                assert len(agent.holds) == 2, "a lowered quota alone takes nothing"
                await admin.submit(asking("mine", 1, project="language"))
                await agent.until(
                    lambda: any(lease.project == "language" for lease in agent.holds.values())
                )
                evicted = [
                    order.lease
                    for order in agent.orders
                    if isinstance(order, m.LeaseUpdated) and order.lease.wanted == "evict"
                ]
                assert len({lease.id for lease in evicted}) == 1
                assert evicted[0].notice_ms == 10_000
                assert sorted(lease.project for lease in agent.holds.values()) == [
                    "language",
                    "vision",
                ]
                waiting = [
                    one for one in (await admin.workloads()).workloads if one.state == "pending"
                ]
                assert [one.project for one in waiting] == ["vision"], "it waits, and is not lost"

    asyncio.run(story())


def test_a_pool_counts_those_who_are_tried_there_also_by_their_projects_list(
    scheduler: SchedulerHarness,
):
    listed = BASE.replace("{name: vision, ", "{name: vision, node_pools: [a100], ")
    scheduler.service.use_policy(parse_policy(listed))
    ask(scheduler, "by-project")
    assert ask(scheduler, "runs", node_pools=["a100", "default"], project="language") == "running"
    ask(scheduler, "by-itself", 2, node_pools=["a100", "default"], project="language")
    waiting = {row.name: row.pending for row in scheduler.service.queries.pools(ADMIN).pools}
    assert waiting == {"a100": 2, "default": 1}
    assert [row.pool for row in scheduler.service.queries.waiting(ADMIN).waiting] == [
        "a100",
        "a100",
    ]
    assert {
        scheduler.service.pending_status.summary(record)[2]
        for record in scheduler.service.unit_of_work.records.values()
        if not record.leases
    } == {"a100"}
