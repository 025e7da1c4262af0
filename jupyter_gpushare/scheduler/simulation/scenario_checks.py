"""Checks references between the parts of a scenario that a policy does not have: nodes, workloads,
pods, usage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from jupyter_gpushare.core.model.model import BUILT_IN_PRIORITY_CLASSES, DEFAULT_POOL

from ..config.consistency import IMPLICIT_DEPARTMENT, entries, names, twice
from ..config.diagnostics import unknown_name
from ..config.documents import Document, FileError, Place

__all__ = ["priority_number", "scenario_problems"]


def priority_number(text: str) -> int | None:
    """The number in `priority: 50`; None: the name of a class."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None


def scenario_problems(document: Document) -> Iterator[FileError]:
    yield from twice(document, entries(document, "nodes"), "node")
    yield from twice(document, entries(document, "workloads"), "workload")
    pools, nodes = {DEFAULT_POOL, *names(document, "node_pools")}, set(names(document, "nodes"))
    for place, entry in entries(document, "nodes"):
        if entry.get("pool") is not None and str(entry["pool"]) not in pools:
            yield document.problem(
                (*place, "pool"), unknown_name(entry["pool"], pools, "node pool")
            )
    stated = document.value.get("priority_classes") if isinstance(document.value, dict) else None
    classes = {*BUILT_IN_PRIORITY_CLASSES, *(stated if isinstance(stated, dict) else ())}
    for place, entry in entries(document, "workloads"):
        priority = entry.get("priority")
        if (
            isinstance(priority, str)
            and priority_number(priority) is None
            and priority not in classes
        ):
            yield document.problem(
                (*place, "priority"), unknown_name(priority, classes, "priority class")
            )
        yield from _problems_of_pods(document, place, entry, nodes)
    yield from _problems_of_notebooks(document, pools)
    queues, usages = (
        {*names(document, "departments"), *names(document, "projects"), IMPLICIT_DEPARTMENT},
        entries(document, "usage"),
    )
    for place, entry in usages:
        if str(entry.get("queue")) not in queues:
            yield document.problem(
                (*place, "queue"), unknown_name(entry.get("queue"), queues, "queue")
            )

    projects = names(document, "projects")
    for place, entry in entries(document, "people"):
        if str(entry.get("project")) not in projects:
            said = unknown_name(entry.get("project"), projects, "project")
            yield document.problem((*place, "project"), said)
        if entry.get("pool") is not None and str(entry["pool"]) not in pools:
            said = unknown_name(entry["pool"], pools, "node pool")
            yield document.problem((*place, "pool"), said)


def _problems_of_notebooks(document: Document, pools: set[str]) -> Iterator[FileError]:
    """Unknown projects and pools of notebooks in virtual time, and names that are used twice."""
    value = document.value if isinstance(document.value, dict) else {}
    session = value.get("virtual_time")
    listed = session.get("notebooks") if isinstance(session, dict) else None
    if not isinstance(listed, list):
        return
    projects, seen = set(names(document, "projects")), set[str]()
    for i, entry in enumerate(listed):
        if not isinstance(entry, dict):
            continue
        place: Place = ("virtual_time", "notebooks", i)
        if entry.get("project") is not None and str(entry["project"]) not in projects:
            message = unknown_name(entry["project"], projects, "project")
            yield document.problem((*place, "project"), message)
        for j, pool in enumerate(entry.get("node_pools") or []):
            if str(pool) not in pools:
                message = unknown_name(pool, pools, "node pool")
                yield document.problem((*place, "node_pools", j), message)
        name = str(entry.get("name"))
        if name in seen:
            yield document.problem((*place, "name"), f"duplicate notebook {name!r}")
        seen.add(name)


def _problems_of_pods(
    document: Document, place: Place, entry: dict[str, Any], nodes: set[str]
) -> Iterator[FileError]:
    listed = entry.get("pods")
    pods = (
        [((*place, "pods", i), pod) for i, pod in enumerate(listed) if isinstance(pod, dict)]
        if isinstance(listed, list)
        else []
    )
    if isinstance(listed, list) and not listed:
        yield document.problem((*place, "pods"), "a workload needs at least one pod")
    yield from twice(document, pods, "pod")
    leaves = set(_leaves(entry.get("groups")))
    for where, pod in pods:
        node, group = pod.get("node"), pod.get("group")
        if (
            pod.get("state") in ("running", "releasing")
            and node is not None
            and str(node) not in nodes
        ):
            yield document.problem((*where, "node"), unknown_name(node, nodes, "node"))
        if (leaves or group is not None) and str(group) not in leaves:
            said = (
                unknown_name(group, leaves, "sub-group without groups of its own")
                if group is not None
                else "names no sub-group"
            )
            yield document.problem((*where, "group"), said)


def _leaves(groups: object) -> Iterator[str]:
    for group in groups if isinstance(groups, list) else ():
        if isinstance(group, dict) and group.get("groups"):
            yield from _leaves(group["groups"])
        elif isinstance(group, dict):
            yield str(group.get("name"))
