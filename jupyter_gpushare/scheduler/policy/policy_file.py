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
from ..config.diagnostics import shaped
from ..config.documents import Document, FileErrors, parse, read
from ..config.schemas import BaseNodePoolSchema, TopologySchema
from .rule_schemas import RulesSchema
from .rules import RuleBook
from .schemas import PolicyProjectSchema, PolicySchema

__all__ = [
    "EVERYBODY",
    "AdminSettings",
    "LoadedPolicy",
    "PolicyErrors",
    "default_demo_policy",
    "load_policy",
    "parse_policy",
    "policy_schema",
]

EVERYBODY: Final = "*"


class PolicyErrors(FileErrors):
    """Raised when a policy file cannot come into force; `problems` has every mistake."""

    code = "invalid-policy"


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """Settings of the policy file that do not concern the core. Times in ms."""

    notice: int = 30_000
    """How long a busy notebook is warned before its GPU is taken."""
    agent_grace: int = 120_000
    """How long the leases of a silent agent are kept as if it were there."""
    requeue_lost: bool = False
    """Whether leases of an agent that is silent for longer ask again elsewhere."""
    default_project: str | None = None
    admins: tuple[str, ...] = ()
    """User names and `group:NAME`; `*` is everybody."""

    def is_admin(self, user: str, groups: tuple[str, ...] = ()) -> bool:
        """Whether a person may see and change everything."""
        return (
            EVERYBODY in self.admins
            or user in self.admins
            or any(f"group:{group}" in self.admins for group in groups)
        )


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy file that may come into force. `source` is where it came from."""

    policy: Policy
    admin: AdminSettings
    source: str
    rules: RuleBook = RuleBook()
    pressure: Mapping[str, m.Pressure] = field(default_factory=dict)
    """Thresholds by node pool; a pool that is not in it has the built-in ones."""
    raw: Any = None
    """What the file says, as it was read: dicts, lists, text and numbers."""


def load_policy(path: str | Path) -> LoadedPolicy:
    """Reads a policy file. Raises PolicyProblems with every mistake."""
    try:
        document = read(path)
    except FileErrors as error:
        raise PolicyErrors(error.problems) from None
    return _loaded(document)


def parse_policy(text: str, source: str = "policy") -> LoadedPolicy:
    """The same from text (the demo's policy, a text in a store)."""
    try:
        document = parse(text, source)
    except FileErrors as error:
        raise PolicyErrors(error.problems) from None
    return _loaded(document)


def policy_schema() -> dict[str, Any]:
    """JSON Schema of the file, for editors."""
    schema = PolicySchema.model_json_schema()
    _for_people(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "jupyter-gpushare policy",
    }


def _for_people(part: Any) -> None:
    """Takes out what an editor would show wrongly: defaults in our own units (ms, thousandths) and
    titles that repeat the key.
    """
    if isinstance(part, dict):
        part.pop("default", None)  # no key of the file is called so
        if isinstance(part.get("title"), str):
            del part["title"]
        if isinstance(part.get("description"), str):
            part["description"] = " ".join(part["description"].split())
    for inner in (
        part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    ):
        _for_people(inner)


def default_demo_policy(gpus: int, user: str | None = None) -> str:
    """The policy of the demo: one department with all quota, shared by two projects, and one that
    lives on what others leave idle.

    `user` becomes member of all three and admin; without one everybody is.
    """
    members = f", members: [{user}]" if user else ""
    half = gpus / 2
    return f"""\
# The demo's policy. Change it while the demo runs: it is read again when the file changes.
node_pools:
  - {{name: default, workloads_per_gpu: 4, placement: {{gpu: binpack, cpu: binpack}}}}
departments:
  - {{name: research, pools: {{default: {{gpu: {{quota: {gpus}}}}}}}}}
  - {{name: teaching, pools: {{default: {{gpu: {{quota: 0}}}}}}}}
projects:
  - {{name: vision, department: research, pools: {{default: {{gpu: {{quota: {half:g}}}}}}}{members}}}
  - {{name: language, department: research, pools: {{default: {{gpu: {{quota: {half:g}}}}}}}{members}}}
  - {{name: course, department: teaching, pools: {{default: {{gpu: {{quota: 0}}}}}}{members}}}
defaults: {{priority_class: interactive, project: vision, notice: 10s}}
admins: ["{user or EVERYBODY}"]
"""


def _loaded(document: Document) -> LoadedPolicy:
    shape, problems = shaped(document, PolicySchema)
    problems.extend(problems_between(document))
    if problems or shape is None:
        raise PolicyErrors(problems)
    return LoadedPolicy(
        _policy(shape),
        _admin(shape),
        document.source,
        _rules(shape),
        _pressure(shape),
        document.value,
    )


def _rules(shape: PolicySchema) -> RuleBook:
    places: dict[str, RulesSchema] = {"defaults": shape.defaults.rules}
    places |= {f"node_pools.{pool.name}": pool.rules for pool in shape.node_pools}
    for project in shape.projects:
        places[f"projects.{project.name}"] = project.rules
        places |= {
            f"projects.{project.name}.pools.{name}": pool.rules
            for name, pool in project.pools.items()
        }
    return RuleBook.of(places)


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
            _project(each, i, bool(shape.departments)) for i, each in enumerate(shape.projects)
        ),
        topologies=topologies_of(shape.topologies, shape.node_pools),
        priority_classes={**BUILT_IN_PRIORITY_CLASSES, **shape.priority_classes},
        default_priority_class=shape.defaults.priority_class,
        options=shape.options.to_core(),
    )


def _project(shape: PolicyProjectSchema, created: int, has_departments: bool) -> Project:
    """A project; the implicit department is named by no project of the core's, which knows it by
    the absence of departments.
    """
    department = (
        shape.department if has_departments or shape.department != IMPLICIT_DEPARTMENT else None
    )
    pools = {pool: quota.to_core() for pool, quota in shape.pools.items()}
    return Project(
        shape.name, department, pools, created, tuple(shape.node_pools), tuple(shape.members)
    )


def pools_of(shapes: Sequence[BaseNodePoolSchema]) -> tuple[NodePool, ...]:
    """The pools of a file, and `default`, which exists always."""
    pools = tuple(shape.to_core() for shape in shapes)
    return (
        pools
        if any(pool.name == DEFAULT_POOL for pool in pools)
        else (*pools, NodePool(DEFAULT_POOL))
    )


def topologies_of(
    shapes: Sequence[TopologySchema], pools: Sequence[BaseNodePoolSchema]
) -> tuple[Topology, ...]:
    """The topologies that are stated, in a list or inside a pool."""
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
