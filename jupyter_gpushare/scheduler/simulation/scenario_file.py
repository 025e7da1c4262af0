"""Turns a scenario file into a policy and the facts that build its cluster. Runs nothing.

Time 0 is the first cycle. What was before has negative times; `created` only orders, so it may be
"later" without delaying anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jupyter_gpushare.core.model.events import (
    Event,
    NodeJoined,
    PodEnded,
    PodNominated,
    PodPlaced,
    StaleSince,
    UsageMeasured,
    WorkloadSubmitted,
)
from jupyter_gpushare.core.model.model import (
    BUILT_IN_PRIORITY_CLASSES,
    DEFAULT_POOL,
    NON_PREEMPTIBLE_FROM,
    Department,
    Node,
    NodePool,
    Pod,
    Policy,
    Project,
    Quota,
    Spot,
    SubGroup,
    Workload,
)

from ..config.consistency import IMPLICIT_DEPARTMENT, entries, names, problems_between, twice
from ..config.diagnostics import shaped, unknown_name
from ..config.documents import Document, FileError, FileErrors, Place, parse, read
from ..policy.policy_file import pools_of, topologies_of
from .scenario_schemas import (
    NodeSchema,
    PodSchema,
    ScenarioQueueSchema,
    ScenarioSchema,
    SubGroupSchema,
    WorkloadSchema,
)

__all__ = ["Scenario", "ScenarioErrors", "parse_scenario", "read_scenario", "scenario_of"]

LONG_AGO: Final = -10 * 365 * 86_400_000
"""ms; when placed workloads started of which the file says nothing. Longer than any minimum
runtime.
"""
SECOND: Final = 1000


class ScenarioErrors(FileErrors):
    """Raised when a scenario cannot be read; `problems` has every mistake."""

    code = "invalid-scenario"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario that can be run: the policy, the facts that build its cluster, how many cycles,
    and ms from one to the next.
    """

    name: str
    policy: Policy
    facts: tuple[Event, ...]
    cycles: int = 1
    interval: int = SECOND


def read_scenario(path: str | Path) -> Scenario:
    """Reads a scenario file. Raises ScenarioProblems with every mistake."""
    try:
        document = read(path)
    except FileErrors as error:
        raise ScenarioErrors(error.problems) from None
    return scenario_of(document, Path(path).stem)


def parse_scenario(text: str, source: str = "scenario") -> Scenario:
    """The same from text."""
    try:
        document = parse(text, source)
    except FileErrors as error:
        raise ScenarioErrors(error.problems) from None
    return scenario_of(document, source)


def scenario_of(document: Document, name: str) -> Scenario:
    """The scenario that a document is; `name` is for one that has none."""
    shape, problems = shaped(document, ScenarioSchema)
    problems.extend(problems_between(document))
    problems.extend(_problems(document))
    if problems or shape is None:
        raise ScenarioErrors(problems)
    policy = _policy(shape)
    placing = _GpuNames(document, shape)
    facts = tuple(_facts(shape, policy, placing))
    if placing.problems:
        raise ScenarioErrors(placing.problems)
    return Scenario(shape.name or name, policy, facts, shape.cycles, shape.options.cycle)


# -- policy
# --------------------------------------------------------------------------------------------------------


def _policy(shape: ScenarioSchema) -> Policy:
    pools = pools_of(shape.node_pools)
    return Policy(
        node_pools=pools,
        departments=tuple(
            Department(each.name, each.parent, _quotas(each, pools), each.created)
            for each in shape.departments
        ),
        projects=tuple(
            Project(
                each.name,
                each.department
                if shape.departments or each.department != IMPLICIT_DEPARTMENT
                else None,
                _quotas(each, pools),
                each.created,
                tuple(each.node_pools),
                tuple(each.members),
            )
            for each in shape.projects
        ),
        topologies=topologies_of(shape.topologies, shape.node_pools),
        priority_classes={**BUILT_IN_PRIORITY_CLASSES, **shape.priority_classes},
        default_priority_class="train",
        options=shape.options.to_core(tuple(shape.actions)),
    )


def _quotas(shape: ScenarioQueueSchema, pools: tuple[NodePool, ...]) -> dict[str, Quota]:
    """The queue's rules in every pool: those stated for the pool, else those stated for all."""
    everywhere = shape.to_core()
    return {
        pool.name: shape.pools[pool.name].to_core() if pool.name in shape.pools else everywhere
        for pool in pools
    }


# -- cluster
# -------------------------------------------------------------------------------------------------------


def _facts(shape: ScenarioSchema, policy: Policy, placing: _GpuNames) -> Iterator[Event]:
    """Nodes, workloads, then what runs where: those whose GPUs are named first, so that the others
    get GPUs of their own; and those by name, so that the order of the file does not decide which
    ones.
    """
    for node in shape.nodes:
        yield NodeJoined(_node(node))
    for i, workload in enumerate(shape.workloads):
        yield WorkloadSubmitted(_workload(workload, i, policy))
    yield from sorted(placing.facts(), key=_named_first)
    for workload in shape.workloads:
        for pod in workload.pods:
            if pod.nominated is not None:
                yield PodNominated(workload.name, pod.name, pod.nominated)
        if workload.stale_for is not None:
            yield StaleSince(workload.name, -workload.stale_for)
    for usage in shape.usage:
        yield UsageMeasured(
            usage.queue,
            usage.pool,
            (round(usage.gpu * 1e6), round(usage.cpu * 1e6), round(usage.memory * 1e6)),
        )


def _named_first(fact: PodPlaced | PodEnded) -> tuple[bool, str, str]:
    return isinstance(fact, PodPlaced) and not fact.spot.devices, fact.workload, fact.pod


def _node(shape: NodeSchema) -> Node:
    return Node(
        shape.name,
        shape.pool or DEFAULT_POOL,
        shape.gpus,
        shape.gpu_memory,
        shape.cpu,
        shape.memory,
        shape.max_pods,
        shape.ready,
        tuple(shape.reasons),
        shape.labels,
        tuple((taint.key, taint.value, taint.effect) for taint in shape.taints),
        shape.mig,
        frozenset(shape.unhealthy),
    )


def _workload(shape: WorkloadSchema, position: int, policy: Policy) -> Workload:
    number = _as_number(shape.priority)
    priority = policy.priority_classes[shape.priority] if number is None else number
    return Workload(
        id=shape.name,
        project=shape.project,
        pods=tuple(map(_pod, shape.pods)),
        priority=priority,
        preemptible=priority < NON_PREEMPTIBLE_FROM
        if shape.preemptible is None
        else shape.preemptible,
        created=position * SECOND if shape.created is None else shape.created,
        min_pods=shape.min_pods,
        groups=tuple(map(_group, shape.groups)),
        topology=shape.topology.to_core() if shape.topology else None,
        node_pools=tuple(shape.node_pools),
        held=shape.held,
        ends_when_evicted=shape.ends_when_evicted,
    )


def _pod(shape: PodSchema) -> Pod:
    return Pod(
        shape.name,
        shape.gpu,
        shape.gpu_memory,
        shape.gpu_devices,
        tuple(sorted(shape.mig.items())),
        shape.cpu,
        shape.memory,
        shape.group or "",
        shape.priority,
        shape.node_selector,
        tuple(shape.node_affinity),
        tuple((each.key, each.value) for each in shape.tolerations),
        shape.pod_labels,
        shape.pod_affinity.to_core() if shape.pod_affinity else None,
        shape.pod_anti_affinity.to_core() if shape.pod_anti_affinity else None,
    )


def _group(shape: SubGroupSchema) -> SubGroup:
    return SubGroup(
        shape.name,
        shape.min_pods,
        shape.topology.to_core() if shape.topology else None,
        tuple(map(_group, shape.groups)),
    )


def _as_number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None


class _GpuNames:
    """Finds the device index of every GPU that the file names, and says what cannot be."""

    def __init__(self, document: Document, shape: ScenarioSchema) -> None:
        self.document, self.shape = document, shape
        self.problems: list[FileError] = []
        self._sizes = {
            node.name: (node.gpus, node.gpus + sum(node.mig.values())) for node in shape.nodes
        }
        self._indexes = self._index()

    def facts(self) -> Iterator[PodPlaced | PodEnded]:
        """Where each placed pod is, and which pods have ended."""
        for i, workload in enumerate(self.shape.workloads):
            started = LONG_AGO if workload.started is None else workload.started
            for j, pod in enumerate(workload.pods):
                if pod.state in ("failed", "succeeded"):
                    yield PodEnded(
                        workload.name, pod.name, "failed" if pod.state == "failed" else "succeeded"
                    )
                elif pod.state in ("running", "releasing"):
                    spot = self._spot(pod, ("workloads", i, "pods", j))
                    yield PodPlaced(
                        workload.name,
                        pod.name,
                        spot,
                        started,
                        "running" if pod.state == "running" else "releasing",
                    )

    def _spot(self, pod: PodSchema, place: Place) -> Spot:
        node = pod.node or ""
        gpus, everything = self._sizes[node]
        if pod.devices > (everything if pod.mig else gpus):
            self._problem(
                (*place, "node"),
                f"the pod uses {pod.devices} GPUs and the node {node!r} has {everything if pod.mig else gpus}",
            )
        devices = tuple(sorted(self._indexes.get((node, gpu), everything) for gpu in pod.gpus))
        if devices and devices[-1] >= everything:
            self._problem(
                (*place, "gpus"),
                f"more different GPUs of the node {node!r} are named than the {gpus} that it has",
            )
        return Spot(node, devices, DEFAULT_POOL)

    def _problem(self, place: Place, message: str) -> None:
        self.problems.append(self.document.problem(place, message))

    def _index(self) -> dict[tuple[str, str], int]:
        """Index of each named GPU. Names as our own answers have them (`n0/3`) keep theirs, so that
        a snapshot is read back as it was; any other names get the free indexes in natural order.
        """
        named: dict[str, set[str]] = {}
        for workload in self.shape.workloads:
            for pod in workload.pods:
                if pod.node in self._sizes and pod.state in ("running", "releasing"):
                    named.setdefault(pod.node, set()).update(pod.gpus)
        indexes: dict[tuple[str, str], int] = {}
        for node, gpus in named.items():
            everything = self._sizes[node][1]
            own = {
                gpu: int(gpu.removeprefix(f"{node}/"))
                for gpu in gpus
                if re.fullmatch(re.escape(node) + "/[0-9]{1,6}", gpu)
            }
            own = {gpu: index for gpu, index in own.items() if index < everything}
            free = (
                index for index in range(everything + len(gpus)) if index not in set(own.values())
            )
            own.update(zip(sorted(gpus - own.keys(), key=_natural), free, strict=False))
            indexes.update({(node, gpu): index for gpu, index in own.items()})
        return indexes


def _natural(text: str) -> list[tuple[int, int, str]]:
    """`g2` before `g10`."""
    return [
        (1, int(part), "") if part.isdecimal() else (0, 0, part)
        for part in re.split(r"([0-9]{1,18})", text)
    ]


# -- mistakes between the parts
# --------------------------------------------------------------------------------------


def _problems(document: Document) -> Iterator[FileError]:
    yield from twice(document, entries(document, "nodes"), "node")
    yield from twice(document, entries(document, "workloads"), "workload")
    pools, nodes = {DEFAULT_POOL, *names(document, "node_pools")}, set(names(document, "nodes"))
    for place, entry in entries(document, "nodes"):
        if entry.get("pool") is not None and str(entry["pool"]) not in pools:
            yield document.problem(
                (*place, "pool"), unknown_name(entry["pool"], pools, "node pool")
            )
    stated = document.value.get("priority_classes") if isinstance(document.value, dict) else None
    classes = {*BUILT_IN_PRIORITY_CLASSES, *(stated if isinstance(stated, dict) else ())}
    for place, entry in entries(document, "workloads"):
        priority = entry.get("priority")
        if isinstance(priority, str) and _as_number(priority) is None and priority not in classes:
            yield document.problem(
                (*place, "priority"), unknown_name(priority, classes, "priority class")
            )
        yield from _problems_of_pods(document, place, entry, nodes)
    queues, usages = (
        {*names(document, "departments"), *names(document, "projects"), IMPLICIT_DEPARTMENT},
        entries(document, "usage"),
    )
    for place, entry in usages:
        if str(entry.get("queue")) not in queues:
            yield document.problem(
                (*place, "queue"), unknown_name(entry.get("queue"), queues, "queue")
            )


def _problems_of_pods(
    document: Document, place: Place, entry: dict[str, Any], nodes: set[str]
) -> Iterator[FileError]:
    listed = entry.get("pods")
    pods = (
        [((*place, "pods", i), pod) for i, pod in enumerate(listed) if isinstance(pod, dict)]
        if isinstance(listed, list)
        else []
    )
    if isinstance(listed, list) and not listed:
        yield document.problem((*place, "pods"), "a workload needs at least one pod")
    yield from twice(document, pods, "pod")
    leaves = set(_leaves(entry.get("groups")))
    for where, pod in pods:
        node, group = pod.get("node"), pod.get("group")
        if (
            pod.get("state") in ("running", "releasing")
            and node is not None
            and str(node) not in nodes
        ):
            yield document.problem((*where, "node"), unknown_name(node, nodes, "node"))
        if (leaves or group is not None) and str(group) not in leaves:
            said = (
                unknown_name(group, leaves, "sub-group without groups of its own")
                if group is not None
                else "names no sub-group"
            )
            yield document.problem((*where, "group"), said)


def _leaves(groups: object) -> Iterator[str]:
    for group in groups if isinstance(groups, list) else ():
        if isinstance(group, dict) and group.get("groups"):
            yield from _leaves(group["groups"])
        elif isinstance(group, dict):
            yield str(group.get("name"))
