"""Whether a queue may hold more: the limit, and the quota of non-preemptible work, on every level.

Fair share is no bound. Rules: docs/explanation/scheduling.md, Gates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..model.amounts import Amounts
from ..model.reason import ReasonCode
from .people import PersonBound
from .queues import QueueState
from .work import Work

__all__ = ["RESOURCES", "Refusal", "is_within_quota", "refusal"]

RESOURCES: Final = ("gpu", "cpu", "memory")


@dataclass(frozen=True, slots=True)
class Refusal:
    """The bound of a queue that a request would exceed, with the amounts of that resource."""

    code: ReasonCode
    queue: str
    kind: str
    resource: str
    bound: int
    held: int
    asked: int


def refusal(leaf: QueueState, ask: Amounts, work: Work) -> Refusal | None:
    """The first bound that `ask` would exceed: the person's, then from the project upwards. Checks
    requested resources only.
    """
    gpu, cpu, memory = ask
    if gpu and leaf.people is not None and work.room is None:
        for own in leaf.people.bounds(work.user):
            if own.held + gpu > own.limit:
                return _over_person_limit(leaf, own, gpu)
    for queue in leaf.path:
        limit = queue.limit
        if (
            (gpu and queue.gpu + gpu > limit[0])
            or (cpu and queue.cpu + cpu > limit[1])
            or (memory and queue.memory + memory > limit[2])
        ):
            return _refused(ReasonCode.OVER_LIMIT, queue, ask, limit, queue.allocated)
        if work.preemptible:
            continue
        quota = _quota_for(queue, work)
        if (
            (gpu and queue.non_preemptible_gpu + gpu > quota[0])
            or (cpu and queue.non_preemptible_cpu + cpu > quota[1])
            or (memory and queue.non_preemptible_memory + memory > quota[2])
        ):
            return _refused(
                ReasonCode.NON_PREEMPTIBLE_OVER_QUOTA, queue, ask, quota, queue.non_preemptible
            )
    return None


def _quota_for(queue: QueueState, work: Work) -> Amounts:
    """The quota without what is booked before non-preemptible work ends."""
    if queue.promised is None:
        return queue.quota
    promised = queue.promised.gpu(work.max_running)
    return queue.quota._replace(gpu=max(0, queue.quota.gpu - promised))


def is_within_quota(leaf: QueueState, ask: Amounts, work: Work) -> bool:
    """Whether non-preemptible work may grow by `ask` on every level.

    Does not check limits: evicting victims may bring a queue below its limit, so limits are checked
    when pods are placed.
    """
    for queue in leaf.path:
        if any(
            amount and held + amount > quota
            for amount, held, quota in zip(
                ask, queue.non_preemptible, _quota_for(queue, work), strict=True
            )
        ):
            return False
    return True


def _over_person_limit(leaf: QueueState, own: PersonBound, gpu: int) -> Refusal:
    code = ReasonCode.OVER_PERSON_LIMIT
    return Refusal(code, leaf.name, leaf.kind, RESOURCES[0], own.limit, own.held, gpu)


def _refused(
    code: ReasonCode, queue: QueueState, ask: Amounts, bound: Amounts, held: Amounts
) -> Refusal:
    which = next(i for i in range(3) if ask[i] and held[i] + ask[i] > bound[i])
    return Refusal(
        code, queue.name, queue.kind, RESOURCES[which], bound[which], held[which], ask[which]
    )
