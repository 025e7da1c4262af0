"""The waiting people of each project with fair members, fixed at the start of a cycle.

Rules: docs/explanation/scheduling.md, People.
"""

from __future__ import annotations

from typing import cast

from ..cluster.pools import PoolState
from ..cluster.state import State
from ..cluster.work import EquivalenceClass

__all__ = ["rank_people"]


def rank_people(state: State, pool: PoolState) -> None:
    """Tells every project of the pool with fair members since when each of them waits."""
    if not state.people.is_used:
        return
    for queue in pool.queues.values():
        if queue.people is not None and queue.people.is_fair:
            # queues do not know classes
            classes = cast("set[EquivalenceClass]", queue.pending)
            queue.people.begin_cycle(_waits(state, classes))


def _waits(state: State, classes: set[EquivalenceClass]) -> dict[str, int]:
    """Since when (ms) each person waits, by name, so that the result does not depend on the order
    of a set. The first of equal requests stands for all.
    """
    found: dict[str, int] = {}
    for eq_class in classes:
        since = state.works[eq_class.members[0][1]].pending_since
        found[eq_class.user] = min(since, found.get(eq_class.user, since))
    return dict(sorted(found.items()))
