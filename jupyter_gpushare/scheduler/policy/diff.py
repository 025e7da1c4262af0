"""The differences between two policies: field, values before and after, and a sentence.

The meaning is compared, not the text: `quota: 2` equals `quota: 2.0`, and an unset key equals its
default. An added or removed project is one change, not one per key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.model import Department, Project
from jupyter_gpushare.core.model.units import duration_text

from ..config.serialize import members_policy_body, options_body, pool_body, quota_body
from .policy_file import LoadedPolicy

__all__ = ["changes"]

Steps = tuple[str, ...]
"""Keys and names from the top of the file; not joined with dots, since names may contain dots."""
Flat = dict[Steps, str]
WHOLE: Final = {
    "projects": "project",
    "departments": "department",
    "node_pools": "node pool",
    "topologies": "topology",
}
"""Parts that are added and removed as a whole; their second step is their name."""
RESOURCES: Final = {"gpu": "GPU", "cpu": "CPU", "memory": "memory"}


def changes(old: LoadedPolicy, new: LoadedPolicy) -> list[m.PolicyChange]:
    """Every difference, in the order of the fields' names."""
    before, after = _flat_policy(old), _flat_policy(new)
    gone, come = _things(before) - _things(after), _things(after) - _things(before)
    found = [
        _change(thing, "there", None, f"{WHOLE[thing[0]]} {thing[1]} is removed") for thing in gone
    ]
    found += [
        _change(thing, None, "there", f"{WHOLE[thing[0]]} {thing[1]} is new") for thing in come
    ]
    for steps in before.keys() | after.keys():
        was, becomes = before.get(steps), after.get(steps)
        if steps[:2] not in gone | come and was != becomes:
            found.append(_change(steps, was, becomes, _sentence(steps, was, becomes)))
    return sorted(found, key=lambda change: change.field)


def _change(steps: Steps, before: str | None, after: str | None, message: str) -> m.PolicyChange:
    return m.PolicyChange(field=".".join(steps), before=before, after=after, message=message)


def _sentence(steps: Steps, before: str | None, after: str | None) -> str:
    """`vision: GPU quota in a100 4 -> 2`."""
    values = f"{'unset' if before is None else before} -> {'unset' if after is None else after}"
    match steps:
        case (_, name, "pools", pool, resource, what) if resource in RESOURCES:
            return f"{name}: {RESOURCES[resource]} {what.replace('_', ' ')} in {pool} {values}"
        case (kind, name, *rest) if kind in WHOLE and rest:
            return f"{name}: {'.'.join(rest)} {values}"
    return f"{'.'.join(steps)}: {values}"


def _things(flat: Flat) -> set[Steps]:
    return {steps[:2] for steps in flat if steps[0] in WHOLE}


def _flat_policy(loaded: LoadedPolicy) -> Flat:
    policy, admin = loaded.policy, loaded.admin
    flat: Flat = {}
    for pool in policy.node_pools:
        flat |= _flat(
            ("node_pools", pool.name), {**pool_body(pool), "pressure": _pressure(loaded, pool.name)}
        )
    for topology in policy.topologies:
        flat |= _flat(("topologies", topology.name), {"levels": list(topology.levels)})
    for department in policy.departments:
        flat |= _flat(
            ("departments", department.name), _queue(department, parent=department.parent)
        )
    for project in policy.projects:
        listed = {
            "members": list(project.members),
            "managers": list(project.managers),
            "node_pools": list(project.node_pools),
            "members_policy": _between_members(project),
        }
        flat |= _flat(
            ("projects", project.name), {**_queue(project, department=project.department), **listed}
        )
    flat |= _flat(("priority_classes",), dict(policy.priority_classes)) | _flat(
        ("options",), options_body(policy.options)
    )
    defaults = {
        "priority_class": policy.default_priority_class,
        "project": admin.default_project,
        "requeue_lost": admin.requeue_lost,
        "notice": duration_text(admin.notice),
        "agent_grace": duration_text(admin.agent_grace),
    }
    flat |= _flat(("defaults",), defaults) | {("admins",): ", ".join(admin.admins) or "none"}
    return flat | {
        (place,): "never" if ms is None else duration_text(ms) for place, ms in loaded.rules.all()
    }


def _queue(queue: Department | Project, **above: str | None) -> dict[str, Any]:
    return {**above, "pools": {pool: quota_body(quota) for pool, quota in queue.pools.items()}}


def _between_members(project: Project) -> dict[str, Any]:
    """The rules between members, for all pools and by pool; absent where there are none."""
    everywhere, own = project.members_policy, project.pool_members_policies
    found = {} if everywhere is None else members_policy_body(everywhere)
    return found | {f"in {pool}": members_policy_body(policy) for pool, policy in own.items()}


def _pressure(loaded: LoadedPolicy, pool: str) -> Mapping[str, Any]:
    thresholds = loaded.pressure.get(pool, m.Pressure())
    return {name: getattr(thresholds, name) for name in thresholds.__struct_fields__}


def _flat(place: Steps, value: Mapping[str, Any]) -> Flat:
    """The leaves of nested mappings; lists are leaves. The name of a part is in its place."""
    return {
        steps: _text(leaf) for steps, leaf in _leaves(place, value) if steps != (*place, "name")
    }


def _leaves(place: Steps, value: Any) -> Iterator[tuple[Steps, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves((*place, key), part)
        return
    yield place, value


def _text(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list():
            return ", ".join(map(str, value)) or "none"
    return str(value)
