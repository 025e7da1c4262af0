"""What follows from nodes and pods."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.core.model.node_conditions import NodeCondition
from jupyter_gpushare.core.model.platform_node import PlatformNode
from jupyter_gpushare.kube import names
from jupyter_gpushare.kube.inventory import Inventory
from jupyter_gpushare.kube.objects import key_of, read_node, read_pod
from jupyter_gpushare.kube.rules import RuleSettings, describe

from .api_objects import agent_pod, node, operator_pod, slot_pod

SCHEDULING = "0/3 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: not eligible"


def described(
    raw: dict[str, Any], *pods: dict[str, Any], settings: RuleSettings | None = None
) -> PlatformNode:
    facts = read_node(raw)
    assert facts is not None
    read = [read_pod(pod) for pod in pods]
    return describe(facts, [pod for pod in read if pod is not None], settings or RuleSettings())


def slots(name: str, running: int) -> list[dict[str, Any]]:
    return [slot_pod(name, i) for i in range(running)]


def test_a_managed_node_with_all_slots_is_ready() -> None:
    found = described(node("n0", labels={"pool": "a"}), *slots("n0", 2), agent_pod("n0"))
    assert found.is_managed
    assert not found.conditions
    assert found.labels["pool"] == "a"


def test_a_node_without_the_label_is_not_managed() -> None:
    found = described(node("n0", managed=False), *slots("n0", 2))
    assert not found.is_managed
    message = found.conditions[NodeCondition.NOT_MANAGED]
    assert message == "the label gpushare.jupyter.org/managed=true is missing"


def test_a_pending_slot_says_what_the_kubernetes_scheduler_says() -> None:
    pending = slot_pod("n0", 1, running=False, message=SCHEDULING)
    message = described(node("n0"), slot_pod("n0", 0), pending).conditions[
        NodeCondition.GPUS_NOT_RESERVED
    ]
    assert message == f"slots hold 1 of 2 GPUs; gpushare-slot-1-n0: {SCHEDULING}"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"labels": {names.SHARING_LABEL: "time-slicing"}}, "several times"),
        ({"allocatable": {"nvidia.com/mig-1g.10gb": "7"}}, "MIG"),
        ({"gpus": None}, "no nvidia.com/gpu"),
        ({"gpus": 1}, "2 slots run for 1 allocatable GPU"),
        ({"gpus": 3}, "no further slot pod exists"),
    ],
)
def test_gpus_that_are_not_reserved(changes: dict[str, Any], expected: str) -> None:
    found = described(node("n0", **changes), *slots("n0", 2))
    assert expected in found.conditions[NodeCondition.GPUS_NOT_RESERVED]


def test_without_reservation_slots_do_not_matter() -> None:
    found = described(node("n0", gpus=None), settings=RuleSettings(reserve=False))
    assert not found.conditions


def test_slots_that_may_not_be_read_are_not_taken_for_granted() -> None:
    found = described(node("n0"), settings=RuleSettings(pods_problem="slots are not known: no"))
    assert found.conditions[NodeCondition.GPUS_NOT_RESERVED] == "slots are not known: no"


def test_conditions_of_the_kubelet_keep_their_message() -> None:
    pressure = {"type": "DiskPressure", "status": "True", "message": "kubelet has disk pressure"}
    raw = node("n0", ready="Unknown", cordoned=True, conditions=[pressure])
    assert described(raw, *slots("n0", 2)).conditions == {
        NodeCondition.KUBERNETES_NOT_READY: "container runtime is down",
        NodeCondition.DISK_PRESSURE: "kubelet has disk pressure",
        NodeCondition.SCHEDULING_DISABLED: "the node is cordoned in Kubernetes (kubectl uncordon)",
    }


def test_a_node_that_an_autoscaler_removes_takes_nothing_new() -> None:
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    found = described(node("n0", taints=[taint]), *slots("n0", 2))
    assert found.conditions[NodeCondition.SCHEDULING_DISABLED] == "Karpenter is removing this node"


def test_missing_parts_of_the_operator() -> None:
    wanted = {names.DEPLOY_TOOLKIT_LABEL: "true", names.DEPLOY_DCGM_EXPORTER_LABEL: "true"}
    raw, seen = node("n0", labels=wanted), RuleSettings(sees_operator=True)
    found = described(raw, *slots("n0", 2), settings=seen).conditions
    assert found[NodeCondition.MISSING_CONTAINER_TOOLKIT] == (
        "no pod nvidia-container-toolkit-daemonset runs on the node"
    )
    assert NodeCondition.MISSING_DCGM_EXPORTER in found
    parts = [operator_pod("n0", names.TOOLKIT_APP), operator_pod("n0", "nvidia-dcgm-exporter")]
    assert not described(raw, *slots("n0", 2), *parts, settings=seen).conditions
    assert not described(raw, *slots("n0", 2)).conditions, "unknown is not missing"


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
PATHS = [
    ("metadata",),
    ("metadata", "labels"),
    ("metadata", "name"),
    ("spec",),
    ("spec", "affinity"),
    ("spec", "taints"),
    ("status",),
    ("status", "conditions"),
    ("status", "allocatable"),
    ("status", "containerStatuses"),
]


@given(st.sampled_from(PATHS), ODD, st.booleans())
def test_odd_objects_are_read_as_far_as_possible(
    path: tuple[str, ...], odd: Any, is_node: bool
) -> None:
    raw = node("n0") if is_node else slot_pod("n0", 0, running=False)
    inner: Any = raw
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = odd
    key_of(raw)
    facts = read_node(raw)
    if facts is not None:
        describe(facts, [], RuleSettings(sees_operator=True))
    read_pod(raw)


@given(ODD)
def test_anything_can_be_read(odd: Any) -> None:
    assert read_node(odd) is None
    assert read_pod(odd) is None


NODES = st.builds(
    node,
    st.sampled_from(["n0", "n1", "n2"]),
    gpus=st.sampled_from([None, 1, 2]),
    managed=st.booleans(),
    ready=st.sampled_from(["True", "False", "Unknown"]),
    cordoned=st.booleans(),
)
SLOTS = st.builds(
    slot_pod, st.sampled_from(["n0", "n1", "n2"]), st.integers(0, 2), running=st.booleans()
)
AGENTS = st.builds(agent_pod, st.sampled_from(["n0", "n1", "n2"]), running=st.booleans())
CHANGES = st.lists(st.tuples(NODES | SLOTS | AGENTS, st.booleans()), max_size=40)


@given(CHANGES)
def test_changes_one_by_one_give_the_same_as_everything_at_once(
    changes: list[tuple[dict[str, Any], bool]],
) -> None:
    one_by_one = Inventory(RuleSettings())
    known: dict[str, PlatformNode | None] = {}
    last: dict[str, dict[str, Any] | None] = {}
    for raw, is_gone in changes:
        last[key_of(raw)] = None if is_gone else raw
        _put(one_by_one, raw, is_gone)
        known.update({name: one_by_one.describe(name) for name in one_by_one.changed})
        one_by_one.changed.clear()
    at_once = Inventory(RuleSettings())
    for raw in last.values():
        if raw is not None:
            _put(at_once, raw, False)
    assert one_by_one.nodes == at_once.nodes
    assert one_by_one.pods == at_once.pods
    for name in ("n0", "n1", "n2"):
        assert known.get(name) == at_once.describe(name)
    assert one_by_one.agent_problems(["n1"]) == at_once.agent_problems(["n1"])


def _put(inventory: Inventory, raw: dict[str, Any], is_gone: bool) -> None:
    key = key_of(raw)
    if raw["kind"] == "Node":
        inventory.put_node(key, None if is_gone else read_node(raw))
    else:
        inventory.put_pod(key, None if is_gone else read_pod(raw))


@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 2))
def test_ready_means_as_many_running_slots_as_allocatable_gpus(
    gpus: int, running: int, pending: int
) -> None:
    waiting = [slot_pod("n0", running + i, running=False, message="no") for i in range(pending)]
    found = described(node("n0", gpus=gpus), *slots("n0", running), *waiting)
    is_ready = NodeCondition.GPUS_NOT_RESERVED not in found.conditions
    assert is_ready == (gpus > 0 and running == gpus)


def test_a_managed_node_without_an_agent_is_named() -> None:
    inventory = Inventory(RuleSettings())
    _put(inventory, node("n0"), False)
    assert inventory.agent_problems([]) == ["node n0: no agent pod (DaemonSet gpushare-agent)"]
    _put(inventory, agent_pod("n0", running=False, message="no room"), False)
    assert inventory.agent_problems([]) == [
        "node n0: agent gpushare-agent-n0 does not run: no room"
    ]
    _put(inventory, agent_pod("n0"), False)
    assert "is not connected" in inventory.agent_problems([])[0]
    assert inventory.agent_problems(["n0"]) == []
