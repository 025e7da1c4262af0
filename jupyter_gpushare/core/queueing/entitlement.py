"""The fair share of every queue of a pool, computed once per cycle.

Collects claims (what queues hold and ask for) and divides with `fairshare`. Rules:
docs/explanation/scheduling.md, Fair share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ..cluster.pools import PoolState
from ..cluster.queues import QueueState
from ..cluster.state import State
from ..fairness.fairshare import Claim, divide
from ..model.amounts import GPU, Amounts, is_unlimited
from ..model.pool_option import Hook

__all__ = ["USAGE_REFERENCE", "WHOLE", "entitle"]

UNITS: Final = (GPU, 1, 1)
"""Surplus is divided in whole GPUs, milli-cores and MiB."""
WHOLE: Final = 1_000_000
"""Usage that equals the capacity, in millionths."""
USAGE_REFERENCE: Final[Hook[Callable[[Sequence[QueueState], int], dict[QueueState, int]]]] = Hook(
    "usage reference"
)
"""Past usage of queues of one resource, in millionths of what the option compares it with."""


def entitle(state: State, pool: PoolState) -> None:
    """Sets request, fair share and share of every queue of the pool, unless the pool is
    unchanged.
    """
    if pool.fair_stamp == (pool.version,):
        return
    queues = sorted(pool.queues.values(), key=lambda q: q.name)
    for queue in queues:
        queue.usage = state.usage.get((queue.name, pool.name), (0, 0, 0))
    requests = {queue: queue.allocated.plus(queue.wanted) for queue in queues}
    shares = [_divided(pool, requests, resource) for resource in range(3)]
    for queue, request in requests.items():
        fair = Amounts(*[share.get(queue.name, 0) for share in shares])
        if (request, fair) != (queue.request, queue.fair):
            queue.set_fair(request, fair)
    pool.fair_stamp = (pool.version,)


def _divided(pool: PoolState, requests: dict[QueueState, Amounts], resource: int) -> dict[str, int]:
    wanting = [queue for queue, request in requests.items() if request[resource] > 0]
    total = pool.total[resource]
    if all(is_unlimited(q.quota[resource]) for q in wanting):
        return _as_requested(total, wanting, requests, resource)
    time_based = pool.config.time_based
    usage = _usage(pool, wanting, resource) if time_based else {}
    claims = [_claim(q, resource, requests[q][resource], usage.get(q, 0)) for q in wanting]
    return divide(total, claims, unit=UNITS[resource], k=time_based.k if time_based else 0)


def _claim(queue: QueueState, resource: int, requested: int, usage: int) -> Claim:
    return Claim(
        queue.name,
        None if queue.parent is None else queue.parent.name,
        queue.rank,
        queue.created,
        queue.quota[resource],
        queue.limit[resource],
        queue.rules.weight[resource],
        requested,
        usage,
    )


def _as_requested(
    total: int, wanting: list[QueueState], requests: dict[QueueState, Amounts], resource: int
) -> dict[str, int]:
    """Shares where all quotas are unlimited: each queue gets what it wants, as far as its parent
    has it.
    """
    given: dict[str, int] = {}
    for queue in sorted(wanting, key=lambda q: len(q.path)):
        above = total if queue.parent is None else given.get(queue.parent.name, 0)
        given[queue.name] = min(above, queue.limit[resource], requests[queue][resource])
    return given


def _usage(pool: PoolState, queues: list[QueueState], resource: int) -> dict[QueueState, int]:
    """Past usage as a part of the pool's capacity, unless an option compares it otherwise."""
    compare = USAGE_REFERENCE.first(pool.config)
    if compare is not None:
        return compare(queues, resource)
    return {queue: queue.usage[resource] for queue in queues}
