"""The messages of reasons name the obstacle with its numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.amounts import UNLIMITED, Amounts
from jupyter_gpushare.core.model.events import WorkloadSubmitted
from jupyter_gpushare.core.model.model import (
    Node,
    Pod,
    Policy,
    Project,
    Topology,
    TopologyConstraint,
    Workload,
)
from jupyter_gpushare.core.model.reason import ReasonCode
from tests.core.strategies import policy_of, quota, workload, world

N0 = Node("n0", gpus=2, gpu_memory=1000)
RACKS = replace(policy_of({"A": 2}), topologies=(Topology("fabric", ("rack",)),))
RACKED = [Node(f"n{i}", gpus=2, gpu_memory=1000, labels={"rack": f"r{i}"}) for i in range(2)]


def test_cpu_limits_are_in_cpus() -> None:
    rules = quota(2)._replace(limit=Amounts(UNLIMITED, 1500, UNLIMITED))
    cluster = world(
        Policy(projects=(Project("A", None, {"default": rules}),)),
        [N0],
        [workload("w", "A", 1, cpu=2000)],
    )
    reason = cycle(cluster, 0).reasons["w"]
    assert reason.code == ReasonCode.OVER_LIMIT
    message = 'Over the limit of project "A": 0 of 1.5 CPUs in use, 2 more requested.'
    assert reason.message == message


def test_the_missing_cpu_is_named() -> None:
    cluster = world(
        policy_of({"A": 2}),
        [replace(N0, cpu=1000)],
        [workload("w", "A", 1, cpu=600), workload("x", "A", 1, cpu=600)],
    )
    reason = cycle(cluster, 0).reasons["x"]
    assert reason.message == (
        '1 GPU is free in pool "default", but not on a node with 0.6 CPU and room for another pod.'
    )


def test_a_rack_that_is_too_small_is_named() -> None:
    cluster = world(
        RACKS,
        RACKED,
        [workload("w", "A", 2, pods=2, topology=TopologyConstraint("fabric", "rack"))],
    )
    reason = cycle(cluster, 0).reasons["w"]
    assert reason.message == (
        'Cannot start: 4 GPUs requested in one rack of topology "fabric", '
        'but the largest in pool "default" has 2.'
    )


def test_a_rack_without_room_is_named() -> None:
    nodes = [*RACKED, Node("n3", gpus=2, gpu_memory=1000, labels={"rack": "r0"})]
    taken = Workload("a", "A", (Pod("a-0", gpu=1000, node_selector={"rack": "r0"}),), created=-1)
    cluster = world(
        RACKS,
        nodes,
        [taken, workload("w", "A", 2, pods=2, topology=TopologyConstraint("fabric", "rack"))],
    )
    reason = cycle(cluster, 0).reasons["w"]
    assert reason.message == (
        '5 GPUs are free in pool "default", but no rack of topology "fabric" has room for all pods.'
    )


def test_free_fractions_are_parts_of_gpus_not_of_nodes() -> None:
    taken = [workload(name, "A", 0.6, created=-1) for name in "ab"]
    cluster = world(policy_of({"A": 2}), [N0], taken)
    cycle(cluster, 0)
    cluster.apply(WorkloadSubmitted(workload("w", "A", 1)))
    assert cycle(cluster, 1000).reasons["w"].message == (
        'Needs 1 GPU in pool "default"; 0.8 is free, in parts of at most 0.4 of one GPU.'
    )


MESSAGES = {
    "too large": (
        workload("w", "A", 3),
        'Cannot start: 3 GPUs requested, but the largest node in pool "default" has 2.',
    ),
    "too much memory": (
        workload("w", "A", gpu_memory=2048),
        (
            "Cannot start: 2 GiB of GPU memory requested, "
            'but the largest GPU in pool "default" has 1000 MiB.'
        ),
    ),
    "not enough free": (workload("w", "A", 2), 'Needs 2 GPUs in pool "default"; 1 is free.'),
    "part of a gang": (
        workload("w", "A", 1, pods=2),
        '1 of 2 pods fits in pool "default"; all of them start together.',
    ),
    "held": (
        replace(workload("w", "A"), held=True),
        "Held by its owner; it is queued again when resumed.",
    ),
}


@pytest.mark.parametrize(("asks", "message"), MESSAGES.values(), ids=MESSAGES)
def test_messages(asks: Workload, message: str) -> None:
    cluster = world(policy_of({"A": 2}), [N0], [workload("a", "A", created=-1)])
    cycle(cluster, 0)
    cluster.apply(WorkloadSubmitted(asks))
    assert cycle(cluster, 1000).reasons["w"].message == message
