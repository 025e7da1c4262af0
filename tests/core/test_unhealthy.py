"""An unhealthy GPU accepts no new pods; the rest of its node does, and its own pods keep
running.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.amounts import UNLIMITED, Amounts
from jupyter_gpushare.core.model.events import NodeChanged, NodeJoined, WorkloadSubmitted
from jupyter_gpushare.core.model.model import Node, Pod, Policy, Project, Quota, Workload
from tests.example_counts import examples

RICH = Quota(quota=Amounts(UNLIMITED, UNLIMITED, UNLIMITED))
POLICY = Policy(projects=(Project("p", pools={"default": RICH}),))

asks = st.lists(
    st.sampled_from([100, 300, 500, 700, 1000, 2000]) | st.tuples(st.just(2), st.just(250)),
    max_size=12,
)


def pod(ask: object) -> Pod:
    devices, gpu = ask if isinstance(ask, tuple) else (1, ask)
    return Pod("0", gpu=gpu, gpu_devices=devices)


@settings(max_examples=examples(150))
@given(st.integers(1, 5), st.sets(st.integers(0, 4)), st.sets(st.integers(0, 4)), asks, asks)
def test_an_unhealthy_gpu_accepts_no_pods(
    gpus: int, ill: set[int], later: set[int], first: list, second: list
) -> None:
    node = Node("n", gpus=gpus, gpu_memory=80_000, unhealthy=frozenset(ill))
    cluster = Cluster(POLICY)
    cluster.apply(NodeJoined(node))
    for number, ask in enumerate(first):
        cluster.apply(WorkloadSubmitted(Workload(f"a{number}", "p", (pod(ask),), created=number)))
    placed = {bind.workload: bind.spot.devices for bind in cycle(cluster, 0).binds}
    assert not {device for devices in placed.values() for device in devices} & ill
    if any(ask == 1000 for ask in first) and gpus > len({one for one in ill if one < gpus}):
        assert placed, "a healthy GPU is used"

    cluster.apply(NodeChanged(Node("n", gpus=gpus, gpu_memory=80_000, unhealthy=frozenset(later))))
    for number, ask in enumerate(second):
        cluster.apply(
            WorkloadSubmitted(Workload(f"b{number}", "p", (pod(ask),), created=100 + number))
        )
    decisions = cycle(cluster, 1)
    assert not {device for bind in decisions.binds for device in bind.spot.devices} & later
    assert not {
        evict.workload for evict in decisions.evictions if evict.action != "consolidation"
    }, "what runs on it runs"


def test_a_request_for_an_unhealthy_gpu_waits() -> None:
    cluster = Cluster(POLICY)
    cluster.apply(NodeJoined(Node("n", gpus=2, gpu_memory=80_000, unhealthy=frozenset({1}))))
    cluster.apply(WorkloadSubmitted(Workload("a", "p", (pod(2000),))))
    assert cycle(cluster, 0).reasons["a"].code == "WaitingForFreeGPU"


def test_it_counts_nowhere() -> None:
    cluster = Cluster(POLICY)
    cluster.apply(NodeJoined(Node("n", gpus=4, gpu_memory=80_000, unhealthy=frozenset({1, 2}))))
    assert cluster.nodes["n"].total.gpu == 2000
    assert (cluster.nodes["n"].idle, cluster.nodes["n"].room) == (2, 2)
