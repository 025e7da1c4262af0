"""What is remembered per request goes when the requests have gone: services run for months."""

from __future__ import annotations

import gc

from jupyter_gpushare.core.cluster import capacity, nodes
from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.events import WorkloadEnded, WorkloadSubmitted
from jupyter_gpushare.core.model.model import Node, NodePool, Pod, Workload
from tests.core.strategies import policy_of, world


def test_thousands_of_different_requests_leave_nothing_behind() -> None:
    machines = [Node(f"n{i}", gpus=8, cpu=64_000) for i in range(3)]
    policy = policy_of({"p": 8}, node_pools=(NodePool("default", defragment=True),))
    cluster = world(policy, machines)
    state = cluster._state
    for i in range(nodes.VERDICTS + 100):
        named = ("n0",) if i % 2 else ("n0", "n1")
        pod = Pod(f"w{i}", gpu=100 + i % 900, cpu=i, node_affinity=named)
        cluster.apply(WorkloadSubmitted(Workload(f"w{i}", "p", (pod,), created=i)))
        cycle(cluster, i)
        cluster.apply(WorkloadEnded(f"w{i}"))
    cycle(cluster, 10**6)
    assert all(len(node.static) <= nodes.VERDICTS for node in state.nodes.values())
    packing = state.pools["default"].defragmenter
    assert packing is not None
    packing.study({})
    assert not packing.held
    assert len(state.pools["default"].machines._verdicts) <= capacity.VERDICTS
    for node in state.nodes.values():
        node.static.clear()
    packing.known.clear()
    state.pools["default"].machines._verdicts.clear()
    gc.collect()
    assert len(state.needs) == 0
