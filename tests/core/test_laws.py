"""Laws that hold in every cluster: random clusters with all features mixed."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cluster.nodes import HELD, LEAVING, PROMISED
from jupyter_gpushare.core.cycle.cycle import cycle, what_if
from jupyter_gpushare.core.model.decisions import Decisions
from jupyter_gpushare.core.model.events import (
    NodeChanged,
    NodeJoined,
    PodEnded,
    PodReleased,
    WorkloadEnded,
    WorkloadSubmitted,
)
from jupyter_gpushare.core.model.model import Node, Policy, Workload
from tests.core.strategies import (
    copy_of,
    nodes,
    picture,
    policies,
    release,
    steps,
    workloads,
    world,
)
from tests.example_counts import examples

EXAMPLES = settings(
    max_examples=int(os.environ.get("GPUSHARE_EXAMPLES", examples(40))),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def _node_text(node: Node) -> str:
    return (
        f"node {node.name} {node.pool} gpus={node.gpus} cpu={node.cpu} pods={node.max_pods} "
        f"{node.labels} mig={node.mig} ready={node.ready}"
    )


def _workload_text(one: Workload) -> str:
    pods = [
        (p.name, p.gpu, p.gpu_memory, p.gpu_devices, p.mig, p.cpu, p.group, dict(p.node_selector))
        for p in one.pods
    ]
    return (
        f"{one.id} {one.project} prio={one.priority} created={one.created} min={one.min_pods} "
        f"pools={one.node_pools} top={one.topology} {pods}"
    )


class History:
    """A cluster over a few cycles, with random events in between."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.policy: Policy = data.draw(policies())
        self.nodes: list[Node] = data.draw(nodes())
        self.cluster = world(self.policy, self.nodes)
        self.now = 0
        self.count = 0
        self.asked: list[Workload] = []

    def submit(self) -> None:
        self.count += 1
        created = self.data.draw(st.integers(0, 3))
        asked = self.data.draw(workloads(f"w{self.count}", created))
        self.asked.append(asked)
        self.cluster.apply(WorkloadSubmitted(asked))

    def apply_event(self, kind: str, which: int) -> None:
        ids = sorted(self.cluster.workloads)
        if kind == "submit":
            self.submit()
        elif kind == "end" and ids:
            self.cluster.apply(WorkloadEnded(ids[which % len(ids)]))
        elif kind == "fail" and ids:
            work = self.cluster.workloads[ids[which % len(ids)]]
            running = [m.name for m in work.members.values() if m.status == "running"]
            if running:
                self.cluster.apply(PodEnded(work.id, running[0], "failed"))
        elif kind in ("drain", "return"):
            node = self.cluster.nodes[self.nodes[which % len(self.nodes)].name].node
            self.cluster.apply(NodeChanged(replace(node, ready=kind == "return")))
        elif kind == "whatif":
            before = picture(self.cluster)
            given_up = ids[which % len(ids)] if ids and which % 2 else None
            what_if(self.cluster, self.data.draw(workloads("asked", 0)), self.now, given_up)
            assert picture(self.cluster) == before

    def applied(self) -> str:
        """A short description of the cluster for a failing example."""
        lines = [_node_text(node) for node in self.nodes]
        lines += [f"pool {pool.name} {pool.gpu}" for pool in self.policy.node_pools]
        for queue in (*self.policy.departments, *self.policy.projects):
            parent = getattr(queue, "department", None)
            lines.append(f"queue {queue.name} in={parent} created={queue.created} {queue.pools}")
        lines += [_workload_text(one) for one in self.asked]
        return "\n".join(lines)

    def cycle(self) -> Decisions:
        self.now += 1000
        note(self.applied())
        decisions = cycle(self.cluster, self.now)
        note(f"at {self.now}")
        note([(b.workload, b.pod, b.spot) for b in decisions.binds])
        note([(p.workload, p.pod, p.spot) for p in decisions.pipelines])
        note([(e.workload, e.pod, e.spot, e.action, e.by) for e in decisions.evictions])
        return decisions

    def release(self, decisions: Decisions, some: bool = False) -> None:
        for i, eviction in enumerate(decisions.evictions):
            if not some or i % 2 == 0:
                self.cluster.apply(PodReleased(eviction.workload, eviction.pod))


@EXAMPLES
@given(st.data())
def test_nothing_is_ever_promised_twice(data: st.DataObject) -> None:
    """Devices, CPU, pod slots, limits and quotas are never overcommitted; gangs start whole."""
    history = History(data)
    for events in data.draw(steps(5)):
        for _ in range(2):
            history.submit()
        for kind, which in events:
            history.apply_event(kind, which)
        before = {
            id_: [s.active for s in w.podsets] for id_, w in history.cluster.workloads.items()
        }
        decisions = history.cycle()
        check_nodes(history.cluster)
        check_queues(history.cluster)
        check_gangs(history.cluster, before)
        check_minimums(history.cluster, before, decisions)
        check_evictions(history.cluster, decisions)
        check_replans(history.cluster, decisions)
        check_reasons(history.cluster, decisions)
        history.release(decisions, some=True)


def check_nodes(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        for device, uses in enumerate(zip(*node.gpu, strict=True)):
            capacity = node.capacity if device < node.node.gpus else 1
            assert uses[HELD] + uses[PROMISED] <= capacity, (node.name, device, uses)
            assert uses[HELD] + uses[LEAVING] <= capacity, (node.name, device, uses)
            assert min(uses) >= 0
        assert node.cpu[HELD] + max(node.cpu[LEAVING], node.cpu[PROMISED]) <= node.node.cpu
        assert (
            node.slots[HELD] + max(node.slots[LEAVING], node.slots[PROMISED]) <= node.node.max_pods
        )


def check_queues(cluster: Cluster) -> None:
    for pool in cluster._state.pools.values():
        for queue in pool.queues.values():
            assert queue.allocated.fits_in(queue.limit), (pool.name, queue.name)
            assert queue.non_preemptible.fits_in(queue.quota), (pool.name, queue.name)
            members = [
                m
                for w in cluster.workloads.values()
                for m in w.members.values()
                if m.status in ("running", "bound", "pipelined")
                and m.node is not None
                and m.node.pool == pool.name
                and queue in pool.queue(w.project).path
            ]
            assert sum(m.charge.gpu for m in members) == queue.gpu


def check_gangs(cluster: Cluster, before: dict[str, list[int]]) -> None:
    """A pod set that was empty is empty, at its minimum, or pipelined as a whole."""
    for work in cluster.workloads.values():
        for podset, was in zip(work.podsets, before[work.id], strict=True):
            bound = sum(m.status == "bound" for m in podset.members)
            if was == 0:
                assert podset.active == 0 or podset.active >= podset.minimum, (work.id, podset.name)
                assert bound == 0 or bound >= podset.minimum, (work.id, podset.name)
        if work.workload.topology is not None:
            active = [
                m
                for m in work.members.values()
                if m.status in ("running", "bound", "pipelined") and m.node is not None
            ]
            assert len({m.node.node.labels["rack"] for m in active}) <= 1, work.id


def check_minimums(cluster: Cluster, before: dict[str, list[int]], decisions: Decisions) -> None:
    """Evictions leave a workload nothing, or at least the minimum of every pod set."""
    evicted = {e.workload for e in decisions.evictions if e.action != "stale_gang_eviction"}
    for id_ in evicted:
        podsets = cluster.workloads[id_].podsets
        if any(was < s.minimum for s, was in zip(podsets, before[id_], strict=True)):
            continue  # pods had failed before
        is_whole = all(s.active >= s.minimum for s in podsets)
        assert is_whole or not any(s.active for s in podsets), id_


def check_evictions(cluster: Cluster, decisions: Decisions) -> None:
    bound = {(b.workload, b.pod) for b in decisions.binds}
    for eviction in decisions.evictions:
        assert (eviction.workload, eviction.pod) not in bound
        if eviction.action != "stale_gang_eviction":
            assert cluster.workloads[eviction.workload].preemptible
        if eviction.action == "consolidation":
            assert cluster.state(eviction.workload, eviction.pod) == "pipelined"
        if eviction.action == "preempt" and eviction.by is not None:
            victim, taker = cluster.workloads[eviction.workload], cluster.workloads[eviction.by]
            assert victim.project == taker.project
            assert victim.priority < taker.priority
        if eviction.action == "reclaim" and eviction.by is not None:
            assert (
                cluster.workloads[eviction.workload].project
                != cluster.workloads[eviction.by].project
            )


def check_replans(cluster: Cluster, decisions: Decisions) -> None:
    """A changed plan names the devices that the pod has now, on its own node."""
    evicted = {(e.workload, e.pod) for e in decisions.evictions}
    for replan in decisions.replans:
        if (replan.workload, replan.pod) not in evicted:
            assert cluster.state(replan.workload, replan.pod) == "running"
            assert cluster.spot(replan.workload, replan.pod) == replan.spot


def check_reasons(cluster: Cluster, decisions: Decisions) -> None:
    """Every pending workload has a reason."""
    waiting = {
        w.id
        for w in cluster.workloads.values()
        if any(m.status == "pending" for m in w.members.values())
    }
    assert waiting <= set(decisions.reasons)
    for id_, reason in decisions.reasons.items():
        assert reason.message
        assert all(amount == amount for amount in reason.numbers.values()), id_
    places = sorted(decisions.positions.values())
    assert all(place >= 1 for place in places)


@EXAMPLES
@given(st.data())
def test_a_rollback_restores_everything(data: st.DataObject) -> None:
    history = History(data)
    for events in data.draw(steps(3)):
        history.submit()
        history.submit()
        before = picture(history.cluster)
        mark = history.cluster.checkpoint()
        for kind, which in events:
            history.apply_event(kind, which)
        history.release(history.cycle())
        history.cycle()
        history.cluster.rollback(mark)
        assert picture(history.cluster) == before
        history.release(history.cycle(), some=True)


def applied(decisions: Decisions) -> dict[str, Any]:
    """Decisions without the order in which they are listed."""
    return {
        "binds": set(decisions.binds),
        "pipelines": set(decisions.pipelines),
        "evictions": set(decisions.evictions),
        "reasons": dict(decisions.reasons),
        "positions": dict(decisions.positions),
        "queues": decisions.queues,
    }


@EXAMPLES
@given(st.data())
def test_cached_results_change_no_decision(data: st.DataObject) -> None:
    """A cluster that has gone through many cycles decides like a new one in the same state."""
    history = History(data)
    for events in data.draw(steps(6)):
        history.submit()
        for kind, which in events:
            history.apply_event(kind, which)
        cold = None
        if not history.cluster._state.unsettled:
            cold = copy_of(history.cluster)
        decisions = history.cycle()
        if cold is not None:
            assert applied(cycle(cold, history.now)) == applied(decisions)
        history.release(decisions)
        if (
            history.cluster._state.unsettled
        ):  # a cycle with few events, so that the next one can be compared
            for id_ in [e.workload for e in decisions.pipelines]:
                if id_ in history.cluster.workloads and data.draw(st.booleans()):
                    history.cluster.apply(WorkloadEnded(id_))


@EXAMPLES
@given(st.data())
def test_the_order_of_events_changes_no_decision(data: st.DataObject) -> None:
    policy, machines = data.draw(policies()), data.draw(nodes())
    asked = [
        data.draw(workloads(f"w{i}", data.draw(st.integers(0, 3))))
        for i in range(data.draw(st.integers(1, 10)))
    ]
    shuffled_nodes, shuffled = machines[:], asked[:]
    random.Random(data.draw(st.integers(0, 100))).shuffle(shuffled)
    random.Random(1).shuffle(shuffled_nodes)
    one, other = world(policy, machines, asked), world(policy, shuffled_nodes, shuffled)
    for now in (0, 1000, 2000):
        first, second = cycle(one, now), cycle(other, now)
        assert applied(first) == applied(second)
        release(one, first)
        release(other, second)


@EXAMPLES
@given(st.data())
def test_a_steady_cluster_stays_still(data: st.DataObject) -> None:
    """Without events, evictions end: no pod is moved back and forth."""
    history = History(data)
    for _ in range(8):
        history.submit()
    for _ in range(20):
        decisions = history.cycle()
        history.release(decisions)
    for _ in range(5):
        decisions = history.cycle()
        assert not decisions.evictions
        history.release(decisions)


@pytest.mark.parametrize("cycles", [20])
def test_a_full_cluster_does_nothing(cycles: int) -> None:
    from tests.core.strategies import policy_of, workload

    cluster = world(
        policy_of({"A": 4, "B": 4}),
        [Node("n0", gpus=8)],
        [workload(f"a{i}", "AB"[i % 2], created=i) for i in range(12)],
    )
    cluster.apply(NodeJoined(Node("n1", gpus=0)))
    assert len(cycle(cluster, 0).binds) == 8
    for i in range(cycles):
        decisions = cycle(cluster, 1000 * (i + 1))
        assert (decisions.binds, decisions.pipelines, decisions.evictions) == ((), (), ())
