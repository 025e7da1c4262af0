"""How long something may run and wait: told before, then taken back with the reason; and what an
idle rule gave back. Time is passed in.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import NotFound
from jupyter_gpushare.scheduler.policy.policy_file import parse_policy
from tests.scheduler.databases import Database, check_invariants
from tests.scheduler.scheduler_harness import ADMIN, ALICE, SchedulerHarness

POLICY = """
departments: [{name: research, pools: {default: {gpu: {quota: 2}}}}]
projects:
  - name: vision
    department: research
    pools: {default: {gpu: {quota: 2}}}
    rules: {max_running: 8h, max_waiting: 30m}
defaults: {notice: 30s, rules: {idle: {suspend: 30m}}}
"""
MIN, HOUR = 60_000, 3_600_000


class Termed(SchedulerHarness):
    """A scheduler with rules; `wait` lets time pass and ticks at its end."""

    def start(self) -> None:
        super().start()
        self.service.use_policy(parse_policy(POLICY))

    def wait(self, ms: int) -> None:
        self.time += ms
        self.service.tick(self.time)
        self.service.run_cycle()

    def lease(self, workload: str = "a") -> m.LeaseBody:
        return self.service.unit_of_work.records[workload].leases["kernel"]

    def wanted(self) -> list[m.LeaseBody]:
        return [order.lease for order in self.listener.orders if isinstance(order, m.LeaseUpdated)]

    def gone(self) -> list[m.WorkloadGone]:
        return [frame for frame in self.listener.frames if isinstance(frame, m.WorkloadGone)]

    def announced(self, workload: str) -> list[str]:
        return [
            event.message
            for event in self.service.unit_of_work.records[workload].events
            if event.kind == "notice"
        ]

    def lets_go(self, lease: m.LeaseBody, **more) -> None:
        self.service.agent_report("n0", m.LeaseReleased(lease=lease.id, ended=False, **more))


@pytest.fixture
def scheduler(database: Database) -> Iterator[Termed]:
    made = Termed(database.url)
    yield made.joined()
    made.close()
    check_invariants(database.url)


def test_a_lease_carries_the_rules_of_its_project_and_where_they_stand(scheduler: Termed):
    rules = scheduler.ask("a").pods[0].lease.rules
    assert (rules.max_running_ms, rules.idle_suspend_ms, rules.idle_release_ms) == (
        8 * HOUR,
        30 * MIN,
        None,
    )
    assert rules.places == {
        "max_running": "projects.vision.rules.max_running",
        "idle.suspend": "defaults.rules.idle.suspend",
    }


def test_the_running_time_limit_is_announced_a_notice_before_it_ends_the_workload(
    scheduler: Termed,
):
    scheduler.ask("a")
    scheduler.wait(8 * HOUR - 31_000)
    assert scheduler.lease().ends_at is None
    scheduler.wait(1_000)
    told = scheduler.wanted()[-1]
    assert told.wanted == "hold"
    assert told.ends_at == m.stamp(scheduler.time + 30_000)
    assert "projects.vision.rules.max_running" in told.message
    scheduler.wait(29_000)
    assert scheduler.lease().wanted == "hold", "not before its moment"
    scheduler.wait(1_000)
    taken = scheduler.wanted()[-1]
    assert taken.wanted == "evict"
    assert "projects.vision.rules.max_running" in taken.message
    assert scheduler.service.queries.workload(ALICE, "a").pods[0].state == "releasing", (
        "its agent saves it first"
    )
    scheduler.lets_go(taken)
    with pytest.raises(NotFound):
        scheduler.service.queries.workload(ALICE, "a")
    assert "max_running" in scheduler.gone()[-1].message
    assert scheduler.service.unit_of_work.store.is_ended("a")


def test_a_restart_forgets_neither_the_running_time_nor_its_announcement(scheduler: Termed):
    scheduler.ask("a")
    scheduler.wait(8 * HOUR - 20_000)
    told = scheduler.lease().ends_at
    assert told == m.stamp(scheduler.time + 30_000), "late, but with the whole notice"
    scheduler.start()
    scheduler.joined()
    scheduler.wait(29_000)
    assert scheduler.lease().wanted == "hold"
    assert scheduler.lease().ends_at == told
    scheduler.wait(1_000)
    assert scheduler.lease().wanted == "evict"
    scheduler.start()
    scheduler.joined()
    scheduler.wait(1_000)
    scheduler.lets_go(scheduler.lease())
    assert scheduler.gone(), "it ends, although the reason is forgotten"


def test_a_loosened_rule_takes_the_announcement_back(scheduler: Termed):
    scheduler.ask("a")
    scheduler.wait(8 * HOUR - 10_000)
    assert scheduler.lease().ends_at is not None
    scheduler.service.use_policy(parse_policy(POLICY.replace("max_running: 8h", "max_running: 9h")))
    scheduler.wait(1_000)
    assert scheduler.lease().ends_at is None
    scheduler.wait(10 * MIN)
    assert scheduler.lease().wanted == "hold"
    scheduler.service.use_policy(parse_policy(POLICY.replace("max_running: 8h, ", "")))
    scheduler.wait(5 * HOUR)
    assert scheduler.lease().wanted == "hold"
    assert scheduler.lease().rules.max_running_ms is None


def test_a_cancelled_request_says_why_it_was_pending(scheduler: Termed):
    scheduler.ask("a", 2)
    scheduler.ask("b", 1)
    scheduler.wait(30 * MIN - 1)
    assert scheduler.service.queries.workload(ALICE, "b").state == "pending"
    scheduler.wait(1)
    with pytest.raises(NotFound):
        scheduler.service.queries.workload(ALICE, "b")
    gone = scheduler.gone()[-1]
    assert gone.id == "b"
    assert "projects.vision.rules.max_waiting" in gone.message
    assert gone.reason is not None
    assert gone.reason.code in ("WaitingForQuota", "WaitingForFreeGPU")
    assert "It was pending because" in gone.reason.message
    assert scheduler.service.queries.workload(ALICE, "a").state == "running", (
        "who runs does not wait"
    )


def test_the_end_of_a_wait_is_announced_once_a_notice_before(scheduler: Termed):
    scheduler.ask("a", 2)
    scheduler.ask("b", 1)
    scheduler.wait(29 * MIN)
    assert not scheduler.announced("b")
    scheduler.wait(30_000)
    scheduler.wait(10_000)
    (told,) = scheduler.announced("b")
    assert told.startswith("The request is cancelled in 30 s unless it is granted before: ")
    assert "30 min (projects.vision.rules.max_waiting)" in told
    scheduler.service.use_policy(
        parse_policy(POLICY.replace("max_waiting: 30m", "max_waiting: 31m"))
    )
    scheduler.wait(20_000)
    assert scheduler.service.queries.workload(ALICE, "b").state == "pending", (
        "the rule was loosened"
    )
    scheduler.wait(30_000)
    assert len(scheduler.announced("b")) == 2
    assert not scheduler.announced("a"), "who runs does not wait"


def test_who_was_evicted_waits_from_then_on(scheduler: Termed):
    scheduler.ask("a")
    scheduler.wait(2 * HOUR)
    lease = scheduler.lease()
    scheduler.ask("whole", 2)
    scheduler.lets_go(lease)
    scheduler.service.run_cycle()
    scheduler.wait(29 * MIN)
    assert {record.id for record in scheduler.service.unit_of_work.records.values()} == {
        "a",
        "whole",
    }


def test_what_the_idle_rule_gave_back_books_nothing_until_it_is_asked_for_again(scheduler: Termed):
    scheduler.ask("a")
    scheduler.service.agent_report(
        "n0",
        m.LeaseEvent(
            lease=scheduler.lease().id,
            event=m.Event(time=m.stamp(1), kind="released", message="Idle."),
        ),
    )
    scheduler.lets_go(scheduler.lease(), held=True, message="Idle for an hour.")
    scheduler.service.run_cycle()
    view = scheduler.service.queries.workload(ALICE, "a")
    assert (view.state, view.reason.code) == ("pending", "Held")
    assert "next cell" in view.reason.message
    (evicted,) = scheduler.service.queries.evictions(ALICE).evictions
    assert (evicted.action, evicted.node, evicted.message) == ("idle", "n0", "Idle for an hour.")
    assert [
        row.detail
        for row in scheduler.service.queries.audit(
            action="evict", since="1970-01-01T00:00:00+00:00"
        ).audit
    ] == ["idle: Idle for an hour."]
    assert scheduler.leases() == []
    scheduler.wait(HOUR)
    assert scheduler.service.queries.workload(ALICE, "a").state == "pending", (
        "a held workload does not wait: the longest waiting time does not end it"
    )

    scheduler.start()
    scheduler.joined()
    assert scheduler.service.queries.workload(ALICE, "a").reason.code == "Held", (
        "a restart does not give it back either"
    )
    scheduler.service.agent_report("other", m.WorkloadRequeued(workload="a"))
    scheduler.service.run_cycle()
    assert scheduler.leases() == [], "only its own node may speak for it"
    for _ in range(2):
        scheduler.service.agent_report("n0", m.WorkloadRequeued(workload="a"))
    scheduler.service.run_cycle()
    assert scheduler.service.queries.workload(ALICE, "a").state == "running"
    assert scheduler.service.queries.workload(ADMIN, "a").reason is None
