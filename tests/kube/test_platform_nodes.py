"""What the platform says about nodes, in the scheduler: labels, conditions, deleted nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import NotFound
from jupyter_gpushare.core.model.node_conditions import NodeCondition
from jupyter_gpushare.core.model.platform_node import PlatformNode
from jupyter_gpushare.scheduler.auth.identity import Identity
from tests.scheduler.scheduler_harness import ADMIN, ALICE, SchedulerHarness

LABELS = {"gpushare.jupyter.org/managed": "true"}
READY = PlatformNode(LABELS)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[SchedulerHarness]:
    made = SchedulerHarness(f"sqlite:///{tmp_path / 'store.sqlite'}").joined()
    yield made
    made.close()


def nodes(harness: SchedulerHarness) -> dict[str, tuple[str, list[str], dict[str, str]]]:
    rows = harness.service.queries.nodes(ADMIN).nodes
    return {row.name: (row.status, row.reasons, row.reason_details) for row in rows}


def silence(harness: SchedulerHarness) -> None:
    harness.service.agent_disconnected("n0", harness.listener.send)


def test_conditions_keep_new_workloads_away_and_say_why(harness: SchedulerHarness) -> None:
    running = harness.ask("first")
    assert running.pods[0].lease is not None
    message = "slots hold 1 of 2 GPUs; 1 Insufficient nvidia.com/gpu"
    condition = NodeCondition.GPUS_NOT_RESERVED
    harness.service.platform.update({"n0": PlatformNode(LABELS, {condition: message})})
    assert nodes(harness)["n0"] == ("Not ready", [str(condition)], {str(condition): message})
    pending = harness.ask("second")
    assert pending.reason is not None
    assert pending.reason.code == "NodeNotReady"
    assert "GPUs not reserved" in pending.reason.message
    assert harness.service.queries.workload(ALICE, "first").pods[0].lease is not None
    harness.service.platform.update({"n0": READY})
    harness.service.run_cycle()
    assert harness.service.queries.workload(ALICE, "second").pods[0].lease is not None


def test_a_missing_dcgm_exporter_is_a_warning(harness: SchedulerHarness) -> None:
    condition = NodeCondition.MISSING_DCGM_EXPORTER
    harness.service.platform.update({"n0": PlatformNode(LABELS, {condition: "no pod"})})
    assert nodes(harness)["n0"] == ("Ready", [str(condition)], {str(condition): "no pod"})


def test_a_deleted_node_with_a_silent_agent_ends_its_leases_at_once(
    harness: SchedulerHarness,
) -> None:
    harness.service.platform.update({"n0": READY})
    harness.ask("first")
    harness.service.platform.update({}, ["n0"])
    assert nodes(harness)["n0"][:2] == ("Not ready", ["node deleted"])
    assert len(harness.leases()) == 1, "its agent is connected, so its processes may live"
    silence(harness)
    assert harness.leases() == []
    assert nodes(harness) == {}
    gone = [frame for frame in harness.listener.frames if type(frame).__name__ == "WorkloadGone"]
    assert [frame.message for frame in gone] == ["Node n0 was deleted."]  # type: ignore[union-attr]
    harness.start()
    assert nodes(harness) == {}, "it is gone from the store too"


def test_a_node_that_was_deleted_while_no_scheduler_ran(harness: SchedulerHarness) -> None:
    harness.service.platform.update({"n0": READY})
    harness.ask("first")
    harness.start()
    assert harness.service.platform.names() == {"n0"}
    assert len(harness.leases()) == 1, "what Kubernetes says is not known yet"
    harness.service.platform.update({}, ["n0"])
    assert harness.leases() == []


def test_a_node_outside_of_kubernetes_is_left_alone(harness: SchedulerHarness) -> None:
    harness.ask("first")
    harness.start()
    harness.service.platform.update({"n1": READY}, ["n0", "n2"])
    harness.service.tick(harness.time)
    assert len(harness.leases()) == 1
    assert set(nodes(harness)) == {"n0"}


def test_a_label_that_is_removed_without_a_drain(harness: SchedulerHarness) -> None:
    harness.service.platform.update({"n0": READY})
    harness.ask("first")
    left = PlatformNode({}, {NodeCondition.NOT_MANAGED: "the label is missing"}, is_managed=False)
    harness.service.platform.update({"n0": left})
    harness.service.tick(harness.time)
    assert nodes(harness)["n0"][1] == ["undrained migrated node", "not managed"]
    harness.service.platform.set_status(m.KubernetesStatus(nodes=1))
    seen = harness.service.queries.status(ADMIN).kubernetes
    assert seen is not None
    assert seen.undrained == {"n0": ["first"]}
    hidden = harness.service.queries.status(Identity.nobody()).kubernetes
    assert hidden is not None
    assert hidden.undrained == {}
    silence(harness)
    assert len(harness.leases()) == 1, "user pods still run there"
    harness.service.end(ALICE, "first")
    harness.service.tick(harness.time)
    assert nodes(harness) == {}


def test_a_drained_node_leaves_when_its_agent_does(harness: SchedulerHarness) -> None:
    harness.service.platform.update({"n0": READY})
    harness.service.cordons.drain("root", "n0")
    left = PlatformNode({}, {NodeCondition.NOT_MANAGED: "the label is missing"}, is_managed=False)
    harness.service.platform.update({"n0": left})
    harness.service.tick(harness.time)
    assert "undrained migrated node" not in nodes(harness)["n0"][1]
    silence(harness)
    assert nodes(harness) == {}
    harness.joined()
    harness.service.platform.update({"n0": READY})
    assert nodes(harness)["n0"][1] == ["scheduling disabled"], "still cordoned"


def test_a_node_is_uncordoned_before_its_agent_is_back(harness: SchedulerHarness) -> None:
    harness.service.platform.update({"n0": READY})
    harness.service.cordons.drain("root", "n0")
    harness.service.platform.update({}, ["n0"])
    silence(harness)
    assert nodes(harness) == {}
    assert not harness.service.cordons.uncordon("root", "n0").cordoned
    with pytest.raises(NotFound):
        harness.service.cordons.uncordon("root", "n0")
    harness.joined()
    harness.service.platform.update({"n0": READY})
    assert nodes(harness)["n0"][:2] == ("Ready", [])


def test_labels_of_the_platform_survive_a_restart(harness: SchedulerHarness) -> None:
    harness.service.platform.update({"n0": PlatformNode({**LABELS, "zone": "a"})})
    harness.start()
    assert harness.service.unit_of_work.nodes.labels("n0")["zone"] == "a"
    harness.joined()
    assert harness.service.unit_of_work.nodes.labels("n0")["zone"] == "a"
    harness.start()
    assert harness.service.unit_of_work.nodes.labels("n0")["zone"] == "a"
