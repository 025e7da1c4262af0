"""Which workloads a new policy affects: over a lowered quota or limit, on a node that changes its
pool, or in a removed project.

A new policy never kills a workload. Usage over a new quota can be reclaimed by other queues, with
notice; usage over a new limit stays, and nothing more starts; workloads of a removed project or
pool keep running, and nothing new starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.amounts import is_unlimited
from jupyter_gpushare.core.model.model import Policy, Project, Quota
from jupyter_gpushare.core.model.units import duration_text, gpu_text

from .policy_file import EVERY_USER, LoadedPolicy

__all__ = ["PolicyImpact", "effects"]


@dataclass(frozen=True, slots=True)
class PolicyImpact:
    """One workload now. `milli` is its allocation in `pool` in milli-GPU (None: it is pending)."""

    id: str
    project: str
    user: str
    pool: str | None
    milli: int
    preemptible: bool
    priority_class: str
    for_ms: int
    """How long it has been running or pending."""
    nodes: frozenset[str] = frozenset()


def effects(
    old: LoadedPolicy,
    new: LoadedPolicy,
    uses: Iterable[PolicyImpact],
    moves: Mapping[str, tuple[str, str]],
) -> list[m.PolicyAffected]:
    """The effects with their workloads, ordered by kind and name. `moves` maps a node to its pools
    before and after.
    """
    listed = sorted(uses, key=lambda use: use.id)
    found = [
        *_projects(old.policy, new.policy, listed),
        *_departments(old.policy, new.policy, listed),
        *_moved(moves, listed),
        *_pools(old.policy, new.policy, listed),
        *_classes(old.policy, new.policy, listed),
        *_rules(old, new, listed),
    ]
    return sorted(found, key=lambda one: (one.kind, one.name, one.message))


Kind = Literal["project", "department", "node_pool", "node", "priority_class"]


def _affected(
    kind: Kind, name: str, message: str, uses: Iterable[PolicyImpact]
) -> m.PolicyAffected:
    return m.PolicyAffected(
        kind=kind,
        name=name,
        message=f"{name}: {message}",
        workloads=sorted({use.id for use in uses}),
    )


def _projects(old: Policy, new: Policy, uses: list[PolicyImpact]) -> Iterator[m.PolicyAffected]:
    after = {project.name: project for project in new.projects}
    for project in old.projects:
        mine = [use for use in uses if use.project == project.name]
        if (now := after.get(project.name)) is None:
            if mine:
                yield _affected("project", project.name, f"is removed; {_drains(mine)}", mine)
            continue
        if project.department != now.department and mine:
            text = f"moves to department {now.department} and counts against its quota"
            yield _affected("project", project.name, text, mine)
        excluded = [
            use for use in mine if not _is_member(now, use.user) and _is_member(project, use.user)
        ]
        if excluded:
            names = ", ".join(sorted({use.user for use in excluded}))
            yield _affected(
                "project",
                project.name,
                f"{names} cannot submit to it any more; running workloads stay",
                excluded,
            )
        yield from _quotas("project", project.name, project.pools, now.pools, mine)


def _is_member(project: Project, user: str) -> bool:
    """Groups of users are not known here: with a group, every user counts as a member."""
    members = project.members
    return (
        not members
        or EVERY_USER in members
        or user in members
        or any(member.startswith("group:") for member in members)
    )


def _drains(uses: list[PolicyImpact]) -> str:
    running, waiting = (
        [use for use in uses if use.pool is not None],
        [use for use in uses if use.pool is None],
    )
    parts = []
    if running:
        parts.append(f"{_many(running)} without a quota and can be reclaimed by other projects")
    if waiting:
        parts.append(f"{len(waiting)} pending will not start (UnknownProject)")
    return "; ".join(parts)


def _many(uses: list[PolicyImpact]) -> str:
    return f"{len(uses)} workload{'s keep' if len(uses) > 1 else ' keeps'} running"


def _quotas(
    kind: Literal["project", "department"],
    name: str,
    before: Mapping[str, Quota],
    after: Mapping[str, Quota],
    mine: list[PolicyImpact],
) -> Iterator[m.PolicyAffected]:
    """Usage over a lowered quota or limit."""
    for pool in sorted(before.keys() | after.keys()):
        was, now = before.get(pool, Quota()), after.get(pool, Quota())
        here = [use for use in mine if use.pool == pool]
        used = sum(use.milli for use in here)
        changed = f"GPU quota in {pool} {gpu_text(was.quota.gpu)} -> {gpu_text(now.quota.gpu)}"
        if _is_lower(now.quota.gpu, was.quota.gpu) and used > now.quota.gpu:
            over = used - now.quota.gpu
            fixed = sum(use.milli for use in here if not use.preemptible)
            kept = f"; {gpu_text(fixed)} of it non-preemptible, which stays" if fixed else ""
            text = f"{changed}; uses {gpu_text(used)}: {_gpus(over)} reclaimable by others{kept}"
            yield _affected(kind, name, text, here)
        if _is_lower(now.limit.gpu, was.limit.gpu) and used > now.limit.gpu:
            limit = f"GPU limit in {pool} {gpu_text(was.limit.gpu)} -> {gpu_text(now.limit.gpu)}"
            yield _affected(
                kind,
                name,
                f"{limit}; uses {gpu_text(used)}: they stay, and nothing more starts",
                here,
            )


def _is_lower(now: int, was: int) -> bool:
    return not is_unlimited(now) and (is_unlimited(was) or now < was)


def _gpus(milli: int) -> str:
    return f"{gpu_text(milli)} GPU{' becomes' if 0 < milli <= 1000 else 's become'}"


def _departments(old: Policy, new: Policy, uses: list[PolicyImpact]) -> Iterator[m.PolicyAffected]:
    after = {department.name: department for department in new.departments}
    for department in old.departments:
        below = [use for use in uses if department.name in _above(old, use.project)]
        if (now := after.get(department.name)) is None:
            if below:
                yield _affected(
                    "department",
                    department.name,
                    "is removed; its projects move to the departments in the file",
                    below,
                )
            continue
        yield from _quotas("department", department.name, department.pools, now.pools, below)


def _above(policy: Policy, project: str) -> list[str]:
    """The departments above a project."""
    parents = {department.name: department.parent for department in policy.departments}
    at = next((one.department for one in policy.projects if one.name == project), None)
    found: list[str] = []
    while at is not None and at not in found:
        found.append(at)
        at = parents.get(at)
    return found


def _moved(
    moves: Mapping[str, tuple[str, str]], uses: list[PolicyImpact]
) -> Iterator[m.PolicyAffected]:
    for node, (before, after) in sorted(moves.items()):
        here = [use for use in uses if node in use.nodes]
        yield _affected(
            "node",
            node,
            f"moves from node pool {before} to {after}; running workloads count in {before}",
            here,
        )


def _pools(old: Policy, new: Policy, uses: list[PolicyImpact]) -> Iterator[m.PolicyAffected]:
    for name in sorted(
        {pool.name for pool in old.node_pools} - {pool.name for pool in new.node_pools}
    ):
        here = [use for use in uses if use.pool == name]
        what = _many(here) if here else "nothing is running in it"
        yield _affected(
            "node_pool", name, f"is removed; {what}, nothing new starts in it (UnknownPool)", here
        )


def _classes(old: Policy, new: Policy, uses: list[PolicyImpact]) -> Iterator[m.PolicyAffected]:
    for name, priority in sorted(old.priority_classes.items()):
        mine = [use for use in uses if use.priority_class == name]
        now = new.priority_classes.get(name)
        if now != priority and mine:
            what = "is removed" if now is None else f"is {now} instead of {priority}"
            yield _affected(
                "priority_class", name, f"{what}; existing workloads keep priority {priority}", mine
            )


def _rules(
    old: LoadedPolicy, new: LoadedPolicy, uses: list[PolicyImpact]
) -> Iterator[m.PolicyAffected]:
    """Workloads for which a time limit is already exceeded."""
    for use in uses:
        key, does = (
            ("max_running", "has been running")
            if use.pool is not None
            else ("max_waiting", "has been pending")
        )
        before, now = (
            loaded.rules.rule(key, use.project, use.pool or "default") for loaded in (old, new)
        )
        if (
            now is None
            or now.ms is None
            or use.for_ms < now.ms
            or (before is not None and before.ms == now.ms)
        ):
            continue
        text = (
            f"{use.id} {does} for {duration_text(use.for_ms)}, longer than {now.place} allows:"
            " it ends, after a notice if it is running"
        )
        yield _affected("project", use.project, text, [use])
