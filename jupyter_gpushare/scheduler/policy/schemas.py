"""Schema of the policy file. Editors show the docstring under a key."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from ..config.fields import Duration, Id, Name, Notice, Whole, refused
from ..config.people_schemas import MembersPolicySchema, PoolMembersPolicySchema
from ..config.schemas import (
    BaseNodePoolSchema,
    OptionsSchema,
    QueueQuotaSchema,
    StrictSchema,
    TopologySchema,
)
from .booking_schemas import BookableSchema, BookingRulesSchema, BookingSchema
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


Member = Annotated[Id, AfterValidator(_member)]


class NodePoolSchema(BaseNodePoolSchema):
    """Nodes with common settings. The pool `default` always exists and has the nodes that match no
    other pool.
    """

    rules: RulesSchema = RulesSchema()
    """Running time, waiting time and the idle rule in this pool."""
    pressure: PressureSchema | None = None
    """When a node of this pool is under pressure and gets no new workloads."""
    bookable: BookableSchema = BookableSchema()
    """GPUs that can be booked, in addition to the quotas."""


class PolicyDepartmentSchema(StrictSchema):
    """A queue of queues."""

    name: Name
    """Departments and projects share one namespace."""
    parent: Name | None = None
    """The department above it; absent: none."""
    pools: dict[Name, QueueQuotaSchema] = {}
    """Quota, limit, weight and rank, by node pool."""


class ProjectPoolSchema(QueueQuotaSchema):
    """One project in one node pool."""

    rules: RulesSchema = RulesSchema()
    """Rules of this project in this pool; they take precedence over all others."""
    members_policy: PoolMembersPolicySchema | None = None
    """Rules between the members in this pool; its limits hold in addition to the project's."""


class PolicyProjectSchema(StrictSchema):
    """A queue of workloads."""

    name: Name
    department: Name | None = None
    """The department above it."""
    members: list[Member] = []
    """User names, `group:NAME`, or `*`. An empty list and `*` admit every user."""
    managers: list[Member] = []
    """User names and `group:NAME` that see the notebooks of all members and may release, limit
    and prioritize them.
    """
    members_policy: MembersPolicySchema | None = None
    """Rules between the members: fairness, weights and limits of a person."""
    node_pools: list[Name] = []
    """The node pools of its workloads, in order of preference, unless a request names others."""
    pools: dict[Name, ProjectPoolSchema] = {}
    """Quota, limit, weight, rank and rules, by node pool."""
    rules: RulesSchema = RulesSchema()
    """Rules of this project in all pools; those of a pool take precedence."""
    booking: BookingRulesSchema | None = None
    """What its members may book; absent: only managers and administrators may book."""


class DefaultsSchema(StrictSchema):
    """Defaults."""

    priority_class: Name = "interactive"
    """The priority class of requests without one."""
    project: Name | None = None
    """The project of requests without one, for its members."""
    notice: Notice = 30_000
    """Notice to a busy notebook before its GPU is reclaimed; 5s to 1h, default 30s."""
    agent_grace: Duration = 120_000
    """How long leases of a silent agent stay in force; default 2m."""
    requeue_lost: bool = False
    """Whether leases of an agent that is silent for longer are requeued."""
    rules: RulesSchema = RulesSchema()
    """Rules where no more specific place sets one."""
    members_policy: MembersPolicySchema | None = None
    """Rules between the members of every project that does not state others."""
    pressure: PressureSchema = PressureSchema()
    """When a node is under pressure, unless its pool sets other thresholds."""


class PolicySchema(StrictSchema):
    """The policy of jupyter-gpushare. GPUs are numbers (0.5, 2), memory has a unit (20GiB), CPU is
    cores or 500m, times are 30s, 5m, 7d; `unlimited` is a word.
    """

    node_pools: list[NodePoolSchema] = []
    topologies: list[TopologySchema] = []
    departments: list[PolicyDepartmentSchema] = []
    projects: list[PolicyProjectSchema] = []
    priority_classes: dict[Name, Whole] = {}
    """Name to priority; 100 and above is non-preemptible. Built in: train 50, interactive 75, build
    100, inference 125.
    """
    defaults: DefaultsSchema = DefaultsSchema()
    bookings: list[BookingSchema] = []
    options: OptionsSchema = OptionsSchema()
    admins: list[Member] = []
    """User names and `group:NAME` that may see and change everything; `*`: every user."""
