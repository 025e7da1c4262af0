"""Walks pending workloads in queue order, pool by pool, for one action.

With many different requests, the walk is limited to those that can succeed and to those that decide
their order. The easiest requests are tried first and undone: where they fail, all others that ask
for more would fail too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import chain
from typing import Final, NamedTuple

from ..cluster.pools import PoolState
from ..cluster.queues import QueueState
from ..cluster.state import State
from ..cluster.work import EquivalenceClass
from ..eviction.rescheduling import TentativeChanges
from ..queueing.order import NextWorkload, QueueOrder, total_request
from ..queueing.reservation import ending_before, excluding_reserved_nodes, reserved_turn

__all__ = ["Attempts", "walk"]

MANY: Final = 100
"""With fewer classes in a pool, actions that evict walk all of them."""
RATIO: Final = 4
"""With fewer classes per group of comparable ones too: an eviction on trial may be costly."""
SOME: Final = 20
"""With fewer classes in a pool, allocate walks all of them, and other actions ask each whether it
can succeed.
"""


class Attempts(NamedTuple):
    """What an action does with one workload."""

    can_succeed: Callable[[EquivalenceClass, PoolState], bool]
    """A cheap check. Workloads that fail it keep their turn, since the best workload of a queue
    represents it.
    """
    attempt: Callable[[PoolState, NextWorkload], bool]
    attempt_alone: Callable[[PoolState, NextWorkload], bool]
    """The same without regard to earlier attempts of this walk; undone if it succeeds."""
    evicts: bool


def walk(state: State, attempts: Attempts) -> None:
    """Tries every pending workload in queue order, in one pool of its list after the other.

    Pools that come late on a list are walked late, so that a workload which falls back to one
    competes there with those that start there. Contradicting lists need another sweep; there are at
    most as many as the longest list.
    """
    if all(len(pools) == 1 for pools in state.by_pools):
        _walk_single(state, attempts)
        return
    tried = dict.fromkeys(state.eq_classes, 0)
    last: dict[str, int] = {}
    for eq_class in state.eq_classes.values():
        for index, name in enumerate(eq_class.pools):
            last[name] = max(last.get(name, 0), index)
    for _ in range(max(last.values(), default=-1) + 1):
        for name in sorted(last, key=lambda n: (last[n], n)):
            here = [
                a
                for a in state.eq_classes.values()
                if a.pools[tried.get(a.key, len(a.pools)) :][:1] == (name,) and not a.is_room
            ]
            ready = [a for a in here if a.ready]
            for eq_class in here:
                tried[eq_class.key] += 1
            pool = state.pools[name]
            if any(attempts.can_succeed(eq_class, pool) for eq_class in ready):
                _walk_pool(state, pool, ready, attempts)
            state.refresh()


def _walk_single(state: State, attempts: Attempts) -> None:
    """The same when no workload has a second pool."""
    for (name,), classes in sorted(state.by_pools.items()):
        pool, here = state.pools[name], [c for c in classes if c.ready and not c.is_room]
        live = _live(state, pool, here, attempts)
        if live is not None:
            if live:
                _walk_pool(state, pool, _relevant(pool, here, live), _limited(attempts, live))
        elif any(attempts.can_succeed(c, pool) for c in _deciding(state, pool, here, attempts)):
            _walk_pool(state, pool, here, attempts)
    state.refresh()


def _walk_pool(
    state: State, pool: PoolState, eq_classes: list[EquivalenceClass], attempts: Attempts
) -> None:
    first = reserved_turn(state, pool)
    if first is not None and first.eq_class in eq_classes and attempts.attempt(pool, first):
        # its class is tried again in the next cycle
        eq_classes = [eq_class for eq_class in eq_classes if eq_class is not first.eq_class]
    with excluding_reserved_nodes(pool):
        _attempt_all(pool, QueueOrder(state, pool, eq_classes), attempts)
    if not attempts.evicts and (brief := ending_before(state, pool, eq_classes)):
        # they may have failed on the other nodes, which says nothing about these
        again = attempts._replace(can_succeed=lambda _eq_class, _pool: True)
        _attempt_all(pool, QueueOrder(state, pool, brief), again)


def _attempt_all(pool: PoolState, turns: QueueOrder, attempts: Attempts) -> None:
    while (turn := turns.next()) is not None:
        is_tried = turn.is_single or attempts.can_succeed(turn.eq_class, pool)
        if is_tried and attempts.attempt(pool, turn):
            # only allocate lets a workload grow in the same cycle
            turns.advance(grows=not attempts.evicts and turn.work.pending > 0)
            if attempts.evicts:
                turns.reorder()
        else:
            turns.skip(only_this=any(m.need.affinity for m in turn.work.members.values()))


# -- many different requests


def _live(
    state: State, pool: PoolState, here: list[EquivalenceClass], attempts: Attempts
) -> Collection[EquivalenceClass] | None:
    """The classes that can succeed; None: it would not be cheaper to tell than to try all."""
    if pool.reservation is not None or len(here) < (MANY if attempts.evicts else SOME):
        return None
    groups, others = state.easiest.groups(pool.name), state.easiest.others(pool.name)
    if attempts.evicts and RATIO * (len(groups) + len(others)) > len(here):
        return None
    if attempts.evicts:
        alone = [*others, *(eq_class for group in groups for eq_class in group.easiest())]
        return () if _all_fail(state, pool, alone, attempts) else None
    live = dict.fromkeys(eq_class for eq_class in others if _may_start(attempts, eq_class, pool))
    for group in groups:
        if not group.is_single:
            # a gang that fits in part may fit whole where a smaller one was packed otherwise
            live.update(dict.fromkeys(c for c in group.all() if _may_start(attempts, c, pool)))
        elif not _all_fail(state, pool, group.easiest(), attempts):
            live.update(dict.fromkeys(c for c in group.all() if attempts.can_succeed(c, pool)))
    return live


def _deciding(
    state: State, pool: PoolState, here: list[EquivalenceClass], attempts: Attempts
) -> Iterable[EquivalenceClass]:
    """If none of these can succeed, none of the others can. Not for allocate, where a class may
    have had room for a part of a gang, and not beside a reservation, which bars all but one.
    """
    if not attempts.evicts or pool.reservation is not None or len(here) < SOME:
        return here
    easiest = (
        eq_class for group in state.easiest.groups(pool.name) for eq_class in group.easiest()
    )
    return chain(state.easiest.others(pool.name), easiest)


def _may_start(attempts: Attempts, eq_class: EquivalenceClass, pool: PoolState) -> bool:
    """Whether it can succeed, or may after another one has: part of it had room before."""
    return eq_class.found.get(pool.name, (0, 0))[0] > 0 or attempts.can_succeed(eq_class, pool)


def _all_fail(
    state: State, pool: PoolState, eq_classes: Iterable[EquivalenceClass], attempts: Attempts
) -> bool:
    """Whether each of these fails if it is tried now. If one succeeds, nothing has changed."""
    tentative: TentativeChanges | None = None
    for eq_class in eq_classes:
        if not attempts.can_succeed(eq_class, pool):
            continue
        tentative = tentative or TentativeChanges(state, pool)
        work = state.works[eq_class.members[0][1]]
        ask = total_request(work.members_to_place(), pool.smallest)
        turn = NextWorkload(work, pool.queue(work.project), ask, eq_class, 0)
        if attempts.attempt_alone(pool, turn):
            tentative.undo()
            return False
    return True


def _limited(attempts: Attempts, live: Collection[EquivalenceClass]) -> Attempts:
    """Attempts of these classes only; others keep their turn."""

    def can_succeed(eq_class: EquivalenceClass, pool: PoolState) -> bool:
        return eq_class in live and attempts.can_succeed(eq_class, pool)

    return attempts._replace(can_succeed=can_succeed)


def _relevant(
    pool: PoolState, here: list[EquivalenceClass], live: Collection[EquivalenceClass]
) -> list[EquivalenceClass]:
    """The live classes, and those that decide when it is their turn.

    Others of the same project do; of other projects, those of a department whose turn is compared
    with that of another one, because its best workload represents it.
    """
    paths = {eq_class.project: pool.queue(eq_class.project).path[::-1] for eq_class in live}
    if len(paths) == 1:
        return list(live)
    depth = 0
    while len({path[depth : depth + 1] for path in paths.values()}) == 1:
        depth += 1
    branches: set[tuple[QueueState, ...]] = {path[: depth + 1] for path in paths.values()}
    projects = {
        project
        for project in {eq_class.project for eq_class in here}
        if pool.queue(project).path[::-1][: depth + 1] in branches
    }
    return [eq_class for eq_class in here if eq_class.project in projects]
