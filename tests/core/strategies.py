"""Builders for small clusters, random clusters, and a complete picture of a cluster to compare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.amounts import GPU, UNLIMITED, Amounts
from jupyter_gpushare.core.model.decisions import Decisions
from jupyter_gpushare.core.model.events import (
    NodeJoined,
    PodEnded,
    PodPlaced,
    PodReleased,
    WorkloadSubmitted,
)
from jupyter_gpushare.core.model.model import (
    Department,
    Node,
    NodePool,
    Options,
    Pod,
    Policy,
    Project,
    Quota,
    SubGroup,
    Topology,
    TopologyConstraint,
    Workload,
)
from jupyter_gpushare.core.pool_options import chosen

FREE = Amounts(UNLIMITED, UNLIMITED, UNLIMITED)


def quota(gpu: float, limit: float | None = None, **rules: Any) -> Quota:
    """GPU quota and limit; CPU and memory unmanaged."""
    bound = UNLIMITED if limit is None else int(limit * GPU)
    return Quota(
        Amounts(int(gpu * GPU), UNLIMITED, UNLIMITED), Amounts(bound, UNLIMITED, UNLIMITED), **rules
    )


def policy_of(projects: dict[str, float], **more: Any) -> Policy:
    """Projects with these quotas in pool `default`, under the implicit department."""
    return Policy(
        projects=tuple(
            Project(name, None, {"default": quota(gpu)}) for name, gpu in projects.items()
        ),
        **more,
    )


def workload(id_: str, project: str, gpu: float = 1, pods: int = 1, **more: Any) -> Workload:
    """`pods` pods named id-0, id-1, … of the same size."""
    kept = {
        key: more.pop(key)
        for key in (
            "cpu",
            "memory",
            "gpu_memory",
            "gpu_devices",
            "labels",
            "anti_affinity",
            "affinity",
        )
        if key in more
    }
    size = 0 if "gpu_memory" in kept else int(gpu * GPU)
    return Workload(
        id_, project, tuple(Pod(f"{id_}-{i}", gpu=size, **kept) for i in range(pods)), **more
    )


def world(policy: Policy, nodes: Iterable[Node], workloads: Iterable[Workload] = ()) -> Cluster:
    cluster = Cluster(policy)
    for node in nodes:
        cluster.apply(NodeJoined(node))
    for submitted in workloads:
        cluster.apply(WorkloadSubmitted(submitted))
    return cluster


def release(cluster: Cluster, decisions: Decisions) -> None:
    """Reports all evicted pods as released."""
    for eviction in decisions.evictions:
        cluster.apply(PodReleased(eviction.workload, eviction.pod))


def run(cluster: Cluster, cycles: int = 1, start: int = 0) -> Decisions:
    """Cycles a second apart with releases in between; the last one's decisions."""
    for i in range(cycles):
        decisions = cycle(cluster, start + 1000 * i)
        if i + 1 < cycles:
            release(cluster, decisions)
    return decisions


def picture(cluster: Cluster) -> dict[str, Any]:
    """Everything that a cluster contains, including its indexes, as plain values."""
    state = cluster._state
    state.refresh()
    return {
        "nodes": {
            n.name: (
                n.node,
                n.pool,
                [[u for u in uses] for uses in n.gpu],
                n.cpu[:],
                n.memory[:],
                n.slots[:],
                n.idle,
                n.room,
                n.shared_now,
                n.shared_later,
            )
            for n in state.nodes.values()
        },
        "buckets": {
            p.name: {k: list(v) for k, v in p.buckets.items()} for p in state.pools.values()
        },
        "queues": {
            (p.name, q.name): (
                q.allocated,
                q.non_preemptible,
                q.wanted,
                [key for key, _ in q.candidates],
            )
            for p in state.pools.values()
            for q in p.queues.values()
            if any(q.allocated) or any(q.wanted) or q.candidates
        },
        "pods": {
            m.key: (m.status, m.spot(), m.charge, m.old_spot(), m.nominated)
            for w in state.works.values()
            for m in w.members.values()
        },
        "works": {
            w.id: (
                w.started,
                w.stale_since,
                w.held,
                [(s.active, s.used, s.pending, s.running) for s in w.podsets],
            )
            for w in state.works.values()
        },
        "waiting": {id_: sorted(state.waiting[id_].members) for id_ in state.waiting},
        "apart": sorted(state.unschedulable),
        "stale": sorted(state.stale),
        "unsettled": sorted(m.key for m in state.unsettled),
        "reservations": {p.name: p.reservation for p in state.pools.values()},
        "usage": {key: usage for key, usage in state.usage.items() if any(usage)},
    }


def copy_of(cluster: Cluster) -> Cluster:
    """A new cluster in the same state, without cached results. Only when nothing is unsettled."""
    state = cluster._state
    cold = Cluster(cluster.policy)
    for node in state.nodes.values():
        cold.apply(NodeJoined(node.node))
    for work in state.works.values():
        cold.apply(WorkloadSubmitted(work.workload))
        for member in work.members.values():
            if member.status in ("running", "releasing", "bound"):
                spot = member.spot()
                assert spot is not None
                kind = "releasing" if member.status == "releasing" else "running"
                cold.apply(PodPlaced(work.id, member.name, spot, work.started or 0, kind))
            elif member.status in ("succeeded", "failed"):
                cold.apply(PodEnded(work.id, member.name, member.status))
            cold_member = cold._state.member(work.id, member.name)
            cold_member.nominated = member.nominated
        cold._state.works[work.id].started = work.started
        cold._state.works[work.id].stale_since = work.stale_since
    for name, pool in state.pools.items():
        cold._state.pools[name].reserve(pool.reservation)
    return cold


# -- random clusters

amounts_of_gpu = st.sampled_from([0, 1, 2, 3, 4, 6])
limits = st.sampled_from([None, None, None, 1, 2, 4])


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    departments = [
        Department(
            f"d{i}",
            None,
            {
                p: quota(
                    draw(st.sampled_from([0, 2, 4, 6])),
                    draw(st.sampled_from([None, None, 6])),
                    rank=draw(st.sampled_from([100, 100, 50])),
                )
                for p in ("default", "big")
            },
        )
        for i in range(draw(st.integers(0, 2)))
    ]
    projects = []
    for i in range(draw(st.integers(1, 4))):
        rules = {
            p: quota(
                draw(amounts_of_gpu), draw(limits), rank=draw(st.sampled_from([100, 100, 200]))
            )
            for p in ("default", "big")
        }
        parent = draw(st.sampled_from([d.name for d in departments])) if departments else None
        projects.append(Project(f"p{i}", parent, rules, created=i % 2))
    strategy = draw(st.sampled_from(["binpack", "binpack", "spread"]))
    return Policy(
        node_pools=(
            NodePool(
                "default",
                gpu=strategy,
                defragment=draw(st.sampled_from([False, False, True])),
                options=chosen(
                    victims=draw(st.sampled_from(["fair", "fair", "smallest"])),
                    usage=draw(st.sampled_from(["cluster", "siblings"])),
                    reserve_after=draw(st.sampled_from([None, None, 3000])),
                ),
            ),
            NodePool("big"),
        ),
        departments=tuple(departments),
        projects=tuple(projects),
        topologies=(Topology("fabric", ("rack",)),),
        options=Options(staleness_grace=draw(st.sampled_from([0, 5000]))),
    )


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    made = []
    for i in range(draw(st.integers(1, 4))):
        pool = draw(st.sampled_from(["default", "default", "default", "big"]))
        gpus = draw(st.sampled_from([1, 2, 4]))
        ready = draw(st.sampled_from([True] * 6 + [False]))
        cpu = draw(st.sampled_from([8000, 3000]))
        mig = draw(st.sampled_from([{}, {}, {"3g.40gb": 2}]))
        labels = {"rack": f"r{i % 2}"}
        made.append(
            Node(
                f"n{i}",
                pool,
                gpus=gpus,
                gpu_memory=1000,
                cpu=cpu,
                memory=1 << 20,
                max_pods=draw(st.sampled_from([110, 4])),
                ready=ready,
                labels=labels,
                mig=mig,
            )
        )
    return made


@st.composite
def pods(draw: st.DrawFn, name: str, group: str = "") -> Pod:
    kind = draw(st.sampled_from(["whole", "whole", "fraction", "fraction", "memory", "cpu", "mig"]))
    asks: dict[str, Any] = {"cpu": draw(st.sampled_from([0, 500, 2000]))}
    if kind == "whole":
        asks["gpu"] = GPU * draw(st.sampled_from([1, 1, 2, 4]))
    elif kind == "fraction":
        asks["gpu"] = draw(st.sampled_from([500, 250, 333, 600, 125]))
        asks["gpu_devices"] = draw(st.sampled_from([1, 1, 1, 2]))
    elif kind == "memory":
        asks["gpu_memory"] = draw(st.sampled_from([300, 500, 1000]))
    elif kind == "mig":
        asks["mig"] = (("3g.40gb", 1),)
    if draw(st.integers(0, 9)) == 0:
        asks["node_selector"] = {"rack": "r0"}
    return Pod(name, group=group, **asks)


@st.composite
def workloads(draw: st.DrawFn, id_: str, created: int) -> Workload:
    project = f"p{draw(st.integers(0, 3))}"
    count = draw(st.sampled_from([1, 1, 1, 2, 3, 4]))
    grouped = count > 1 and draw(st.integers(0, 3)) == 0
    names = [("g0", "g1")[i % 2] if grouped else "" for i in range(count)]
    members = tuple(draw(pods(f"{id_}-{i}", names[i])) for i in range(count))
    groups = tuple(SubGroup(g, 1) for g in sorted(set(names))) if grouped else ()
    topology = TopologyConstraint("fabric", "rack") if draw(st.integers(0, 5)) == 0 else None
    priority = draw(st.sampled_from([50, 50, 75, 100]))
    return Workload(
        id_,
        project,
        members,
        priority=priority,
        preemptible=priority < 100,
        created=created,
        groups=groups,
        topology=topology,
        min_pods=None if grouped else draw(st.sampled_from([None, None, 1, min(2, count)])),
        node_pools=draw(st.sampled_from([(), ("default",), ("big", "default")])),
    )


@st.composite
def steps(draw: st.DrawFn, count: int) -> list[list[tuple[str, int]]]:
    """Events between cycles: names, with a number to choose by."""
    kinds = ["submit", "submit", "submit", "end", "drain", "return", "fail", "whatif"]
    return [
        [
            (draw(st.sampled_from(kinds)), draw(st.integers(0, 50)))
            for _ in range(draw(st.integers(0, 4)))
        ]
        for _ in range(count)
    ]
