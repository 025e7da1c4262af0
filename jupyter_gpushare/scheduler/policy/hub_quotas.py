"""Projects from the properties of JupyterHub's groups, in addition to those of the policy file,
which takes precedence.

The group property `gpushare` has the keys of an entry of `projects:`; its members are the group:

    {"gpushare": {"project": "vision", "gpu": {"quota": 2, "limit": 4}, "node_pools": ["a100"],
    "pools": {"a100": {"gpu": {"quota": 1}}}}}

`project` is the group's name when it is not given, and `gpu` is short for `pools: {default: {gpu:
...}}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from jupyter_gpushare.core.model.errors import GpuShareError
from jupyter_gpushare.core.model.model import DEFAULT_POOL

from ..config.documents import FileErrors
from .policy_file import LoadedPolicy, parse_policy

__all__ = ["KEY", "HubGroup", "with_groups"]

KEY: Final = "gpushare"
LONGEST: Final = 100_000
"""Characters of one group's property."""


@dataclass(frozen=True, slots=True)
class HubGroup:
    """A group of the Hub: its users and properties."""

    name: str
    users: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


def with_groups(stated: LoadedPolicy, groups: Sequence[HubGroup]) -> tuple[LoadedPolicy, list[str]]:
    """The policy with the projects of these groups, and the problems of groups that are left out.

    Projects of the file do not change. Of two groups with the same project, the first by name
    counts.
    """
    base = dict(stated.raw) if isinstance(stated.raw, Mapping) else {}
    loaded, problems = stated, []
    for group in sorted(groups, key=lambda one: one.name):
        if KEY not in group.properties:
            continue
        where = f"JupyterHub group {group.name}: {KEY}"
        project = _project(group)
        if isinstance(project, str):
            problems.append(f"{where}: {project}")
            continue
        projects = list(base.get("projects") or [])
        if any(isinstance(one, Mapping) and one.get("name") == project["name"] for one in projects):
            if not _is_from(stated, project["name"]):
                problems.append(f"{where}: another group has project {project['name']} already")
            continue
        tried = {**base, "projects": [*projects, project]}
        try:
            loaded = _parsed(tried, stated)
        except FileErrors as error:
            problems.extend(
                f"{where}: {_field_in_property(problem.field, len(projects))}: {problem.message}"
                for problem in error.problems
            )
            continue
        base = tried
    return loaded, problems


def _project(group: HubGroup) -> dict[str, Any] | str:
    """An entry of `projects:`, or the problem as text."""
    value = group.properties[KEY]
    if not isinstance(value, Mapping):
        return f'must be an object such as {{"gpu": {{"quota": 2}}}}, got {json.dumps(value)[:50]}'
    if len(json.dumps(value)) > LONGEST:
        return "is too long"
    entry = dict(value)
    if "members" in entry:
        return "members: not allowed, the members are the group"
    name = entry.pop("project", group.name)
    if "gpu" in entry:
        pools = entry.get("pools") or {}
        if not isinstance(pools, Mapping) or DEFAULT_POOL in pools:
            return "gpu: the pool default is set twice"
        entry["pools"] = {**pools, DEFAULT_POOL: {"gpu": entry.pop("gpu")}}
    if "name" in entry:
        return "name: not allowed, the name of the project is `project`"
    return {"name": name, "members": [f"group:{group.name}"], **entry}


def _is_from(stated: LoadedPolicy, project: object) -> bool:
    return any(one.name == project for one in stated.policy.projects)


def _parsed(document: Mapping[str, Any], stated: LoadedPolicy) -> LoadedPolicy:
    """Parsed as JSON, which is YAML."""
    try:
        return parse_policy(json.dumps(document), stated.source)
    except FileErrors:
        raise
    except (GpuShareError, TypeError, ValueError) as error:
        raise AssertionError("a document that was read cannot be written again") from error


def _field_in_property(field_: str | None, position: int) -> str:
    """The field in the property for `projects[3].pools.default.gpu.quota`."""
    name = (
        (field_ or "")
        .removeprefix(f"projects[{position}]")
        .removeprefix(f"projects.{position}")
        .lstrip(".")
    )
    return name.replace(f"pools.{DEFAULT_POOL}.gpu", "gpu") or "project"
