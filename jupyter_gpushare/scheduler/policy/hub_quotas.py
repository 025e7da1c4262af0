"""Projects that stand in the properties of JupyterHub's groups, added to those of the policy file.
Pure; the file's word wins.

A group property `gpushare` says what an entry of `projects:` says, and its members are the group:

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
"""Characters of one group's property: more is no quota."""


@dataclass(frozen=True, slots=True)
class HubGroup:
    """A group of the Hub's: its users, and its properties as they were written."""

    name: str
    users: tuple[str, ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)


def with_groups(stated: LoadedPolicy, groups: Sequence[HubGroup]) -> tuple[LoadedPolicy, list[str]]:
    """The policy with the projects of these groups, and what is wrong with those that are left out:
    each stands for itself.

    A project that the file has stays as the file has it. Of two groups with one project the first
    by name counts.
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
                f"{where}: {_in_words(problem.field, len(projects))}: {problem.message}"
                for problem in error.problems
            )
            continue
        base = tried
    return loaded, problems


def _project(group: HubGroup) -> dict[str, Any] | str:
    """An entry of `projects:`, or what is wrong."""
    said = group.properties[KEY]
    if not isinstance(said, Mapping):
        return f'must be an object such as {{"gpu": {{"quota": 2}}}}, got {json.dumps(said)[:50]}'
    if len(json.dumps(said)) > LONGEST:
        return "is too long"
    entry = dict(said)
    if "members" in entry:
        return "members: the members are the group"
    name = entry.pop("project", group.name)
    if "gpu" in entry:
        pools = entry.get("pools") or {}
        if not isinstance(pools, Mapping) or DEFAULT_POOL in pools:
            return "gpu: the pool default is stated twice"
        entry["pools"] = {**pools, DEFAULT_POOL: {"gpu": entry.pop("gpu")}}
    if "name" in entry:
        return "name: the name of the project is `project`"
    return {"name": name, "members": [f"group:{group.name}"], **entry}


def _is_from(stated: LoadedPolicy, project: object) -> bool:
    return any(one.name == project for one in stated.policy.projects)


def _parsed(document: Mapping[str, Any], stated: LoadedPolicy) -> LoadedPolicy:
    """JSON is YAML: no second reader, no second set of rules."""
    try:
        return parse_policy(json.dumps(document), stated.source)
    except FileErrors:
        raise
    except (GpuShareError, TypeError, ValueError) as error:
        raise AssertionError("a document that was read cannot be written again") from error


def _in_words(field_: str | None, position: int) -> str:
    """`projects[3].pools.default.gpu.quota` as it is called in the property."""
    name = (
        (field_ or "")
        .removeprefix(f"projects[{position}]")
        .removeprefix(f"projects.{position}")
        .lstrip(".")
    )
    return name.replace(f"pools.{DEFAULT_POOL}.gpu", "gpu") or "project"
