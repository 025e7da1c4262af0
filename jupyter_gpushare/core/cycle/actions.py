"""What a cycle does, one action after the other: allocate, consolidate, reclaim, preempt, evict
stale gangs.

Every action walks the queues in order, pool by pool; a workload whose first pool has no room is
asked again in its second within the same action. Nobody blocks the line: who finds no room is
passed over. A verdict is remembered as long as nothing can have changed it, which is what makes a
cycle cost what changed and not what waits:

* allocate: what found no room finds none while nothing was given back in the pool
  (`PoolState.freed`), because until then free devices, CPU and slots only become fewer and what
  queues hold only grows. Pods with affinity are asked again: a neighbour is no shortage.
* the actions that evict: the same try in the very same state of the pool (`PoolState.version`) ends
  the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..allocation.gang import Allocation, go_stale
from ..cluster.pools import PoolState
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.work import EquivalenceClass, Member
from ..eviction.consolidation import ConsolidationStrategy, is_bound, may_consolidate
from ..eviction.preempt import PreemptionStrategy
from ..eviction.reclaim import ReclaimStrategy, is_entitled
from ..eviction.solver import Judge, Solver
from ..eviction.victim_candidates import EvictionUnit, VictimCandidates
from ..model.amounts import NOTHING, Amounts
from ..queueing.failure_cache import FailureCache
from ..queueing.order import NextWorkload, QueueOrder, asked
from ..queueing.reservation import keep_closed, reserved_turn

__all__ = ["ACTIONS_BY_NAME", "Notes"]

Notes = dict[Member, tuple[str, str | None]]
"""Evicted member -> the action that did it and the workload it made room for."""
Rules = tuple[Callable[[], VictimCandidates], Judge, int | None]
"""Who may be taken from, whether a set of victims is allowed, and how many workloads may be moved
at most.
"""


def _walk(
    state: State,
    may: Callable[[EquivalenceClass, PoolState], bool],
    attempt: Callable[[PoolState, NextWorkload], bool],
    *,
    evicts: bool,
) -> None:
    """Asks every pending workload, in order, in one pool of its list after the other.

    `may` tells cheaply who cannot succeed. They still take their turn in the order, as the best
    workload of a queue speaks for it; but where nobody may succeed, nobody is asked.

    Pools that stand late on somebody's list come late, so that who falls back to one competes there
    with those who begin there. Lists that contradict each other need another sweep; there are at
    most as many as the longest list.
    """
    if all(len(alike.pools) == 1 for alike in state.alike.values()):
        _walk_single(state, may, attempt, evicts)
        return
    tried = dict.fromkeys(state.alike, 0)
    last: dict[str, int] = {}
    for alike in state.alike.values():
        for index, name in enumerate(alike.pools):
            last[name] = max(last.get(name, 0), index)
    for _ in range(max(last.values(), default=-1) + 1):
        for name in sorted(last, key=lambda n: (last[n], n)):
            pool = state.pools[name]
            here = [
                a
                for a in state.alike.values()
                if a.pools[tried.get(a.key, len(a.pools)) :][:1] == (name,)
            ]
            asking = [a for a in here if a.ready]
            for alike in here:
                tried[alike.key] += 1
            _walk_pool(state, pool, asking, may, attempt, evicts)
            state.refresh()


def _walk_single(
    state: State,
    may: Callable[[EquivalenceClass, PoolState], bool],
    attempt: Callable[[PoolState, NextWorkload], bool],
    evicts: bool,
) -> None:
    """The same when nobody has a second pool."""
    asking: dict[str, list[EquivalenceClass]] = {}
    for alike in state.alike.values():
        if alike.ready:
            asking.setdefault(alike.pools[0], []).append(alike)
    for name in sorted(asking):
        _walk_pool(state, state.pools[name], asking[name], may, attempt, evicts)
    state.refresh()


def _walk_pool(
    state: State,
    pool: PoolState,
    asking: list[EquivalenceClass],
    may: Callable[[EquivalenceClass, PoolState], bool],
    attempt: Callable[[PoolState, NextWorkload], bool],
    evicts: bool,
) -> None:
    if not any(may(alike, pool) for alike in asking):
        return
    first = reserved_turn(state, pool)
    if first is not None and first.alike in asking and attempt(pool, first):
        asking = [
            alike for alike in asking if alike is not first.alike
        ]  # its kind is asked again in the next cycle
    with keep_closed(pool):
        _ask_all(pool, QueueOrder(state, pool, asking), may, attempt, evicts)


def _ask_all(
    pool: PoolState,
    turns: QueueOrder,
    may: Callable[[EquivalenceClass, PoolState], bool],
    attempt: Callable[[PoolState, NextWorkload], bool],
    evicts: bool,
) -> None:
    while (turn := turns.next()) is not None:
        if (turn.is_single or may(turn.alike, pool)) and attempt(pool, turn):
            turns.served(
                again=not evicts and turn.work.pending > 0
            )  # only allocate lets a workload grow in the same cycle
            if evicts:
                turns.reorder()
        else:
            turns.passed(alone=any(m.need.affinity for m in turn.work.members.values()))


def _allocate(state: State, now: int, notes: Notes) -> None:
    del notes
    _walk(
        state,
        lambda a, pool: a.refused.get(pool.name) != pool.freed,
        lambda pool, turn: _start(state, pool, turn, now),
        evicts=False,
    )


def _start(state: State, pool: PoolState, turn: NextWorkload, now: int) -> bool:
    """Seats a workload on what is free or being left; remembers the refusal, which stands until
    something is freed.
    """
    work = turn.work
    members = work.asking()
    ask = (
        asked(members, pool.smallest)
        if not any(m.need.memory for m in members)
        else _stated(members)
    )
    is_first = not any(podset.active for podset in work.podsets)
    seating = Allocation(state, pool, work)
    if refusal(turn.leaf, ask, work.preemptible) is None and seating.seat_all(members):
        if is_first and all(
            m.status == "bound" for m in members
        ):  # growing renews no protection, and a promise is no start
            state.journal.assign(work, "started", now)
        return True
    if turn.is_single:
        return False
    if not any(
        m.need.affinity for m in members
    ):  # a neighbour may arrive and make room by being there
        state.journal.push(
            _remember, turn.alike.refused, pool.name, turn.alike.refused.get(pool.name)
        )
        turn.alike.refused[pool.name] = pool.freed
    turn.alike.found[pool.name] = len(seating.seated)
    return False


def _stated(members: list[Member]) -> Amounts:
    """What is known of the price before the node is: GPU memory is priced, and the gate asked
    again, at each node.
    """
    total = NOTHING
    for member in members:
        total = total.plus(member.need.stated)
    return total


def _remember(table: dict[Any, Any], key: object, value: object) -> None:
    """Puts a remembered verdict back (or out) when the cycle is undone."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _take(
    state: State,
    notes: Notes,
    action: str,
    rules: Rules | None,
    pool: PoolState,
    turn: NextWorkload,
) -> bool:
    """Lets the solver make room by these rules."""
    if rules is None:
        return False
    victims, judge, most = rules
    solver = Solver(state, pool, turn.work, victims(), judge, max_moved=most)
    if not solver.solve():
        return False
    for unit in solver.used:
        for member in unit.members:
            if member.status != "running":
                notes[member] = (action, turn.work.id)
    return True


def _failed_here(state: State, action: str, pool: PoolState, turn: NextWorkload) -> None:
    """The same try in the very same state of the pool would fail again, so it is not made."""
    if not turn.is_single:
        key = (pool.name, action)
        state.journal.push(_remember, turn.alike.tried, key, turn.alike.tried.get(key))
        turn.alike.tried[key] = pool.version


def _evicting(
    action: str, rules_for: Callable[[State, PoolState, NextWorkload, int], Rules | None]
) -> Callable[[State, int, Notes], None]:
    def act(state: State, now: int, notes: Notes) -> None:
        timeless = not _has_min_runtimes(state)

        failed = FailureCache()

        def worth_trying(alike: EquivalenceClass, pool: PoolState) -> bool:
            if timeless and alike.tried.get((pool.name, action)) == pool.version:
                return False
            return _PRECHECKS[action](alike, pool)

        def attempt(pool: PoolState, turn: NextWorkload) -> bool:
            members = turn.work.asking()
            key = (
                pool.name,
                None if action == "consolidation" else turn.leaf.name,
                turn.work.preemptible,
            )
            if not failed.is_no_easier(key, turn.work, members):
                if _take(state, notes, action, rules_for(state, pool, turn, now), pool, turn):
                    return True
                failed.add(key, turn.work, members)
            _failed_here(state, action, pool, turn)
            return False

        _walk(state, worth_trying, attempt, evicts=True)

    return act


def _may_move(alike: EquivalenceClass, pool: PoolState) -> bool:
    if not alike.sample.preemptible or not any(queue.lenders for queue in pool.queues.values()):
        return False
    return not is_bound(
        pool,
        pool.queue(alike.project),
        asked(alike.sample.asking(), pool.smallest),
        preemptible=True,
    )


def _may_reclaim(alike: EquivalenceClass, pool: PoolState) -> bool:
    """Whether its project is within its fair share, or may come to be when others take from it in
    this very action.
    """
    leaf = pool.queue(alike.project)
    if not any(queue.lenders for queue in pool.queues.values() if queue is not leaf):
        return False
    return bool(leaf.lenders) or not leaf.exceeds(
        leaf.fair, asked(alike.sample.asking(), pool.smallest)
    )


def _may_preempt(alike: EquivalenceClass, pool: PoolState) -> bool:
    lenders = pool.queue(alike.project).lenders
    return bool(lenders) and -lenders[-1][0][0] < alike.sample.priority


_PRECHECKS: dict[str, Callable[[EquivalenceClass, PoolState], bool]] = {
    "consolidation": _may_move,
    "reclaim": _may_reclaim,
    "preempt": _may_preempt,
}
"""Cheap conditions without which nobody need take a turn."""


def _has_min_runtimes(state: State) -> bool:
    """Whether the passing of time alone can change who may be taken from."""
    options = state.policy.options
    return bool(
        options.preempt_min_runtime
        or options.reclaim_min_runtime
        or any(
            q.rules.preempt_min_runtime or q.rules.reclaim_min_runtime
            for pool in state.pools.values()
            for q in pool.queues.values()
        )
    )


def _consolidation_rules(
    state: State, pool: PoolState, turn: NextWorkload, now: int
) -> Rules | None:
    del now
    if not may_consolidate(pool, turn):
        return None
    moving = ConsolidationStrategy(state, pool, turn)
    return moving.victims, moving.is_allowed, state.policy.options.max_consolidation_victims


def _reclaim_rules(state: State, pool: PoolState, turn: NextWorkload, now: int) -> Rules | None:
    if not is_entitled(turn):
        return None
    taking = ReclaimStrategy(state, pool, turn, now)
    return taking.victims, taking.is_fair, None


def _preempt_rules(state: State, pool: PoolState, turn: NextWorkload, now: int) -> Rules | None:
    taking = PreemptionStrategy(state, pool, turn, now)
    return (taking.victims, _always, None) if taking.may_ask() else None


def _always(units: Sequence[EvictionUnit], ask: Amounts) -> bool:
    """Preemption has nothing more to judge: only who may be taken is offered, and the gate is asked
    again for every seat.
    """
    del units, ask
    return True


def _evict_stale(state: State, now: int, notes: Notes) -> None:
    for member in go_stale(state, now):
        state.put(member, "releasing", member.node, member.devices)
        notes[member] = ("stale_gang_eviction", None)


ACTIONS_BY_NAME: dict[str, Callable[[State, int, Notes], None]] = {
    "allocate": _allocate,
    "consolidation": _evicting("consolidation", _consolidation_rules),
    "reclaim": _evicting("reclaim", _reclaim_rules),
    "preempt": _evicting("preempt", _preempt_rules),
    "stale_gang_eviction": _evict_stale,
}
