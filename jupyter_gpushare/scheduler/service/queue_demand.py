"""What queues request, pending changes of shares included.

The core holds a replacement back, so its cycles do not count it; tables and metrics do, with what
it requests beyond the share that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from jupyter_gpushare.core.model.amounts import Amounts
from jupyter_gpushare.core.model.decisions import QueueShare
from jupyter_gpushare.core.model.model import Policy, Workload
from jupyter_gpushare.core.model.requirements import PodRequirements

from ..state.admission import pools_tried
from ..state.unit_of_work import UnitOfWork
from ..state.workload_records import WorkloadRecord

__all__ = ["queues_with_changes"]

NOTHING: Final = Amounts()


def queues_with_changes(unit_of_work: UnitOfWork) -> Sequence[QueueShare]:
    """The queues of the last cycle, with pending changes of shares in `requested`."""
    queues = unit_of_work.decisions.queues
    if not unit_of_work.replacements:
        return queues
    more: dict[tuple[str, str], Amounts] = {}
    for old, new in unit_of_work.replacements.items():
        pool, amounts = _demand(unit_of_work, unit_of_work.records[old], unit_of_work.records[new])
        project = unit_of_work.records[new].project
        for queue in _path(project, unit_of_work.loaded.policy):
            more[queue, pool] = more.get((queue, pool), NOTHING).plus(amounts)
    found = []
    for share in queues:
        amounts = more.get((share.queue, share.pool), NOTHING)
        found.append(replace(share, requested=share.requested.plus(amounts)))
    return found


def _demand(
    unit_of_work: UnitOfWork, old: WorkloadRecord, new: WorkloadRecord
) -> tuple[str, Amounts]:
    """The pool of a change, and what it requests beyond the share that it replaces."""
    policy = unit_of_work.loaded.policy
    pools = pools_tried(new.workload, policy)
    current = {lease.pool for lease in old.leases.values()}
    pool = next((name for name in pools if name in current), pools[0])
    smallest = min(
        (
            state.node.gpu_memory
            for state in unit_of_work.cluster.nodes.values()
            if state.pool == pool and state.node.gpu_memory
        ),
        default=0,
    )
    wanted = _amounts(new.workload, smallest)
    if old.project != new.project or pool not in current:
        return pool, wanted
    held = _amounts(old.workload, smallest)
    return pool, Amounts(*(max(0, more - less) for more, less in zip(wanted, held, strict=True)))


def _amounts(workload: Workload, smallest: int) -> Amounts:
    total = NOTHING
    for pod in workload.pods:
        total = total.plus(PodRequirements(pod).estimate(smallest))
    return total


def _path(project: str, policy: Policy) -> Iterator[str]:
    """The project and the departments above it."""
    found = policy.by_name.get(project)
    parents = {department.name: department.parent for department in policy.departments}
    name: str | None = found.department if found is not None else None
    yield project
    while name is not None:
        yield name
        name = parents.get(name)
