"""Converts a scenario file to a policy and the events that build its cluster.

Time 0 is the first cycle, and earlier times are negative. `created` only orders workloads, so a
positive value delays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jupyter_gpushare.core.model.amounts import GPU
from jupyter_gpushare.core.model.events import (
    Event,
    NodeJoined,
    PendingSince,
    PersonMeasured,
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
    SubGroup,
    Workload,
)

from ..config.consistency import IMPLICIT_DEPARTMENT, problems_between
from ..config.diagnostics import validated
from ..config.documents import Document, FileErrors, parse, read
from ..config.people_schemas import members_policies
from ..policy.policy_file import pools_of, topologies_of
from .gpu_names import GpuNames
from .scenario_checks import priority_number, scenario_problems
from .scenario_schemas import (
    NodeSchema,
    PersonSchema,
    PodSchema,
    ScenarioProjectSchema,
    ScenarioQueueSchema,
    ScenarioSchema,
    SubGroupSchema,
    WorkloadSchema,
)
from .session_schemas import SessionSchema

__all__ = ["Scenario", "ScenarioErrors", "parse_scenario", "read_scenario", "scenario_of"]

SECOND: Final = 1000
HOUR: Final = 3_600_000


class ScenarioErrors(FileErrors):
    """Raised when a scenario cannot be read; `problems` has all errors."""

    code = "invalid-scenario"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A valid scenario: the policy, the events that build its cluster, the number of cycles, and
    the time between them (ms).
    """

    name: str
    policy: Policy
    facts: tuple[Event, ...]
    cycles: int = 1
    interval: int = SECOND
    session: SessionSchema | None = None
    """Notebooks in virtual time, which run instead of the cycles."""


def read_scenario(path: str | Path) -> Scenario:
    """Reads a scenario file. Raises ScenarioErrors with all errors."""
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
    """The scenario in a document; `name` is the default for its name."""
    shape, problems = validated(document, ScenarioSchema)
    problems.extend(problems_between(document))
    problems.extend(scenario_problems(document))
    if problems or shape is None:
        raise ScenarioErrors(problems)
    policy = _policy(shape)
    placing = GpuNames(document, shape)
    facts = tuple(_facts(shape, policy, placing))
    if placing.problems:
        raise ScenarioErrors(placing.problems)
    return Scenario(
        shape.name or name, policy, facts, shape.cycles, shape.options.cycle, shape.virtual_time
    )


def _policy(shape: ScenarioSchema) -> Policy:
    pools = pools_of(shape.node_pools)
    return Policy(
        node_pools=pools,
        departments=tuple(
            Department(each.name, each.parent, _quotas(each, pools), each.created)
            for each in shape.departments
        ),
        projects=tuple(_project(each, pools, bool(shape.departments)) for each in shape.projects),
        topologies=topologies_of(shape.topologies, shape.node_pools),
        priority_classes={**BUILT_IN_PRIORITY_CLASSES, **shape.priority_classes},
        default_priority_class="train",
        options=shape.options.to_core(tuple(shape.actions)),
    )


def _project(
    shape: ScenarioProjectSchema, pools: tuple[NodePool, ...], has_departments: bool
) -> Project:
    is_implicit = not has_departments and shape.department == IMPLICIT_DEPARTMENT
    own = {pool: stated.members_policy for pool, stated in shape.pools.items()}
    members_policy, pool_members_policies = members_policies(shape.members_policy, own)
    return Project(
        shape.name,
        None if is_implicit else shape.department,
        _quotas(shape, pools),
        shape.created,
        tuple(shape.node_pools),
        tuple(shape.members),
        members_policy=members_policy,
        pool_members_policies=pool_members_policies,
    )


def _quotas(shape: ScenarioQueueSchema, pools: tuple[NodePool, ...]) -> dict[str, Quota]:
    """The queue's settings in every pool: those of the pool, else those for all pools."""
    everywhere = shape.to_core()
    return {
        pool.name: shape.pools[pool.name].to_core() if pool.name in shape.pools else everywhere
        for pool in pools
    }


def _facts(shape: ScenarioSchema, policy: Policy, placing: GpuNames) -> Iterator[Event]:
    """Nodes, workloads, then placements: first those with named GPUs, so that the others get other
    GPUs, and in the order of names, so that the order of the file does not matter.
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
        if workload.pending_since is not None:
            yield PendingSince(workload.name, workload.pending_since)
        if workload.stale_for is not None:
            yield StaleSince(workload.name, -workload.stale_for)
    yield from map(_measured, shape.people)
    for usage in shape.usage:
        yield UsageMeasured(
            usage.queue,
            usage.pool,
            (round(usage.gpu * 1e6), round(usage.cpu * 1e6), round(usage.memory * 1e6)),
        )


def _measured(shape: PersonSchema) -> PersonMeasured:
    used = round(shape.gpu_hours * GPU * HOUR)
    active_at = 0 if shape.active else None
    return PersonMeasured(shape.project, shape.pool, shape.user, used, 0, shape.served, active_at)


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
    number = priority_number(shape.priority)
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
        user=shape.user or "",
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
