"""Every reason names the obstacle: without it, the workload starts. Numbers and suggestions are
true.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cycle.cycle import cycle, what_if
from jupyter_gpushare.core.model.events import (
    NodeChanged,
    NodeJoined,
    PolicyChanged,
    WorkloadEnded,
    WorkloadHeld,
    WorkloadSubmitted,
)
from jupyter_gpushare.core.model.model import (
    KERNELS_ONLY,
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
class PendingCase:
    """A cluster in which workload `w` waits, its reason, and what removes the obstacle."""

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


def applied(fact: object) -> Callable[[Cluster], None]:
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
    "held by its owner": PendingCase(
        policy_of({"A": 2}),
        [N0],
        [],
        replace(workload("w", "A"), held=True),
        ReasonCode.HELD,
        applied(WorkloadHeld("w", False)),
        {},
    ),
    "a project that nobody knows": PendingCase(
        policy_of({"A": 2}),
        [N0],
        [],
        workload("w", "B"),
        ReasonCode.UNKNOWN_PROJECT,
        applied(PolicyChanged(policy_of({"A": 2, "B": 2}))),
        {},
    ),
    "a pool that nobody knows": PendingCase(
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
    "a topology that nobody knows": PendingCase(
        policy_of({"A": 2}),
        [replace(N0, labels={"rack": "r"})],
        [],
        workload("w", "A", topology=TopologyConstraint("fabric", "rack")),
        ReasonCode.INVALID_REQUEST,
        applied(PolicyChanged(RACKS)),
        {},
    ),
    "larger than any node": PendingCase(
        policy_of({"A": 8}),
        [N0],
        [],
        workload("w", "A", 4),
        ReasonCode.NEVER_FITS,
        applied(NodeJoined(Node("n1", gpus=4))),
        {"requested": 4, "free_largest": 2},
    ),
    "a label that no node has": PendingCase(
        policy_of({"A": 2}),
        [N0],
        [],
        Workload("w", "A", (Pod("w-0", gpu=1000, node_selector={"rack": "r9"}),)),
        ReasonCode.NEVER_FITS,
        applied(NodeChanged(replace(N0, labels={"rack": "r9"}))),
        {},
    ),
    "the only node is not ready": PendingCase(
        policy_of({"A": 2}),
        [replace(N0, ready=False, reasons=("DiskPressure",))],
        [],
        workload("w", "A"),
        ReasonCode.NODE_NOT_READY,
        applied(NodeChanged(N0)),
        {"requested": 1},
    ),
    "over the limit": PendingCase(
        LIMITED,
        [N0],
        [workload("a", "A", created=-1)],
        workload("w", "A"),
        ReasonCode.OVER_LIMIT,
        ends("a"),
        {"limit": 1, "allocated": 1, "requested": 1},
    ),
    "non-preemptible beyond the quota": PendingCase(
        policy_of({"A": 1}),
        [N0],
        [workload("a", "A", created=-1, preemptible=False)],
        workload("w", "A", preemptible=False),
        ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA,
        applied(PolicyChanged(policy_of({"A": 2}))),
        {"quota": 1, "allocated": 1, "requested": 1, "free_total": 1},
    ),
    "beyond the fair share while others hold GPUs": PendingCase(
        policy_of({"A": 1, "B": 1}),
        [N0],
        [workload("a", "A", created=-1), workload("b", "B", created=-1)],
        workload("w", "A"),
        ReasonCode.WAITING_FOR_QUOTA,
        ends("b"),
        {"fair_share": 1, "allocated": 1, "requested": 1, "position": 1},
    ),
    "everything is in use": PendingCase(
        policy_of({"A": 2}),
        [N0],
        [workload("a", "A", 2, created=-1)],
        workload("w", "A"),
        ReasonCode.WAITING_FOR_FREE_GPU,
        ends("a"),
        {"free_total": 0, "free_largest": 0, "requested": 1},
    ),
    "too few for the whole gang": PendingCase(
        policy_of({"A": 2}),
        [N0],
        [workload("a", "A", created=-1)],
        workload("w", "A", pods=2),
        ReasonCode.WAITING_FOR_GANG,
        ends("a"),
        {"requested": 2},
    ),
    "a promise that waits for its victims": PendingCase(
        policy_of({"A": 2, "B": 0}),
        [N0],
        [workload("b0", "B"), workload("b1", "B")],
        workload("w", "A"),
        ReasonCode.WAITING_FOR_RECLAIM,
        lambda cluster: None,
        {"victims": 1},
    ),
    "an elastic workload waits for its first pod, not for all": PendingCase(
        policy_of({"A": 2}),
        [N0],
        [workload("a", "A", 2, created=-1)],
        workload("w", "A", pods=3, min_pods=1),
        ReasonCode.WAITING_FOR_FREE_GPU,
        ends("a"),
        {"requested": 1},
    ),
    "an elastic workload is bound by what its minimum needs": PendingCase(
        policy_of({"A": 2}),
        [N0],
        [workload("a", "A", 1, created=-1, preemptible=False)],
        workload("w", "A", pods=3, min_pods=2, preemptible=False),
        ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA,
        ends("a"),
        {"requested": 2},
    ),
    "no rack is large enough": PendingCase(
        RACKS,
        RACKED,
        [],
        workload("w", "A", 2, pods=2, topology=TopologyConstraint("fabric", "rack")),
        ReasonCode.NEVER_FITS,
        applied(NodeJoined(Node("n3", gpus=2, gpu_memory=1000, labels={"rack": "r0"}))),
        {"requested": 4, "free_total": 4},
    ),
    "no rack has the room now": PendingCase(
        RACKS,
        [*RACKED, Node("n3", gpus=2, gpu_memory=1000, labels={"rack": "r0"})],
        [workload("a", "A", 1, created=-1, preemptible=False)],
        workload("w", "A", 2, pods=2, topology=TopologyConstraint("fabric", "rack")),
        ReasonCode.WAITING_FOR_FREE_GPU,
        ends("a"),
        {"requested": 4, "free_total": 5},
    ),
    "no CPU left": PendingCase(
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
def test_without_the_obstacle_it_starts(case: PendingCase) -> None:
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


def test_the_suggestion_to_request_less_is_true() -> None:
    cluster = world(policy_of({"A": 4}), [N0], [workload("a", "A", created=-1)])
    cycle(cluster, 0)
    reason = what_if(cluster, workload("w", "A", 2), 1000).reason
    assert reason is not None
    smaller = next(h for h in reason.helps if h.change == "gpu")
    assert what_if(cluster, workload("w", "A", float(smaller.to)), 1000).starts_now


def test_a_replaced_share_makes_room() -> None:
    """With half of one of two GPUs in use, two whole GPUs are available only in its place."""
    cluster = world(policy_of({"A": 2}), [N0], [workload("a", "A", 0.5, created=-1)])
    cycle(cluster, 0)
    asked = workload("w", "A", 2, preemptible=False)
    assert not what_if(cluster, asked, 0).starts_now
    assert what_if(cluster, asked, 0, "a").starts_now
    assert not what_if(cluster, asked, 0, "nobody").starts_now
    assert set(cluster.workloads) == {"a"}


def test_an_eviction_names_the_project_and_not_an_id() -> None:
    cluster = world(policy_of({"A": 2, "B": 0}), [N0], [workload("over", "B", 2, created=-1)])
    cycle(cluster, 0)
    cluster.apply(WorkloadSubmitted(workload("an-id", "A", 2)))
    assert [one.message for one in cycle(cluster, 200_000).evictions] == [
        'Project "A" is entitled to these GPUs.'
    ]


def test_the_suggestion_of_another_pool_is_true() -> None:
    cluster = world(
        two_pools(), [N0, Node("b0", "big", gpus=4)], [workload("a", "A", 2, created=-1)]
    )
    cycle(cluster, 0)
    reason = what_if(cluster, workload("w", "A", 2), 1000).reason
    assert reason is not None
    pool = next(h for h in reason.helps if h.change == "node_pools")
    assert what_if(cluster, workload("w", "A", 2, node_pools=(pool.to,)), 1000).starts_now


@pytest.mark.parametrize("gpu", [0.5, 1, 2])
@pytest.mark.parametrize("is_ready", [True, False])
def test_the_suggestion_of_another_node_is_true(gpu: float, is_ready: bool) -> None:
    """A kernel waits for its node while another one has room."""
    nodes = [replace(N0, ready=is_ready), Node("n1", gpus=2, gpu_memory=1000)]
    others = [tied(workload("a", "A", 2, created=-1), "n0")] if is_ready else []
    cluster = world(policy_of({"A": 4}), nodes, others)
    cycle(cluster, 0)
    asks = tied(workload("w", "A", gpu), "n0")
    reason = what_if(cluster, asks, 1000).reason
    assert reason is not None
    other = next(h for h in reason.helps if h.change == "nodes")
    assert other.to == "n1"
    assert what_if(cluster, tied(asks, other.to), 1000).starts_now


def test_a_full_or_unsuitable_node_is_not_suggested() -> None:
    taint = ("key", "", "NoSchedule")
    nodes = [
        N0,
        Node("n1", gpus=2, gpu_memory=1000),
        Node("n2", gpus=2, gpu_memory=1000, taints=(taint,)),
        Node("n3", gpus=2, gpu_memory=1000, ready=False),
    ]
    others = [tied(workload(f"a{i}", "A", 2, created=-1), f"n{i}") for i in range(2)]
    cluster = world(policy_of({"A": 9}), nodes, others)
    cycle(cluster, 0)
    reason = what_if(cluster, tied(workload("w", "A"), "n0"), 1000).reason
    assert reason is not None
    assert [h for h in reason.helps if h.change == "nodes"] == []


def test_a_command_never_starts_on_nodes_that_run_kernels_only() -> None:
    node = replace(N0, taints=(KERNELS_ONLY,))
    cluster = world(policy_of({"A": 2}), [node])
    reason = what_if(cluster, workload("w", "A"), 0).reason
    assert reason is not None
    assert reason.code == ReasonCode.NEVER_FITS
    assert reason.message == (
        'Cannot start: the nodes in pool "default" are Kubernetes nodes, on which kernels run in'
        " user pods; commands cannot be started there."
    )


def tied(asks: Workload, node: str) -> Workload:
    return replace(asks, pods=tuple(replace(pod, node_affinity=(node,)) for pod in asks.pods))


def test_the_suggestion_to_be_preemptible_is_true() -> None:
    cluster = world(policy_of({"A": 0}), [N0])
    asks = workload("w", "A", preemptible=False)
    reason = what_if(cluster, asks, 0).reason
    assert reason is not None
    assert reason.helps[0].change == "preemptible"
    assert what_if(cluster, replace(asks, preemptible=True), 0).starts_now


def test_workloads_ahead_are_the_reason() -> None:
    cluster = world(
        policy_of({"A": 2}), [N0], [workload("a", "A", 2, created=0), workload("w", "A", created=1)]
    )
    assert cycle(cluster, 0).reasons["w"].code == ReasonCode.WAITING_BEHIND


def test_positions_interleave_between_projects() -> None:
    asks = [workload(f"{p.lower()}{i}", p, created=i) for p in "AB" for i in range(3)]
    cluster = world(
        policy_of({"A": 1, "B": 1}), [Node("n0", gpus=0), Node("n1", gpus=1, ready=False)], asks
    )
    positions = cycle(cluster, 0).positions
    assert sorted(positions, key=lambda id_: positions[id_]) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_reasons_stay_those_of_their_cycle() -> None:
    """Reasons are computed when read, from a snapshot of their cycle."""
    cluster = world(
        policy_of({"A": 2}), [N0], [workload("a", "A", 2, created=-1), workload("w", "A")]
    )
    decisions = cycle(cluster, 0)
    cluster.apply(WorkloadEnded("a"))
    cycle(cluster, 1000)
    assert decisions.reasons["w"].numbers["free_total"] == 0
    assert decisions.positions["w"] == 1


def test_waiting_is_not_suggested_if_it_cannot_help() -> None:
    cluster = world(LIMITED, [N0], [workload("w", "A", 2)])
    assert "wait" not in [h.change for h in cycle(cluster, 0).reasons["w"].helps]


@pytest.mark.parametrize(
    ("number", "text"),
    [(1, "1 GPU"), (2, "2 GPUs"), (0.5, "0.5 GPU"), (1.5, "1.5 GPUs"), (0, "0 GPUs")],
)
def test_one_is_singular(number: float, text: str) -> None:
    assert counted(number, "GPU") == text
