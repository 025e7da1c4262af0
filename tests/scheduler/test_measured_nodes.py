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
            node=replace(
                measured(
                    scheduler,
                    used_mib=7,
                    foreign_mib=5,
                    foreign_processes=1,
                    utilization=0.5,
                    temperature_c=61,
                    power_w=288,
                ),
                host_cpu=0.25,
                host_memory_mib=65536,
                host_used_mib=8192,
                saved_mib=4096,
                saved_left_mib=2048,
            )
        ),
    )
    (row,) = scheduler.service.queries.nodes(ADMIN).nodes
    device = row.devices[0]
    assert (device.temperature_c, device.power_w, row.host_cpu) == (61, 288, 0.25)
    assert (row.host_memory_mib, row.host_used_mib) == (65536, 8192)
    assert (row.saved_mib, row.saved_left_mib) == (4096, 2048)
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


def test_the_guarantee_of_a_kernel_that_moves_counts_on_its_new_gpu(scheduler: SchedulerHarness):
    """Its memory is on the old GPU until it is saved, where another share is guaranteed already."""
    moving = scheduler.ask("moving", 0.5).pods[0].lease
    whole = scheduler.ask("whole", 1).pods[0].lease
    reports = (
        m.LeaseReport(
            lease=moving.id, state="attached", gpu_uuids=["SIM-0"], assigned_uuids=["SIM-1"]
        ),
        m.LeaseReport(
            lease=whole.id, state="attached", gpu_uuids=["SIM-0"], assigned_uuids=["SIM-0"]
        ),
    )
    for report in reports:
        scheduler.service.agent_report("n0", m.LeaseChanged(report=report))
    (row,) = scheduler.service.queries.nodes(ADMIN).nodes
    total = row.devices[0].memory_mib.total
    assert [device.memory_mib.guaranteed for device in row.devices] == [total, total // 2]
    assert [len(device.kernels) for device in row.devices] == [2, 0]
