"""Turns in the scheduler service: an idle workload gives way to a waiting cell, and what its agent
answers counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from tests.scheduler.scheduler_harness import ALICE, SchedulerHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[SchedulerHarness]:
    """Two GPUs, with a kernel of half a GPU on each half."""
    made = SchedulerHarness(f"sqlite:///{tmp_path}/db").joined()
    for name in "abcd":
        made.ask(name, kernel_id=name, project="course")
    owners = [m.KernelOwner(kernel_id=name, user="alice") for name in "abcdef"]
    made.service.agent_report("n0", m.KernelsChanged(registered=owners))
    yield made
    made.close()


def report(harness: SchedulerHarness, name: str, **row: object) -> None:
    """The agent reports one kernel, and the scheduler decides."""
    rows = [m.KernelActivity(workload=name, **row)]
    harness.service.agent_report("n0", m.ActivityReport(rows=rows))
    harness.service.run_cycle()


def lease_of(harness: SchedulerHarness, name: str) -> m.LeaseBody | None:
    return next((lease for lease in harness.leases() if lease.workload == name), None)


def idle(harness: SchedulerHarness, name: str, ms: int = 5000, **more: object) -> None:
    report(harness, name, idle_ms=ms, turn_ms=9000, **more)


def reason(harness: SchedulerHarness, name: str) -> str:
    view = harness.service.queries.workload(ALICE, name)
    assert view.reason is not None
    return view.reason.code


def test_a_waiting_cell_gets_the_share_of_the_least_recently_used(
    harness: SchedulerHarness,
) -> None:
    harness.ask("e", kernel_id="e", project="course")
    idle(harness, "b", ms=3000)
    idle(harness, "c", ms=7000)
    assert {lease.wanted for lease in harness.leases()} == {"hold"}, "no cell waits"
    report(harness, "e", waits_ms=10)
    lease = lease_of(harness, "c")
    assert lease is not None
    assert lease.wanted == "yield"
    assert 'project "course"' in lease.message
    message = m.LeaseReleased(lease=lease.id, ended=False, held=True, message="Released.")
    harness.service.agent_report("n0", message)
    harness.service.run_cycle()
    assert lease_of(harness, "e") is not None
    assert lease_of(harness, "c") is None
    assert reason(harness, "c") == "Held"
    harness.nothing_is_booked_twice()

    harness.service.agent_report("n0", m.WorkloadRequeued(workload="c"))
    idle(harness, "b", ms=4000)
    report(harness, "c", waits_ms=0)
    kept = lease_of(harness, "b")
    assert kept is not None
    assert kept.wanted == "yield", "the next turn"


def test_a_share_that_is_in_use_after_all_is_kept_and_another_gives_way(
    harness: SchedulerHarness,
) -> None:
    harness.ask("e", kernel_id="e", project="course")
    idle(harness, "b", ms=3000)
    idle(harness, "c", ms=7000)
    report(harness, "e", waits_ms=10)
    lease = lease_of(harness, "c")
    assert lease is not None
    for _ in range(2):
        harness.service.agent_report("n0", m.LeaseKept(lease=lease.id))
    harness.service.run_cycle()
    wanted = {one.workload: one.wanted for one in harness.leases()}
    assert wanted == {"a": "hold", "b": "yield", "c": "hold", "d": "hold"}
    assert harness.service.queries.workload(ALICE, "c").state == "running"


def test_a_share_that_is_to_be_given_up_is_so_after_a_restart_of_the_scheduler(
    harness: SchedulerHarness,
) -> None:
    harness.ask("e", kernel_id="e", project="course")
    idle(harness, "c")
    report(harness, "e", waits_ms=10)
    harness.start()
    harness.joined()
    lease = lease_of(harness, "c")
    assert lease is not None
    assert lease.wanted == "yield"
    harness.service.agent_report("n0", m.LeaseKept(lease=lease.id))
    assert harness.service.queries.workload(ALICE, "c").state == "running"


def test_reports_about_workloads_of_other_nodes_and_unknown_ones_are_ignored(
    harness: SchedulerHarness,
) -> None:
    harness.ask("x", kernel_id="elsewhere", project="course")
    idle(harness, "c")
    report(harness, "x", waits_ms=10)
    report(harness, "unknown", waits_ms=10)
    assert {lease.wanted for lease in harness.leases()} == {"hold"}


def test_a_decision_is_repeated_when_the_protected_turn_ends(harness: SchedulerHarness) -> None:
    harness.ask("e", kernel_id="e", project="course")
    report(harness, "c", idle_ms=0, turn_ms=400)
    report(harness, "e", waits_ms=10)
    assert reason(harness, "e") == "WaitingForTurn"
    assert harness.service.unit_of_work.decisions.retry_at == harness.time + 600
    harness.time += 600
    harness.service.run_cycle()
    lease = lease_of(harness, "c")
    assert lease is not None
    assert lease.wanted == "yield"
