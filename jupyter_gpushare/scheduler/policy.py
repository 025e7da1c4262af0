"""The admin's policy file (contract, section 3): read, checked as a whole, and turned into what the scheduler works with.

A file with mistakes is refused with all of them at once, each with its file, line and field; nothing of it comes into force.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from jupyter_gpushare.core.model import BUILT_IN_PRIORITY_CLASSES, DEFAULT_POOL, Department, NodePool, Policy, Project, Topology

from .file_problems import shaped
from .file_shapes import Duration, Name, OptionsShape, PoolShape, QuotaShape, Shape, TopologyShape, Whole
from .files import Document, FileProblems, parse, read
from .queue_checks import IMPLICIT_DEPARTMENT, problems_between

__all__ = ["Admin", "LoadedPolicy", "PolicyProblems", "default_demo_policy", "load_policy", "parse_policy", "policy_schema"]

EVERYBODY: Final = "*"


class PolicyProblems(FileProblems):
    """Raised when a policy file cannot come into force; `problems` has every mistake."""

    code = "invalid-policy"


class DepartmentShape(Shape):
    """A queue of queues."""

    name: Name
    parent: Name | None = None
    pools: dict[Name, QuotaShape] = {}


class ProjectShape(Shape):
    """A queue where people submit."""

    name: Name
    department: Name | None = None
    members: list[Name] = []
    node_pools: list[Name] = []
    pools: dict[Name, QuotaShape] = {}


class DefaultsShape(Shape):
    """What applies where nobody said otherwise."""

    priority_class: Name = "interactive"
    project: Name | None = None
    notice: Annotated[Duration, Field(ge=5_000, le=3_600_000)] = 30_000
    agent_grace: Duration = 120_000
    requeue_lost: bool = False


class PolicyShape(Shape):
    """The whole file."""

    node_pools: list[PoolShape] = []
    topologies: list[TopologyShape] = []
    departments: list[DepartmentShape] = []
    projects: list[ProjectShape] = []
    priority_classes: dict[Name, Whole] = {}
    defaults: DefaultsShape = DefaultsShape()
    options: OptionsShape = OptionsShape()
    admins: list[Name] = []


@dataclass(frozen=True, slots=True)
class Admin:
    """What the file says beside the scheduling rules. Times in ms."""

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
        return EVERYBODY in self.admins or user in self.admins or any(f"group:{group}" in self.admins for group in groups)


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy file that may come into force. `source` is where it came from."""

    policy: Policy
    admin: Admin
    source: str


def load_policy(path: str | Path) -> LoadedPolicy:
    """Reads a policy file. Raises PolicyProblems with every mistake."""
    try:
        document = read(path)
    except FileProblems as error:
        raise PolicyProblems(error.problems) from None
    return _loaded(document)


def parse_policy(text: str, source: str = "policy") -> LoadedPolicy:
    """The same from text (the demo's policy, a text in a store)."""
    try:
        document = parse(text, source)
    except FileProblems as error:
        raise PolicyProblems(error.problems) from None
    return _loaded(document)


def policy_schema() -> dict[str, Any]:
    """JSON Schema of the file, for editors."""
    schema = PolicyShape.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "jupyter-gpushare policy"}


def default_demo_policy(gpus: int, user: str | None = None) -> str:
    """The policy of the demo: one department with all quota, shared by two projects, and one that lives on what others leave idle.

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
    shape, problems = shaped(document, PolicyShape)
    problems.extend(problems_between(document))
    if problems or shape is None:
        raise PolicyProblems(problems)
    return LoadedPolicy(_policy(shape), _admin(shape), document.source)


def _policy(shape: PolicyShape) -> Policy:
    return Policy(
        node_pools=pools_of(shape.node_pools),
        departments=tuple(
            Department(each.name, each.parent, {pool: quota.to_core() for pool, quota in each.pools.items()}, created=i)
            for i, each in enumerate(shape.departments)
        ),
        projects=tuple(_project(each, i, bool(shape.departments)) for i, each in enumerate(shape.projects)),
        topologies=topologies_of(shape.topologies, shape.node_pools),
        priority_classes={**BUILT_IN_PRIORITY_CLASSES, **shape.priority_classes},
        default_priority_class=shape.defaults.priority_class,
        options=shape.options.to_core(),
    )


def _project(shape: ProjectShape, created: int, has_departments: bool) -> Project:
    """A project; the implicit department is named by no project of the core's, which knows it by the absence of departments."""
    department = shape.department if has_departments or shape.department != IMPLICIT_DEPARTMENT else None
    pools = {pool: quota.to_core() for pool, quota in shape.pools.items()}
    return Project(shape.name, department, pools, created, tuple(shape.node_pools), tuple(shape.members))


def pools_of(shapes: list[PoolShape]) -> tuple[NodePool, ...]:
    """The pools of a file, and `default`, which exists always."""
    pools = tuple(shape.to_core() for shape in shapes)
    return pools if any(pool.name == DEFAULT_POOL for pool in pools) else (*pools, NodePool(DEFAULT_POOL))


def topologies_of(shapes: list[TopologyShape], pools: list[PoolShape]) -> tuple[Topology, ...]:
    """The topologies that are stated, in a list or inside a pool."""
    stated = [*shapes, *(pool.topology for pool in pools if pool.topology and pool.topology.levels)]
    return tuple({shape.name: shape.to_core() for shape in stated}.values())


def _admin(shape: PolicyShape) -> Admin:
    defaults = shape.defaults
    return Admin(defaults.notice, defaults.agent_grace, defaults.requeue_lost, defaults.project, tuple(shape.admins))
