"""Placement `defragment`: the score of a place, and that cached scores do not change results."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core.allocation.placement import best_assignment
from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cluster.fragmentation import (
    SCARCITY,
    FragmentationMeasure,
    Kind,
    typical,
)
from jupyter_gpushare.core.cluster.nodes import NodeState
from jupyter_gpushare.core.cluster.packing import Defragmenter
from jupyter_gpushare.core.cycle.cycle import cycle, what_if
from jupyter_gpushare.core.model.amounts import GPU
from jupyter_gpushare.core.model.events import WorkloadEnded, WorkloadSubmitted
from jupyter_gpushare.core.model.model import Node, NodePool, Pod, Workload
from jupyter_gpushare.core.model.requirements import PodRequirements
from tests.core.strategies import nodes, pods, policy_of, release, world
from tests.example_counts import examples

EXAMPLES = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck)
)


def asked(id_: str, created: int = 0, **request: int) -> Workload:
    # amounts only
    return Workload(id_, "p", (Pod(id_, **request),), created=created)  # type: ignore[arg-type]


def packed(machines: list[Node], *workloads: Workload) -> Cluster:
    """A pool with the option, after one cycle."""
    cluster = world(
        policy_of({"p": 100}, node_pools=(NodePool("default", defragment=True),)),
        machines,
        workloads,
    )
    cycle(cluster, 0)
    return cluster


def place_of(cluster: Cluster, id_: str) -> tuple[str, tuple[int, ...]]:
    spot = cluster.spot(id_, id_)
    assert spot is not None
    return spot.node, spot.devices


def test_kinds_are_counted_in_half_percents() -> None:
    """Rare kinds, CPU-only pods and MIG instances are left out; ties are broken by the request."""
    half, whole, rare = (
        PodRequirements(Pod("a", gpu=500)),
        PodRequirements(Pod("b", gpu=GPU)),
        PodRequirements(Pod("c", gpu=250)),
    )
    counts = {
        half: 300,
        whole: 300,
        rare: 1,
        PodRequirements(Pod("d", cpu=1000)): 500,
        PodRequirements(Pod("e", mig=(("1g.10gb", 1),))): 500,
    }
    assert typical(counts) == (Kind(half, 100, 0, 0), Kind(whole, 100, 0, 0))
    kinds = typical({half: 290, whole: 310, rare: 0})
    assert [(kind.need, kind.frequency) for kind in kinds] == [(whole, 103), (half, 97)]


def test_requests_for_the_same_gpus_on_the_same_nodes_are_one_kind() -> None:
    """With their mean CPU and memory, rounded up to half a core and 1 GiB."""
    small, large, elsewhere = (
        PodRequirements(Pod("a", gpu=500, cpu=1000, memory=100)),
        PodRequirements(Pod("b", gpu=500, cpu=4000, memory=4096)),
        PodRequirements(Pod("c", gpu=500, cpu=1000, node_affinity=("n1", "n2"))),
    )
    assert typical({large: 1, small: 2, elsewhere: 1}) == (
        Kind(small, 150, 2000, 2048),
        Kind(elsewhere, 50, 1000, 0),
    )
    assert typical({small: 2, elsewhere: 1, large: 1}) == typical(
        {large: 1, small: 2, elsewhere: 1}
    )


def test_nodes_that_few_can_use_otherwise_are_spared_for_those_who_name_them() -> None:
    """A share of 0.6 would fill the only GPU of n0, and leaves 0.4 useless elsewhere. But then n0
    has no room for a share of 0.3 that must run there.
    """
    machines = [Node("n0", gpus=1), Node("n1", gpus=8)]
    first, named = (
        Workload(name, "p", (Pod(name, gpu=gpu, node_affinity=("n0",)),), created=created)
        for name, gpu, created in (("first", 400, 0), ("named", 300, 100))
    )
    waiting = [asked(f"t{i}", created=10 + i, gpu=600) for i in range(4)]
    cluster = packed(machines, first, *waiting, named)
    assert place_of(cluster, "named")[0] == "n0"
    assert {place_of(cluster, one.id)[0] for one in waiting} == {"n1"}


def test_the_weight_of_a_kind_is_its_frequency_times_its_scarcity() -> None:
    """Every node admits the first kind, a quarter of the GPUs the second, and none the third."""
    anywhere, named, nowhere = (
        PodRequirements(Pod("a", gpu=500)),
        PodRequirements(Pod("b", gpu=500, node_affinity=("n0",))),
        PodRequirements(Pod("c", gpu=500, node_affinity=("gone",))),
    )
    machines = [NodeState(Node("n0", gpus=2), "default"), NodeState(Node("n1", gpus=6), "default")]
    kinds = [Kind(anywhere, 100, 0, 0), Kind(named, 50, 0, 0), Kind(nowhere, 50, 0, 0)]
    weights = FragmentationMeasure(kinds, machines).weights.tolist()
    assert weights[:2] == [100 * SCARCITY, 50 * 4 * SCARCITY]


def test_a_small_share_spares_the_device_that_still_serves_the_typical_one() -> None:
    """0.3 beside 0.3 would leave 0.4, which is useless to requests for 0.5; on the free device it
    leaves 0.7.
    """
    typical_ones = [asked(f"t{i:02}", created=10 + i, gpu=500, cpu=1000) for i in range(40)]
    first, second = asked("a", created=0, gpu=300), asked("b", created=1, gpu=300)
    machines = [Node("n0", gpus=2, cpu=100_000)]
    cluster = packed(machines, first, second, *typical_ones)
    assert {place_of(cluster, "a")[1], place_of(cluster, "b")[1]} == {(0,), (1,)}
    plain = world(policy_of({"p": 100}), machines, [first, second, *typical_ones])
    cycle(plain, 0)
    assert place_of(plain, "a")[1] == place_of(plain, "b")[1]


def test_cpu_is_taken_where_it_can_feed_gpus_longest() -> None:
    """A CPU-only pod goes to the node with more free CPU, though the other is first by name."""
    waiting = [asked(f"t{i:02}", created=10 + i, gpu=GPU, cpu=2000) for i in range(9)]
    machines = [Node("n0", gpus=8, cpu=16_000), Node("n1", gpus=8, cpu=64_000)]
    cluster = packed(machines, asked("c", created=0, cpu=4000), *waiting)
    assert place_of(cluster, "c")[0] == "n1"


def test_pods_without_gpus_prefer_machines_without() -> None:
    cluster = packed([Node("n0", gpus=8, cpu=64_000), Node("n1", cpu=64_000)], asked("c", cpu=4000))
    assert place_of(cluster, "c")[0] == "n1"
    packing = cluster._state.pools["default"].defragmenter
    assert packing is not None
    assert [offer.node.name for offer in packing.offers(PodRequirements(Pod("d", cpu=1)))] == [
        "n1",
        "n0",
    ]


@EXAMPLES
@given(data=st.data())
def test_scores_that_are_remembered_are_those_of_a_fresh_look(data: st.DataObject) -> None:
    """Cached candidates equal those of a new object; a pod is placeable with the option if and only
    if it is without.
    """
    cluster = world(
        policy_of({"p": 100}, node_pools=(NodePool("default", defragment=True),)),
        data.draw(nodes()),
    )
    pool = cluster._state.pools["default"]
    cycle(cluster, 0)
    for number in range(data.draw(st.integers(2, 8))):
        pod = data.draw(pods(f"w{number}"))
        cluster.apply(
            WorkloadSubmitted(
                Workload(
                    f"w{number}", "p", (pod,), created=number, preemptible=data.draw(st.booleans())
                )
            )
        )
        if data.draw(st.booleans()):
            release(cluster, cycle(cluster, number))
        if data.draw(st.booleans()):
            what_if(cluster, Workload("trial", "p", (data.draw(pods("trial")),)), number)
        if number and data.draw(st.booleans()) and f"w{number - 1}" in cluster.workloads:
            cluster.apply(WorkloadEnded(f"w{number - 1}"))
    known = pool.defragmenter
    assert known is not None
    fresh = Defragmenter(pool)
    fresh.kinds = known.kinds
    for need in list(known.known):
        offers = [(offer.node.name, offer.device) for offer in known.offers(need)]
        assert offers == [(offer.node.name, offer.device) for offer in fresh.offers(need)]
    need = cluster._state.needs.of(data.draw(pods("asked")))
    assignment = best_assignment(pool, need)
    pool.defragmenter = None
    plain = best_assignment(pool, need)
    assert (assignment is None) == (plain is None)
    assert assignment is None or plain is None or assignment.now == plain.now
