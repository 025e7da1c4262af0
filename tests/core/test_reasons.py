"""Every reason names the obstacle: take it away, and the workload starts. And the numbers and helps
are true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cycle.cycle import cycle, what_if
from jupyter_gpushare.core.model.amounts import UNLIMITED, Amounts
from jupyter_gpushare.core.model.events import (
    NodeChanged,
    NodeJoined,
    PolicyChanged,
    WorkloadEnded,
    WorkloadHeld,
    WorkloadSubmitted,
)
from jupyter_gpushare.core.model.model import (
    Node,
    NodePool,
    Pod,
    Policy,
    Project,
    Topology,
    TopologyConstraint,
    Workload,
)
from jupyter_gpushare.core.model.reason import ReasonCode, counted
from tests.core.strategies import policy_of, quota, release, workload, world

N0 = Node("n0", gpus=2, gpu_memory=1000)


@dataclass
class Stuck:
    """A world in which workload `w` waits, why, and what takes the obstacle away."""

    policy: Policy
    nodes: list[Node]
    others: list[Workload]
    asks: Workload
    code: ReasonCode
    remove: Callable[[Cluster], None]
    numbers: dict[str, float]


def ends(*ids: str) -> Callable[[Cluster], None]:
    def remove(cluster: Cluster) -> None:
        for id_ in ids:
            cluster.apply(WorkloadEnded(id_))

    return remove


def told(fact: object) -> Callable[[Cluster], None]:
    return lambda cluster: cluster.apply(fact)  # type: ignore[arg-type]


def two_pools() -> Policy:
    rules = {"default": quota(4), "big": quota(4)}
    return Policy(
        node_pools=(NodePool("default"), NodePool("big")), projects=(Project("A", None, rules),)
    )


LIMITED = policy_of({"A": 2}) and Policy(projects=(Project("A", None, {"default": quota(2, 1)}),))
RACKS = replace(policy_of({"A": 2}), topologies=(Topology("fabric", ("rack",)),))
RACKED = [Node(f"n{i}", gpus=2, gpu_memory=1000, labels={"rack": f"r{i}"}) for i in range(2)]
CASES = {
    "held by its owner": Stuck(
        policy_of({"A": 2}),
        [N0],
        [],
        replace(workload("w", "A"), held=True),
        ReasonCode.HELD,
        told(WorkloadHeld("w", False)),
        {},
    ),
    "a project that nobody knows": Stuck(
        policy_of({"A": 2}),
        [N0],
        [],
        workload("w", "B"),
        ReasonCode.UNKNOWN_PROJECT,
        told(PolicyChanged(policy_of({"A": 2, "B": 2}))),
        {},
    ),
    "a pool that nobody knows": Stuck(
        policy_of({"A": 2}),
        [N0],
        [],
        workload("w", "A", node_pools=("gold",)),
        ReasonCode.UNKNOWN_POOL,
        lambda c: (
            c.apply(PolicyChanged(replace(policy_of({"A": 2}), node_pools=(NodePool("gold"),)))),
            c.apply(NodeJoined(Node("g", "gold", gpus=1))),
        )[0],
        {},
    ),
    "a topology that nobody knows": Stuck(
        policy_of({"A": 2}),
        [replace(N0, labels={"rack": "r"})],
        [],
        workload("w", "A", topology=TopologyConstraint("fabric", "rack")),
        ReasonCode.INVALID_REQUEST,
        told(PolicyChanged(RACKS)),
        {},
    ),
    "larger than any node": Stuck(
        policy_of({"A": 8}),
        [N0],
        [],
        workload("w", "A", 4),
        ReasonCode.NEVER_FITS,
        told(NodeJoined(Node("n1", gpus=4))),
        {"requested": 4, "free_largest": 2},
    ),
    "a label that no node has": Stuck(
        policy_of({"A": 2}),
        [N0],
        [],
        Workload("w", "A", (Pod("w-0", gpu=1000, node_selector={"rack": "r9"}),)),
        ReasonCode.NEVER_FITS,
        told(NodeChanged(replace(N0, labels={"rack": "r9"}))),
        {},
    ),
    "the only node is not ready": Stuck(
        policy_of({"A": 2}),
        [replace(N0, ready=False, reasons=("DiskPressure",))],
        [],
        workload("w", "A"),
        ReasonCode.NODE_NOT_READY,
        told(NodeChanged(N0)),
        {"requested": 1},
    ),
    "over the limit": Stuck(
        LIMITED,
        [N0],
        [workload("a", "A", created=-1)],
        workload("w", "A"),
        ReasonCode.OVER_LIMIT,
        ends("a"),
        {"limit": 1, "allocated": 1, "requested": 1},
    ),
    "non-preemptible beyond the quota": Stuck(
        policy_of({"A": 1}),
        [N0],
        [workload("a", "A", created=-1, preemptible=False)],
        workload("w", "A", preemptible=False),
        ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA,
        told(PolicyChanged(policy_of({"A": 2}))),
        {"quota": 1, "allocated": 1, "requested": 1, "free_total": 1},
    ),
    "beyond the fair share while others hold GPUs": Stuck(
        policy_of({"A": 1, "B": 1}),
        [N0],
        [workload("a", "A", created=-1), workload("b", "B", created=-1)],
        workload("w", "A"),
        ReasonCode.WAITING_FOR_QUOTA,
        ends("b"),
        {"fair_share": 1, "allocated": 1, "requested": 1, "position": 1},
    ),
    "everything is in use": Stuck(
        policy_of({"A": 2}),
        [N0],
        [workload("a", "A", 2, created=-1)],
        workload("w", "A"),
        ReasonCode.WAITING_FOR_FREE_GPU,
        ends("a"),
        {"free_total": 0, "free_largest": 0, "requested": 1},
    ),
    "too few for the whole gang": Stuck(
        policy_of({"A": 2}),
        [N0],
        [workload("a", "A", created=-1)],
        workload("w", "A", pods=2),
        ReasonCode.WAITING_FOR_GANG,
        ends("a"),
        {"requested": 2},
    ),
    "a promise that waits for its victims": Stuck(
        policy_of({"A": 2, "B": 0}),
        [N0],
        [workload("b0", "B"), workload("b1", "B")],
        workload("w", "A"),
        ReasonCode.WAITING_FOR_RECLAIM,
        lambda cluster: None,
        {"victims": 1},
    ),
    "an elastic workload waits for its first pod, not for all": Stuck(
        policy_of({"A": 2}),
        [N0],
        [workload("a", "A", 2, created=-1)],
        workload("w", "A", pods=3, min_pods=1),
        ReasonCode.WAITING_FOR_FREE_GPU,
        ends("a"),
        {"requested": 1},
    ),
    "an elastic workload is bound by what its minimum needs": Stuck(
        policy_of({"A": 2}),
        [N0],
        [workload("a", "A", 1, created=-1, preemptible=False)],
        workload("w", "A", pods=3, min_pods=2, preemptible=False),
        ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA,
        ends("a"),
        {"requested": 2},
    ),
    "no rack is large enough": Stuck(
        RACKS,
        RACKED,
        [],
        workload("w", "A", 2, pods=2, topology=TopologyConstraint("fabric", "rack")),
        ReasonCode.NEVER_FITS,
        told(NodeJoined(Node("n3", gpus=2, gpu_memory=1000, labels={"rack": "r0"}))),
        {"requested": 4, "free_total": 4},
    ),
    "no rack has the room now": Stuck(
        RACKS,
        [*RACKED, Node("n3", gpus=2, gpu_memory=1000, labels={"rack": "r0"})],
        [workload("a", "A", 1, created=-1, preemptible=False)],
        workload("w", "A", 2, pods=2, topology=TopologyConstraint("fabric", "rack")),
        ReasonCode.WAITING_FOR_FREE_GPU,
        ends("a"),
        {"requested": 4, "free_total": 5},
    ),
    "no CPU left": Stuck(
        policy_of({"A": 2}),
        [replace(N0, cpu=1000)],
        [workload("a", "A", 0, cpu=1000, created=-1)],
        workload("w", "A", 0, cpu=500),
        ReasonCode.WAITING_FOR_FREE_GPU,
        ends("a"),
        {},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_without_the_obstacle_it_starts(case: Stuck) -> None:
    cluster = world(case.policy, case.nodes, case.others)
    first = cycle(cluster, 0)
    cluster.apply(WorkloadSubmitted(case.asks))
    decisions = cycle(cluster, 1000)
    reason = decisions.reasons["w"]
    assert reason.code == case.code, reason
    assert reason.message.endswith(".")
    assert {key: reason.numbers[key] for key in case.numbers} == case.numbers
    assert not [b for b in decisions.binds if b.workload == "w"]

    release(cluster, first)
    release(cluster, decisions)
    case.remove(cluster)

    assert {b.workload for b in cycle(cluster, 2000).binds} >= {"w"}


def test_help_to_ask_for_less_is_true() -> None:
    cluster = world(policy_of({"A": 4}), [N0], [workload("a", "A", created=-1)])
    cycle(cluster, 0)
    reason = what_if(cluster, workload("w", "A", 2), 1000).reason
    assert reason is not None
    smaller = next(h for h in reason.helps if h.change == "gpu")
    assert what_if(cluster, workload("w", "A", float(smaller.to)), 1000).starts_now


def test_a_share_that_is_given_up_for_another_makes_room() -> None:
    """Half of two GPUs is held: two whole ones are there only in its place; what is given up is
    still held afterwards.
    """
    cluster = world(policy_of({"A": 2}), [N0], [workload("a", "A", 0.5, created=-1)])
    cycle(cluster, 0)
    asked = workload("w", "A", 2, preemptible=False)
    assert not what_if(cluster, asked, 0).starts_now
    assert what_if(cluster, asked, 0, "a").starts_now
    assert not what_if(cluster, asked, 0, "nobody").starts_now
    assert set(cluster.workloads) == {"a"}


def test_who_loses_a_place_reads_for_whom_and_not_an_id() -> None:
    cluster = world(policy_of({"A": 2, "B": 0}), [N0], [workload("over", "B", 2, created=-1)])
    cycle(cluster, 0)
    cluster.apply(WorkloadSubmitted(workload("an-id", "A", 2)))
    assert [one.message for one in cycle(cluster, 200_000).evictions] == [
        'Reclaimed by project "A", which is entitled to these GPUs.'
    ]


def test_help_to_try_another_pool_is_true() -> None:
    cluster = world(
        two_pools(), [N0, Node("b0", "big", gpus=4)], [workload("a", "A", 2, created=-1)]
    )
    cycle(cluster, 0)
    reason = what_if(cluster, workload("w", "A", 2), 1000).reason
    assert reason is not None
    pool = next(h for h in reason.helps if h.change == "node_pools")
    assert what_if(cluster, workload("w", "A", 2, node_pools=(pool.to,)), 1000).starts_now


def test_help_to_be_preemptible_is_true() -> None:
    cluster = world(policy_of({"A": 0}), [N0])
    asks = workload("w", "A", preemptible=False)
    reason = what_if(cluster, asks, 0).reason
    assert reason is not None
    assert reason.helps[0].change == "preemptible"
    assert what_if(cluster, replace(asks, preemptible=True), 0).starts_now


def test_what_came_too_late_is_told_that_others_were_ahead() -> None:
    cluster = world(
        policy_of({"A": 2}), [N0], [workload("a", "A", 2, created=0), workload("w", "A", created=1)]
    )
    assert cycle(cluster, 0).reasons["w"].code == ReasonCode.WAITING_BEHIND


def test_places_interleave_between_projects() -> None:
    asks = [workload(f"{p.lower()}{i}", p, created=i) for p in "AB" for i in range(3)]
    cluster = world(
        policy_of({"A": 1, "B": 1}), [Node("n0", gpus=0), Node("n1", gpus=1, ready=False)], asks
    )
    positions = cycle(cluster, 0).positions
    assert sorted(positions, key=lambda id_: positions[id_]) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_reasons_stay_those_of_their_cycle() -> None:
    """They are worked out when they are read, but from a view that was taken at once."""
    cluster = world(
        policy_of({"A": 2}), [N0], [workload("a", "A", 2, created=-1), workload("w", "A")]
    )
    decisions = cycle(cluster, 0)
    cluster.apply(WorkloadEnded("a"))
    cycle(cluster, 1000)
    assert decisions.reasons["w"].numbers["free_total"] == 0
    assert decisions.positions["w"] == 1


def test_cpu_quota_is_told_in_cpus() -> None:
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


def test_nobody_is_told_to_wait_for_ever() -> None:
    cluster = world(LIMITED, [N0], [workload("w", "A", 2)])
    assert "wait" not in [h.change for h in cycle(cluster, 0).reasons["w"].helps]


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1 GPU"), (2, "2 GPUs"), (0.5, "0.5 GPU"), (1.5, "1.5 GPUs"), (0, "0 GPUs")],
)
def test_one_is_singular(number: float, text: str) -> None:
    assert counted(number, "GPU") == text


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
