"""What the admin's policy file looks like, key by key. The docstring under a key is what an editor
shows for it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from ..config.schemas import (
    BaseNodePoolSchema,
    Duration,
    Name,
    Notice,
    OptionsSchema,
    QueueQuotaSchema,
    StrictSchema,
    TopologySchema,
    Whole,
    refused,
)
from .rule_schemas import PressureSchema, RulesSchema

__all__ = [
    "DefaultsSchema",
    "PolicyDepartmentSchema",
    "NodePoolSchema",
    "PolicySchema",
    "ProjectPoolSchema",
    "PolicyProjectSchema",
]


def _member(name: str) -> str:
    if name.startswith("group:") and not name.removeprefix("group:").strip():
        raise refused(f"must name a group, such as group:vision, got {name!r}")
    return name


Member = Annotated[Name, AfterValidator(_member)]


class NodePoolSchema(BaseNodePoolSchema):
    """A group of nodes that share rules. `default` exists always and takes the nodes that match no
    other.
    """

    rules: RulesSchema = RulesSchema()
    """Running time, waiting time and the idle rule of workloads in this pool."""
    pressure: PressureSchema | None = None
    """When a node of this pool is under pressure and takes nothing new."""


class PolicyDepartmentSchema(StrictSchema):
    """A queue of queues."""

    name: Name
    """Departments and projects share one name space."""
    parent: Name | None = None
    """The department that it stands under; absent: none."""
    pools: dict[Name, QueueQuotaSchema] = {}
    """Quota, limit, weight and rank, by node pool."""


class ProjectPoolSchema(QueueQuotaSchema):
    """One project in one node pool."""

    rules: RulesSchema = RulesSchema()
    """The most specific place for rules."""


class PolicyProjectSchema(StrictSchema):
    """A queue where people submit."""

    name: Name
    department: Name | None = None
    """The department that it stands under."""
    members: list[Member] = []
    """User names, `group:NAME`, or `*`; nobody listed, or `*`: everybody may use it."""
    node_pools: list[Name] = []
    """Where its workloads are tried, in this order, unless they say otherwise."""
    pools: dict[Name, ProjectPoolSchema] = {}
    """Quota, limit, weight, rank and rules, by node pool."""
    rules: RulesSchema = RulesSchema()
    """Rules of this project in every pool; a pool's own come first."""


class DefaultsSchema(StrictSchema):
    """What applies where nobody said otherwise."""

    priority_class: Name = "interactive"
    """Of workloads that name none."""
    project: Name | None = None
    """Of workloads that name none, for those who are members of it."""
    notice: Notice = 30_000
    """How long a busy notebook is warned before its GPU is taken; 5s to 1h, 30s unless stated."""
    agent_grace: Duration = 120_000
    """How long the leases of a silent agent are kept as if it were there; 2m unless stated."""
    requeue_lost: bool = False
    """Whether the leases of an agent that is silent for longer ask again elsewhere."""
    rules: RulesSchema = RulesSchema()
    """Rules of everybody for whom no more specific place says anything."""
    pressure: PressureSchema = PressureSchema()
    """When a node is under pressure, unless its pool says otherwise."""


class PolicySchema(StrictSchema):
    """The policy of jupyter-gpushare. GPUs are numbers (0.5, 2), memory has a unit (20GiB), CPU is
    cores or 500m, times are 30s, 5m, 7d; `unlimited` is a word.
    """

    node_pools: list[NodePoolSchema] = []
    topologies: list[TopologySchema] = []
    departments: list[PolicyDepartmentSchema] = []
    projects: list[PolicyProjectSchema] = []
    priority_classes: dict[Name, Whole] = {}
    """Name to priority. From 100 on a workload is non-preemptible. Built in: train 50, interactive
    75, build 100, inference 125.
    """
    defaults: DefaultsSchema = DefaultsSchema()
    options: OptionsSchema = OptionsSchema()
    admins: list[Member] = []
    """User names and `group:NAME` of those who may see and change everything; `*` is everybody."""
