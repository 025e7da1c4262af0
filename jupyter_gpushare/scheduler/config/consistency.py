"""Checks references between the parts of a policy or scenario: duplicate and unknown names, cycles
of departments.

Works on the raw value instead of the schemas, so that a file with an invalid amount gets all its
other errors reported. Parts that do not match the schema are skipped; the schemas report them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from jupyter_gpushare.core.model.model import BUILT_IN_PRIORITY_CLASSES, DEFAULT_POOL

from .diagnostics import unknown_name
from .documents import Document, FileError, Place

__all__ = ["IMPLICIT_DEPARTMENT", "entries", "names", "problems_between", "twice"]

IMPLICIT_DEPARTMENT: Final = "default"
"""The department of all projects if the file lists none."""

Entry = tuple[Place, dict[str, Any]]


def entries(document: Document, key: str) -> list[Entry]:
    """The mappings in a list at the top level, with their places."""
    whole = document.value
    listed = whole.get(key) if isinstance(whole, dict) else None
    return (
        [((key, i), entry) for i, entry in enumerate(listed) if isinstance(entry, dict)]
        if isinstance(listed, list)
        else []
    )


def names(document: Document, key: str) -> list[str]:
    """The names of the entries of a list."""
    return [name for _, entry in entries(document, key) if (name := _name(entry)) is not None]


def problems_between(document: Document) -> list[FileError]:
    """All errors between pools, topologies, departments and projects."""
    return [
        *twice(document, [*entries(document, "node_pools")], "node pool"),
        *twice(document, [*entries(document, "topologies")], "topology"),
        *twice(
            document,
            [*entries(document, "departments"), *entries(document, "projects")],
            "department or project",
        ),
        *_implicit_names(document),
        *_parents(document),
        *_cycles(document),
        *_pools(document),
        *_labels(document),
        *_topologies(document),
        *_listed_twice(document),
        *_priority_class(document),
        *_bookings(document),
    ]


def twice(document: Document, where: list[Entry], what: str) -> Iterator[FileError]:
    """Names that an earlier entry uses."""
    seen: dict[str, int] = {}
    for place, entry in where:
        name = _name(entry)
        if name in seen:
            yield document.problem(
                (*place, "name"),
                f"the name {name!r} is used twice: also by a {what} in line {seen[name]}",
            )
        elif name is not None:
            seen[name] = document.line((*place, "name"))


def _name(entry: dict[str, Any]) -> str | None:
    name = entry.get("name")
    return str(name) if isinstance(name, str | int | float) and not isinstance(name, bool) else None


def _implicit_names(document: Document) -> Iterator[FileError]:
    if entries(document, "departments"):
        return
    for place, entry in entries(document, "projects"):
        if _name(entry) == IMPLICIT_DEPARTMENT:
            yield document.problem(
                (*place, "name"),
                "is the name of the department of all projects if no departments are listed",
            )


def _parents(document: Document) -> Iterator[FileError]:
    """Unknown departments."""
    known = names(document, "departments") or [IMPLICIT_DEPARTMENT]
    for key, parent in (("departments", "parent"), ("projects", "department")):
        for place, entry in entries(document, key):
            above = entry.get(parent)
            if above is not None and str(above) not in known:
                yield document.problem((*place, parent), unknown_name(above, known, "department"))


def _cycles(document: Document) -> Iterator[FileError]:
    """Cycles of departments; one error per cycle, at its first department."""
    above = {
        name: entry.get("parent")
        for _, entry in entries(document, "departments")
        if (name := _name(entry)) is not None
    }
    reported: set[str] = set()
    for place, entry in entries(document, "departments"):
        start = _name(entry)
        path: list[str] = []
        at: object = start
        while isinstance(at, str) and at in above and at not in path:
            path.append(at)
            at = above[at]
        if start is not None and at == start and start not in reported:
            reported.update(path)
            yield document.problem(
                (*place, "parent"), f"the departments {' -> '.join([*path, start])} form a cycle"
            )


def _pools(document: Document) -> Iterator[FileError]:
    """Unknown node pools."""
    known = {DEFAULT_POOL, *names(document, "node_pools")}
    for key in ("departments", "projects"):
        for place, entry in entries(document, key):
            pools = entry.get("pools")
            for name in pools if isinstance(pools, dict) else ():
                if name not in known:
                    yield document.problem(
                        (*place, "pools", name), unknown_name(name, known, "node pool")
                    )
    for place, entry in entries(document, "projects"):
        listed = entry.get("node_pools")
        for i, name in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(name, str) and name not in known:
                yield document.problem(
                    (*place, "node_pools", i), unknown_name(name, known, "node pool")
                )


def _labels(document: Document) -> Iterator[FileError]:
    """One label for two pools, or for `default`, which has the nodes that match no other pool."""
    seen: dict[tuple[str, str], str] = {}
    for place, entry in entries(document, "node_pools"):
        label, name = entry.get("label"), _name(entry)
        if not isinstance(label, dict) or name is None:
            continue
        pair = str(label.get("key")), str(label.get("value"))
        if name == DEFAULT_POOL:
            yield document.problem(
                (*place, "label"),
                "the node pool 'default' cannot have a label: it has the nodes that match no other"
                " pool",
            )
        elif pair in seen:
            yield document.problem(
                (*place, "label"), f"the node pool {seen[pair]!r} has the same label"
            )
        else:
            seen[pair] = name


def _topologies(document: Document) -> Iterator[FileError]:
    """Unknown topologies, and duplicate levels."""
    stated = set(names(document, "topologies"))
    pools = [
        (place, topology)
        for place, entry in entries(document, "node_pools")
        if (topology := entry.get("topology")) is not None
    ]
    stated.update(
        str(topology.get("name"))
        for _, topology in pools
        if isinstance(topology, dict) and "levels" in topology
    )
    for place, topology in pools:
        name = topology.get("name") if isinstance(topology, dict) else topology
        if isinstance(name, str) and name not in stated:
            yield document.problem((*place, "topology"), unknown_name(name, stated, "topology"))
    for place, entry in entries(document, "topologies"):
        yield from _levels(document, (*place, "levels"), entry.get("levels"))
    for place, topology in pools:
        if isinstance(topology, dict) and "levels" in topology:
            yield from _levels(document, (*place, "topology", "levels"), topology["levels"])


def _levels(document: Document, place: Place, levels: object) -> Iterator[FileError]:
    if not levels:
        yield document.problem(place, "a topology needs at least one level")
    yield from _repeated(document, place, levels, "level")


def _listed_twice(document: Document) -> Iterator[FileError]:
    for place, entry in entries(document, "projects"):
        yield from _repeated(document, (*place, "members"), entry.get("members"), "member")
        yield from _repeated(document, (*place, "managers"), entry.get("managers"), "manager")
        yield from _repeated(document, (*place, "node_pools"), entry.get("node_pools"), "node pool")


def _repeated(document: Document, place: Place, listed: object, what: str) -> Iterator[FileError]:
    seen: set[str] = set()
    for i, name in enumerate(listed if isinstance(listed, list) else ()):
        if str(name) in seen:
            yield document.problem((*place, i), f"the {what} {name!r} is listed twice")
        seen.add(str(name))


def _bookings(document: Document) -> Iterator[FileError]:
    """Names that are used twice, unknown projects and node pools."""
    booked = entries(document, "bookings")
    yield from twice(document, booked, "booking")
    projects, pools = names(document, "projects"), [DEFAULT_POOL, *names(document, "node_pools")]
    for key, known, what in (("project", projects, "project"), ("pool", pools, "node pool")):
        for place, entry in booked:
            name = entry.get(key)
            if name is not None and str(name) not in known:
                yield document.problem((*place, key), unknown_name(name, known, what))


def _priority_class(document: Document) -> Iterator[FileError]:
    whole = document.value if isinstance(document.value, dict) else {}
    stated, defaults = whole.get("priority_classes"), whole.get("defaults")
    known = {*BUILT_IN_PRIORITY_CLASSES, *(stated if isinstance(stated, dict) else ())}
    named = defaults.get("priority_class") if isinstance(defaults, dict) else None
    if named is not None and str(named) not in known:
        yield document.problem(
            ("defaults", "priority_class"), unknown_name(named, known, "priority class")
        )
    project = defaults.get("project") if isinstance(defaults, dict) else None
    if project is not None and str(project) not in names(document, "projects"):
        yield document.problem(
            ("defaults", "project"), unknown_name(project, names(document, "projects"), "project")
        )
