"""Option `usage: siblings`: past usage counts as a part of what the siblings used together, instead
of as a part of the pool's capacity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..cluster.queues import QueueState
from ..model.pool_option import Choice, PoolOption
from ..queueing.entitlement import USAGE_REFERENCE, WHOLE

__all__ = ["USAGE"]


def _among_siblings(queues: Sequence[QueueState], resource: int) -> dict[QueueState, int]:
    sums: defaultdict[QueueState | None, int] = defaultdict(int)
    for queue in queues:
        sums[queue.parent] += queue.usage[resource]
    shares: dict[QueueState, int] = {}
    for queue in queues:
        together = sums[queue.parent]
        shares[queue] = queue.usage[resource] * WHOLE // together if together else 0
    return shares


USAGE = PoolOption(
    key="usage",
    values=Choice(("cluster", "siblings")),
    default="cluster",
    documentation=(
        "What past usage is compared with: the capacity of the pool (`cluster`), or the usage of"
        " all siblings together (`siblings`)."
    ),
    hook=USAGE_REFERENCE,
    supply=lambda value: _among_siblings if value == "siblings" else None,
)
