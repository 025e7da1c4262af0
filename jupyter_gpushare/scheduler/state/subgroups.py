"""Sub-groups and topology of a request, validated and converted to the core's. Every error names
the field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from jupyter_gpushare import messages as m
from jupyter_gpushare.core.model.errors import InvalidInput
from jupyter_gpushare.core.model.model import Policy, SubGroup, TopologyConstraint

__all__ = ["read_groups", "read_together"]

DEEPEST: Final = 16
MOST: Final = 1_000


def read_groups(request: m.WorkloadRequest, policy: Policy) -> tuple[SubGroup, ...]:
    """The sub-groups of a workload.

    Raises InvalidInput: a pod is in no leaf group, a leaf has no pods or a minimum above their
    number, a duplicate name, an inner group with a minimum of its own (all its groups are
    required), or a workload with a minimum beside groups.
    """
    if not request.groups and not any(pod.group for pod in request.pods):
        return ()
    if request.groups and request.min_pods is not None:
        raise InvalidInput(
            "min_pods of a workload with groups must be set on its leaf groups", field="min_pods"
        )
    every = list(_every(request.groups))
    if len(every) > MOST:
        raise InvalidInput(f"a workload has at most {MOST} groups", field="groups")
    for name, count in Counter(group.name for group in every).items():
        if count > 1 or not name:
            raise InvalidInput(
                f"duplicate group name {name!r}" if name else "a group needs a name", field="groups"
            )
    sizes = Counter(pod.group for pod in request.pods)
    _check_pods(request.pods, {group.name for group in every if not group.groups})
    return tuple(_group(group, policy, sizes) for group in request.groups)


def read_together(given: m.TopologyRequest | None, policy: Policy) -> TopologyConstraint | None:
    """A topology constraint with a known topology and levels. Raises InvalidInput."""
    if given is None:
        return None
    levels = {topology.name: topology.levels for topology in policy.topologies}.get(given.name)
    if levels is None:
        raise InvalidInput(f"unknown topology {given.name!r}", field="topology")
    for level in (given.required, given.preferred):
        if level is not None and level not in levels:
            raise InvalidInput(
                f"topology {given.name} has no level {level!r}; it has {', '.join(levels)}",
                field="topology",
            )
    return TopologyConstraint(given.name, given.required, given.preferred)


def _every(groups: Sequence[m.GroupRequest], depth: int = 1) -> Iterator[m.GroupRequest]:
    if depth > DEEPEST:
        raise InvalidInput(f"groups are nested deeper than {DEEPEST} levels", field="groups")
    for group in groups:
        yield group
        yield from _every(group.groups, depth + 1)


def _check_pods(pods: Sequence[m.PodRequest], leaves: set[str]) -> None:
    for pod in pods:
        if pod.group not in leaves and (leaves or pod.group):
            said = (
                f"names {pod.group!r}, which is not a leaf group" if pod.group else "names no group"
            )
            raise InvalidInput(f"pod {pod.name!r} {said}", field="group")


def _group(group: m.GroupRequest, policy: Policy, sizes: Counter[str]) -> SubGroup:
    if group.groups and group.min_pods is not None:
        raise InvalidInput(
            f"group {group.name!r} has sub-groups, all of which are required: remove its min_pods",
            field="min_pods",
        )
    if not group.groups and not sizes[group.name]:
        raise InvalidInput(f"group {group.name!r} has no pods", field="groups")
    if group.min_pods is not None and not 1 <= group.min_pods <= sizes[group.name]:
        words = f"min_pods of group {group.name!r} must be 1 to {sizes[group.name]} (its pods)"
        words += f", got {group.min_pods}"
        raise InvalidInput(words, field="min_pods")
    inner = tuple(_group(each, policy, sizes) for each in group.groups)
    return SubGroup(group.name, group.min_pods, read_together(group.topology, policy), inner)
