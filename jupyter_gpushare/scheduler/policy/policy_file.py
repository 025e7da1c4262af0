"""Reads the policy file, checks it as a whole, and converts it to the core's `Policy`.

Format: docs/reference/files.md, Policy.

A file with mistakes is refused with all of them at once, each with its file, line and field;
nothing of it comes into force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.model import (
    BUILT_IN_PRIORITY_CLASSES,
    DEFAULT_POOL,
    Department,
    NodePool,
    Policy,
    Project,
    Topology,
)

from ..config.consistency import IMPLICIT_DEPARTMENT, problems_between
from ..config.diagnostics import validated
from ..config.documents import Document, FileErrors, parse, read
from ..config.people_schemas import MembersPolicySchema, members_policies
from ..config.schemas import BaseNodePoolSchema, TopologySchema
from .booking_schemas import BookingPolicy
from .rule_schemas import RulesSchema
from .rules import RuleSet
from .schemas import PolicyProjectSchema, PolicySchema

__all__ = [
    "EVERY_USER",
    "AdminSettings",
    "LoadedPolicy",
    "PolicyErrors",
    "default_demo_policy",
    "load_policy",
    "parse_policy",
    "policy_schema",
]

EVERY_USER: Final = "*"


class PolicyErrors(FileErrors):
    """Raised when a policy file is refused; `problems` has all errors."""

    code = "invalid-policy"


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """Settings of the policy file that do not concern the core. Times in ms."""

    notice: int = 30_000
    """Notice to a busy notebook before its GPU is reclaimed."""
    agent_grace: int = 120_000
    """How long leases of a silent agent stay in force."""
    requeue_lost: bool = False
    """Whether leases of an agent that is silent for longer are requeued."""
    default_project: str | None = None
    admins: tuple[str, ...] = ()
    """User names and `group:NAME`; `*`: every user."""

    def is_admin(self, user: str, groups: tuple[str, ...] = ()) -> bool:
        """Whether the user may see and change everything."""
        return (
            EVERY_USER in self.admins
            or user in self.admins
            or any(f"group:{group}" in self.admins for group in groups)
        )


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A valid policy file. `source` is its name."""

    policy: Policy
    admin: AdminSettings
    source: str
    rules: RuleSet = RuleSet()
    pressure: Mapping[str, m.Pressure] = field(default_factory=dict)
    """Thresholds by node pool; other pools have the built-in ones."""
    bookings: BookingPolicy = BookingPolicy()
    raw: Any = None
    """The content of the file: dicts, lists, text and numbers."""


def load_policy(path: str | Path) -> LoadedPolicy:
    """Reads a policy file. Raises PolicyErrors with all errors."""
    try:
        document = read(path)
    except FileErrors as error:
        raise PolicyErrors(error.problems) from None
    return _loaded(document)


def parse_policy(text: str, source: str = "policy") -> LoadedPolicy:
    """The same from text."""
    try:
        document = parse(text, source)
    except FileErrors as error:
        raise PolicyErrors(error.problems) from None
    return _loaded(document)


def policy_schema() -> dict[str, Any]:
    """JSON Schema of the file, for editors."""
    schema = PolicySchema.model_json_schema()
    _for_editors(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "jupyter-gpushare policy",
    }


def _for_editors(part: Any) -> None:
    """Removes what would mislead in an editor: defaults in internal units (ms, thousandths) and
    titles that repeat the key.
    """
    if isinstance(part, dict):
        part.pop("default", None)  # no key of the file has this name
        if isinstance(part.get("title"), str):
            del part["title"]
        if isinstance(part.get("description"), str):
            part["description"] = " ".join(part["description"].split())
    for inner in (
        part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    ):
        _for_editors(inner)


def default_demo_policy(gpus: int, user: str | None = None) -> str:
    """The policy of the demo: a department with the whole quota and two projects, and another one
    without quota.

    `user` is a member of all projects and an admin; None: every user is.
    """
    members = f", members: [{user}]" if user else ""
    half = f"pools: {{default: {{gpu: {{quota: {gpus / 2:g}}}}}}}"
    return f"""\
# The demo's policy. Change it while the demo runs: it is read again when the file changes.
node_pools:
  - name: default
    workloads_per_gpu: 4
    placement: {{gpu: binpack, cpu: binpack}}
    time_sharing: {{enabled: true, min_turn: 1s}}
departments:
  - {{name: research, pools: {{default: {{gpu: {{quota: {gpus}}}}}}}}}
  - {{name: teaching, pools: {{default: {{gpu: {{quota: 0}}}}}}}}
projects:
  - {{name: vision, department: research, {half}{members}}}
  - {{name: language, department: research, {half}{members}}}
  - {{name: course, department: teaching, pools: {{default: {{gpu: {{quota: 0}}}}}}{members}}}
defaults: {{priority_class: interactive, project: vision, notice: 10s}}
admins: ["{user or EVERY_USER}"]
"""


def _loaded(document: Document) -> LoadedPolicy:
    shape, problems = validated(document, PolicySchema)
    problems.extend(problems_between(document))
    if problems or shape is None:
        raise PolicyErrors(problems)
    return LoadedPolicy(
        _policy(shape),
        _admin(shape),
        document.source,
        _rules(shape),
        _pressure(shape),
        _bookings(shape),
        document.value,
    )


def _bookings(shape: PolicySchema) -> BookingPolicy:
    return BookingPolicy(
        {pool.name: pool.bookable.gpu for pool in shape.node_pools if pool.bookable.gpu},
        {each.name: each.booking.to_rules() for each in shape.projects if each.booking},
        tuple(booking.to_booking() for booking in shape.bookings),
    )


def _rules(shape: PolicySchema) -> RuleSet:
    places: dict[str, RulesSchema] = {"defaults": shape.defaults.rules}
    places |= {f"node_pools.{pool.name}": pool.rules for pool in shape.node_pools}
    for project in shape.projects:
        places[f"projects.{project.name}"] = project.rules
        places |= {
            f"projects.{project.name}.pools.{name}": pool.rules
            for name, pool in project.pools.items()
        }
    return RuleSet.of(places)


def _pressure(shape: PolicySchema) -> dict[str, m.Pressure]:
    names = {DEFAULT_POOL: None} | {pool.name: pool.pressure for pool in shape.node_pools}
    return {name: (stated or shape.defaults.pressure).to_body() for name, stated in names.items()}


def _policy(shape: PolicySchema) -> Policy:
    return Policy(
        node_pools=pools_of(shape.node_pools),
        departments=tuple(
            Department(
                each.name,
                each.parent,
                {pool: quota.to_core() for pool, quota in each.pools.items()},
                created=i,
            )
            for i, each in enumerate(shape.departments)
        ),
        projects=tuple(
            _project(each, i, bool(shape.departments), shape.defaults.members_policy)
            for i, each in enumerate(shape.projects)
        ),
        topologies=topologies_of(shape.topologies, shape.node_pools),
        priority_classes={**BUILT_IN_PRIORITY_CLASSES, **shape.priority_classes},
        default_priority_class=shape.defaults.priority_class,
        options=shape.options.to_core(),
    )


def _project(
    shape: PolicyProjectSchema,
    created: int,
    has_departments: bool,
    defaults: MembersPolicySchema | None,
) -> Project:
    """A project. Without departments, the core has no department; the implicit one is None."""
    department = (
        shape.department if has_departments or shape.department != IMPLICIT_DEPARTMENT else None
    )
    pools = {pool: quota.to_core() for pool, quota in shape.pools.items()}
    own = {pool: stated.members_policy for pool, stated in shape.pools.items()}
    members_policy, pool_members_policies = members_policies(
        shape.members_policy, own, defaults, has_managers=bool(shape.managers)
    )
    return Project(
        shape.name,
        department,
        pools,
        created,
        tuple(shape.node_pools),
        tuple(shape.members),
        tuple(shape.managers),
        members_policy,
        pool_members_policies,
    )


def pools_of(shapes: Sequence[BaseNodePoolSchema]) -> tuple[NodePool, ...]:
    """The pools of a file, and `default`, which always exists."""
    pools = tuple(shape.to_core() for shape in shapes)
    return (
        pools
        if any(pool.name == DEFAULT_POOL for pool in pools)
        else (*pools, NodePool(DEFAULT_POOL))
    )


def topologies_of(
    shapes: Sequence[TopologySchema], pools: Sequence[BaseNodePoolSchema]
) -> tuple[Topology, ...]:
    """The topologies that are defined in the list or inside a pool."""
    stated = [*shapes, *(pool.topology for pool in pools if pool.topology and pool.topology.levels)]
    return tuple({shape.name: shape.to_core() for shape in stated}.values())


def _admin(shape: PolicySchema) -> AdminSettings:
    defaults = shape.defaults
    return AdminSettings(
        defaults.notice,
        defaults.agent_grace,
        defaults.requeue_lost,
        defaults.project,
        tuple(shape.admins),
    )
