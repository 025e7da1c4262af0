"""Runs a scenario cycle by cycle and returns the result, which `simulate` prints.

Format: docs/reference/files.md, Scenario.

The scheduler service calls the same `cycle`, so it would make the same decisions.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cycle.cycle import cycle
from jupyter_gpushare.core.model.amounts import MILLI, Amounts
from jupyter_gpushare.core.model.decisions import Decisions
from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.core.model.events import PodReleased
from jupyter_gpushare.core.model.model import Spot
from jupyter_gpushare.core.model.reason import Reason

from ..config.documents import FileError
from .scenario_file import Scenario, ScenarioErrors
from .session_report import run_session

__all__ = ["amounts_body", "build", "reason_body", "run", "settle", "step"]

PRESENT = ("running", "bound", "releasing")
"""States of pods that are on a GPU. A pod with a promised place is not."""


def run(scenario: Scenario) -> dict[str, Any]:
    """The result of all cycles. Raises ScenarioErrors if the cluster cannot be built."""
    cluster = build(scenario)
    if scenario.session is not None:
        result = run_session(cluster, scenario.session)
        return {"name": scenario.name, "cycles": [], "virtual_time": result}
    results = []
    for i in range(scenario.cycles):
        if i:
            settle(cluster)
        started = time.perf_counter()
        decisions = step(cluster, scenario, i)
        results.append(
            {**_result(cluster, decisions), "seconds": round(time.perf_counter() - started, 6)}
        )
    return {"name": scenario.name, "cycles": results}


def build(scenario: Scenario) -> Cluster:
    """The cluster before the first cycle."""
    try:
        cluster = Cluster(scenario.policy)
        for fact in scenario.facts:
            cluster.apply(fact)
    except GpuShareError as error:
        raise ScenarioErrors(
            [FileError(scenario.name, 1, error.field or "", error.message)]
        ) from error
    return cluster


def step(cluster: Cluster, scenario: Scenario, i: int) -> Decisions:
    """The i-th cycle (0 is at time 0)."""
    return cycle(cluster, i * scenario.interval)


def settle(cluster: Cluster) -> None:
    """The changes between two cycles: evicted pods have released their GPUs and are pending again
    with their age, unless their workload ends when evicted.

    The next cycle itself turns bound pods into running ones and ends promises.
    """
    for work in list(cluster.workloads.values()):
        if work.workload.ends_when_evicted:
            continue
        for member in list(work.members.values()):
            if member.status == "releasing" or member.old is not None:
                cluster.apply(PodReleased(work.id, member.name))


def _result(cluster: Cluster, decisions: Decisions) -> dict[str, Any]:
    left = {(evicted.workload, evicted.pod): evicted.spot for evicted in decisions.evictions}
    return {
        "fair_share": _by_pool(decisions, "fair_share"),
        "allocated": _by_pool(decisions, "allocated"),
        "pods": {f"{id_}/{pod}": _pod(cluster, decisions, id_, pod) for id_, pod in _pods(cluster)},
        "workloads": {id_: _workload(cluster, decisions, id_) for id_ in cluster.workloads},
        "nodes": _nodes(cluster, left),
        "counts": {
            "binds": len(decisions.binds),
            "evictions": len(decisions.evictions),
            "pipelines": len(decisions.pipelines),
        },
    }


def _pods(cluster: Cluster) -> Iterator[tuple[str, str]]:
    """Workloads in the order of submission, with their pods in the order of the file."""
    for id_, work in cluster.workloads.items():
        for pod in work.workload.pods:
            yield id_, pod.name


def _by_pool(decisions: Decisions, what: str) -> dict[str, dict[str, dict[str, float | int]]]:
    """One value of every queue: pool -> queue -> resource."""
    pools: defaultdict[str, dict[str, dict[str, float | int]]] = defaultdict(dict)
    for queue in decisions.queues:
        pools[queue.pool][queue.queue] = amounts_body(getattr(queue, what))
    return {pool: pools[pool] for pool in sorted(pools)}


def amounts_body(amounts: Amounts) -> dict[str, float | int]:
    """GPUs, cores and MiB."""
    return {"gpu": amounts.gpu / MILLI, "cpu": amounts.cpu / MILLI, "memory": amounts.memory}


def _pod(cluster: Cluster, decisions: Decisions, id_: str, name: str) -> dict[str, Any]:
    state, spot = cluster.state(id_, name), cluster.spot(id_, name)
    reason = decisions.reasons.get(id_) if state == "pending" else None
    return {
        "state": state,
        "node": spot.node if spot else None,
        "gpus": [f"{spot.node}/{d}" for d in spot.devices] if spot else [],
        "gpu": cluster.workloads[id_].members[name].charge.gpu / MILLI,
        "reason": reason_body(reason),
    }


def _workload(cluster: Cluster, decisions: Decisions, id_: str) -> dict[str, Any]:
    work = cluster.workloads[id_]
    states = [
        member.status
        for member in work.members.values()
        if member.status not in ("succeeded", "failed")
    ]
    placed = sum(state in ("running", "bound") for state in states)
    state = "running" if placed == len(states) else "partial" if placed else "pending"
    return {
        "state": state,
        "reason": reason_body(decisions.reasons.get(id_)),
        "position": decisions.positions.get(id_),
        "started": None if work.started is None else work.started / MILLI,
    }


def reason_body(reason: Reason | None) -> dict[str, Any] | None:
    """A reason in the format of results."""
    if reason is None:
        return None
    helps = [
        {"change": each.change, "to": each.to, "message": each.message} for each in reason.helps
    ]
    return {
        "code": str(reason.code),
        "message": reason.message,
        "numbers": dict(reason.numbers),
        "helps": helps,
    }


def _nodes(cluster: Cluster, left: Mapping[tuple[str, str], Spot]) -> dict[str, dict[str, int]]:
    """The number of GPUs without pods, and of GPUs whose pods are all being released."""
    users: Counter[tuple[str, int]] = Counter()
    leaving: Counter[tuple[str, int]] = Counter()
    for id_, pod in _pods(cluster):
        state, spot = cluster.state(id_, pod), cluster.spot(id_, pod)
        moved = state == "pipelined" and (id_, pod) in left
        where = left[id_, pod] if moved else spot
        if where is None or not (moved or state in PRESENT):
            continue
        for device in where.devices:
            users[where.node, device] += 1
            leaving[where.node, device] += moved or state == "releasing"
    return {
        name: {
            "idle_gpus": sum(not users[name, d] for d in range(node.node.gpus)),
            "releasing_gpus": sum(
                0 < users[name, d] == leaving[name, d] for d in range(node.node.gpus)
            ),
        }
        for name, node in sorted(cluster.nodes.items())
    }
