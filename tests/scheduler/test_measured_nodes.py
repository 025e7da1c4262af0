"""What agents measure of their GPUs is shown at once and costs the scheduler nothing: no write, no
cycle.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.scheduler.state.nodes import NodeRegistry
from tests.scheduler.databases import Database, check_invariants
from tests.scheduler.scheduler_harness import ADMIN, SchedulerHarness


@pytest.fixture
def scheduler(database: Database) -> Iterator[SchedulerHarness]:
    made = SchedulerHarness(database.url)
    yield made.joined()
    made.close()
    check_invariants(database.url)


def fleet(scheduler: SchedulerHarness) -> NodeRegistry:
    return scheduler.service.unit_of_work.nodes


def measured(scheduler: SchedulerHarness, **changes: object) -> m.NodeReport:
    report = fleet(scheduler).report("n0")
    return replace(report, devices=[replace(report.devices[0], **changes), *report.devices[1:]])


def test_a_measurement_is_shown_and_nothing_is_written(scheduler: SchedulerHarness):
    before = scheduler.service.unit_of_work.revision
    scheduler.service.agent_report(
        "n0",
        m.NodeChangedReport(
            node=measured(
                scheduler, used_mib=7, foreign_mib=5, foreign_processes=1, utilization=0.5
            )
        ),
    )
    (row,) = scheduler.service.queries.nodes(ADMIN).nodes
    device = row.devices[0]
    assert (device.foreign_mib, device.foreign_processes, device.utilization) == (5, 1, 0.5)
    assert scheduler.service.unit_of_work.revision == before
    scheduler.start()
    assert fleet(scheduler).report("n0").devices[0].foreign_mib == 0, (
        "it was not written: the agent says it again"
    )


def test_health_tiers_and_reasons_are_more_than_measurements(scheduler: SchedulerHarness):
    report = fleet(scheduler).report("n0")
    for changed in (
        measured(scheduler, healthy=False, health="XID 79"),
        measured(scheduler, health="Draining: 3 GiB"),
        replace(report, tiers=["observe"]),
        replace(report, driver="580.65.06"),
        replace(report, reasons=["disk pressure"]),
    ):
        assert not fleet(scheduler).refresh(changed)
    assert fleet(scheduler).refresh(measured(scheduler, used_mib=1))


def test_a_node_that_nobody_knows_has_to_join(scheduler: SchedulerHarness):
    assert not fleet(scheduler).refresh(replace(fleet(scheduler).report("n0"), name="n1"))
