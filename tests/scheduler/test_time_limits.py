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
from tests.scheduler.test_service import ADMIN, ALICE, House

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


class Termed(House):
    """Its house, with rules; `wait` lets time pass and ticks at its end."""

    def start(self) -> None:
        super().start()
        self.service.use_policy(parse_policy(POLICY))

    def wait(self, ms: int) -> None:
        self.time += ms
        self.service.tick(self.time)
        self.service.run_cycle()

    def lease(self, workload: str = "a") -> m.LeaseBody:
        return self.service.records[workload].leases["kernel"]

    def wanted(self) -> list[m.LeaseBody]:
        return [order.lease for order in self.listener.orders if isinstance(order, m.LeaseUpdated)]

    def gone(self) -> list[m.WorkloadGone]:
        return [frame for frame in self.listener.frames if isinstance(frame, m.WorkloadGone)]

    def announced(self, workload: str) -> list[str]:
        return [
            event.message
            for event in self.service.records[workload].events
            if event.kind == "notice"
        ]

    def lets_go(self, lease: m.LeaseBody, **more) -> None:
        self.service.agent_said("n0", m.LeaseReleased(lease=lease.id, ended=False, **more))


@pytest.fixture
def house(database: Database) -> Iterator[Termed]:
    made = Termed(database.url)
    yield made.joined()
    made.close()
    check_invariants(database.url)


def test_a_lease_carries_the_rules_of_its_project_and_where_they_stand(house: Termed):
    rules = house.ask("a").pods[0].lease.rules
    assert (rules.max_running_ms, rules.idle_suspend_ms, rules.idle_release_ms) == (
        8 * HOUR,
        30 * MIN,
        None,
    )
    assert rules.places == {
        "max_running": "projects.vision.rules.max_running",
        "idle.suspend": "defaults.rules.idle.suspend",
    }


def test_the_longest_running_time_is_told_a_notice_before_and_then_ends_the_workload(house: Termed):
    house.ask("a")
    house.wait(8 * HOUR - 31_000)
    assert house.lease().ends_at is None
    house.wait(1_000)
    told = house.wanted()[-1]
    assert told.wanted == "hold"
    assert told.ends_at == m.stamp(house.time + 30_000)
    assert "projects.vision.rules.max_running" in told.message
    house.wait(29_000)
    assert house.lease().wanted == "hold", "not before its moment"
    house.wait(1_000)
    taken = house.wanted()[-1]
    assert taken.wanted == "evict"
    assert "projects.vision.rules.max_running" in taken.message
    assert house.service.shown.workload(ALICE, "a").pods[0].state == "releasing", (
        "its agent saves it first"
    )
    house.lets_go(taken)
    with pytest.raises(NotFound):
        house.service.shown.workload(ALICE, "a")
    assert "max_running" in house.gone()[-1].message
    assert house.service.store.is_ended("a")


def test_a_restart_forgets_neither_the_running_time_nor_that_it_was_told(house: Termed):
    house.ask("a")
    house.wait(8 * HOUR - 20_000)
    told = house.lease().ends_at
    assert told == m.stamp(house.time + 30_000), "late, but with the whole notice"
    house.start()
    house.joined()
    house.wait(29_000)
    assert house.lease().wanted == "hold"
    assert house.lease().ends_at == told
    house.wait(1_000)
    assert house.lease().wanted == "evict"
    house.start()
    house.joined()
    house.wait(1_000)
    house.lets_go(house.lease())
    assert house.gone(), "it ends, whoever of us remembers why"


def test_a_loosened_rule_takes_the_announcement_back(house: Termed):
    house.ask("a")
    house.wait(8 * HOUR - 10_000)
    assert house.lease().ends_at is not None
    house.service.use_policy(parse_policy(POLICY.replace("max_running: 8h", "max_running: 9h")))
    house.wait(1_000)
    assert house.lease().ends_at is None
    house.wait(10 * MIN)
    assert house.lease().wanted == "hold"
    house.service.use_policy(parse_policy(POLICY.replace("max_running: 8h, ", "")))
    house.wait(5 * HOUR)
    assert house.lease().wanted == "hold"
    assert house.lease().rules.max_running_ms is None


def test_who_waits_too_long_is_told_why_it_waited(house: Termed):
    house.ask("a", 2)
    house.ask("b", 1)
    house.wait(30 * MIN - 1)
    assert house.service.shown.workload(ALICE, "b").state == "pending"
    house.wait(1)
    with pytest.raises(NotFound):
        house.service.shown.workload(ALICE, "b")
    gone = house.gone()[-1]
    assert gone.id == "b"
    assert "projects.vision.rules.max_waiting" in gone.message
    assert gone.reason is not None
    assert gone.reason.code in ("WaitingForQuota", "WaitingForFreeGPU")
    assert "It waited because" in gone.reason.message
    assert house.service.shown.workload(ALICE, "a").state == "running", "who runs does not wait"


def test_the_end_of_a_wait_is_announced_once_a_notice_before(house: Termed):
    house.ask("a", 2)
    house.ask("b", 1)
    house.wait(29 * MIN)
    assert not house.announced("b")
    house.wait(30_000)
    house.wait(10_000)
    (told,) = house.announced("b")
    assert told.startswith("In 30 s it is not waited for any more, if it has no GPU by then: ")
    assert "30 min (projects.vision.rules.max_waiting)" in told
    house.service.use_policy(parse_policy(POLICY.replace("max_waiting: 30m", "max_waiting: 31m")))
    house.wait(20_000)
    assert house.service.shown.workload(ALICE, "b").state == "pending", "the rule was loosened"
    house.wait(30_000)
    assert len(house.announced("b")) == 2
    assert not house.announced("a"), "who runs does not wait"


def test_who_was_evicted_waits_from_then_on(house: Termed):
    house.ask("a")
    house.wait(2 * HOUR)
    lease = house.lease()
    house.ask("whole", 2)
    house.lets_go(lease)
    house.service.run_cycle()
    house.wait(29 * MIN)
    assert {record.id for record in house.service.records.values()} == {"a", "whole"}


def test_what_the_idle_rule_gave_back_books_nothing_until_it_is_asked_for_again(house: Termed):
    house.ask("a")
    house.service.agent_said(
        "n0",
        m.LeaseEvent(
            lease=house.lease().id, event=m.Event(time=m.stamp(1), kind="released", message="Idle.")
        ),
    )
    house.lets_go(house.lease(), held=True, message="Idle for an hour.")
    house.service.run_cycle()
    view = house.service.shown.workload(ALICE, "a")
    assert (view.state, view.reason.code) == ("pending", "Held")
    assert "next cell" in view.reason.message
    (evicted,) = house.service.shown.evictions(ALICE).evictions
    assert (evicted.action, evicted.node, evicted.message) == ("idle", "n0", "Idle for an hour.")
    assert [
        row.detail
        for row in house.service.shown.audit(
            action="evict", since="1970-01-01T00:00:00+00:00"
        ).audit
    ] == ["idle: Idle for an hour."]
    assert house.leases() == []
    house.wait(HOUR)
    assert house.service.shown.workload(ALICE, "a").state == "pending", (
        "resting is not waiting: the longest waiting time does not end it"
    )

    house.start()
    house.joined()
    assert house.service.shown.workload(ALICE, "a").reason.code == "Held", (
        "a restart does not give it back either"
    )
    house.service.agent_said("other", m.WorkloadRequeued(workload="a"))
    house.service.run_cycle()
    assert house.leases() == [], "only its own node may speak for it"
    for _ in range(2):
        house.service.agent_said("n0", m.WorkloadRequeued(workload="a"))
    house.service.run_cycle()
    assert house.service.shown.workload(ALICE, "a").state == "running"
    assert house.service.shown.workload(ADMIN, "a").reason is None
