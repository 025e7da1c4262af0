"""Nodes of Kubernetes run kernels in user pods: commands are refused there, with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.platform_node import PlatformNode
from jupyter_gpushare.scheduler.service.feasibility import Impossible
from tests.scheduler.scheduler_harness import ALICE, SchedulerHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[SchedulerHarness]:
    made = SchedulerHarness(f"sqlite:///{tmp_path / 'store.sqlite'}").joined()
    made.service.platform.update({"n0": PlatformNode()})
    yield made
    made.close()


def command(id_: str, **more: object) -> m.WorkloadRequest:
    pods = [m.PodRequest(name="main", gpu=0.5)]
    return m.WorkloadRequest(id=id_, pods=pods, command=m.CommandRequest(argv=["true"]), **more)


def test_a_command_is_refused(harness: SchedulerHarness) -> None:
    with pytest.raises(Impossible) as refused:
        harness.service.submit(ALICE, command("batch"))
    assert refused.value.code == "NeverFits"
    assert "on which kernels run in user pods" in refused.value.message
    assert harness.ask("kernel").pods[0].lease is not None


def test_a_command_runs_on_a_node_outside_of_kubernetes(harness: SchedulerHarness) -> None:
    outside = replace(harness.node(), name="n1")
    harness.service.agent_hello(m.AgentHello(version="1", node=outside), harness.listener.send)
    for i in range(3):
        harness.service.submit(ALICE, command(f"batch{i}"))
    harness.service.run_cycle()
    assert {lease.node for lease in harness.leases()} == {"n1"}


def test_a_command_that_is_queued_anyway_waits(harness: SchedulerHarness) -> None:
    harness.service.submit(ALICE, command("batch", queue_anyway=True))
    harness.service.run_cycle()
    view = harness.service.queries.workload(ALICE, "batch")
    assert view.reason is not None
    assert "commands cannot be started there" in view.reason.message
