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
from tests.scheduler.test_service import ADMIN, House


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    made = House(database.url)
    yield made.joined()
    made.close()
    check_invariants(database.url)


def fleet(house: House) -> NodeRegistry:
    return house.service.fleet


def measured(house: House, **changes: object) -> m.NodeReport:
    report = fleet(house).report("n0")
    return replace(report, devices=[replace(report.devices[0], **changes), *report.devices[1:]])


def test_a_measurement_is_shown_and_nothing_is_written(house: House):
    before = house.service.revision
    house.service.agent_said(
        "n0",
        m.NodeChangedReport(
            node=measured(house, used_mib=7, foreign_mib=5, foreign_processes=1, utilization=0.5)
        ),
    )
    (row,) = house.service.shown.nodes(ADMIN).nodes
    device = row.devices[0]
    assert (device.foreign_mib, device.foreign_processes, device.utilization) == (5, 1, 0.5)
    assert house.service.revision == before
    house.start()
    assert fleet(house).report("n0").devices[0].foreign_mib == 0, (
        "it was not written: the agent says it again"
    )


def test_health_tiers_and_reasons_are_more_than_measurements(house: House):
    report = fleet(house).report("n0")
    for changed in (
        measured(house, healthy=False, health="XID 79"),
        measured(house, health="Draining: 3 GiB"),
        replace(report, tiers=["observe"]),
        replace(report, driver="580.65.06"),
        replace(report, reasons=["disk pressure"]),
    ):
        assert not fleet(house).refresh(changed)
    assert fleet(house).refresh(measured(house, used_mib=1))


def test_a_node_that_nobody_knows_has_to_join(house: House):
    assert not fleet(house).refresh(replace(fleet(house).report("n0"), name="n1"))
