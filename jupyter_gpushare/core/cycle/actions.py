"""The actions of a cycle: allocate, rotate, consolidation, reclaim, preempt, stale gang eviction.

Every action walks the queues in order, pool by pool. A workload that does not fit in its first pool
is tried in its second within the same action; it never blocks the workloads after it. Results are
remembered while nothing can have changed them, so that a cycle costs what has changed, not what is
pending:

* allocate: what did not fit does not fit until something is released in the pool
  (`PoolState.freed`), since until then free resources shrink and allocations grow. Pods with
  affinity are tried again, because they may need a neighbour, not room.
* evicting actions: an attempt in an unchanged pool (`PoolState.version`) fails again.

Rules: docs/explanation/scheduling.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..allocation.gang import Allocation, stale_members
from ..cluster.pools import PoolState
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.time_sharing import TIME_SHARING
from ..cluster.work import EquivalenceClass, Member
from ..eviction.consolidation import ConsolidationStrategy, could_move, is_bound, may_consolidate
from ..eviction.evicted_units import EvictedUnits
from ..eviction.preempt import PreemptionStrategy
from ..eviction.reclaim import ReclaimStrategy, is_entitled
from ..eviction.room_placement import place_rooms
from ..eviction.rotation import Rotation
from ..eviction.solver import Solver, Validator
from ..eviction.victim_candidates import VictimCandidates
from ..model.amounts import NOTHING, Amounts
from ..queueing.booked_rooms import use_rooms
from ..queueing.failure_cache import FailureCache
from ..queueing.order import NextWorkload, total_request
from .walk import Attempts, walk

__all__ = ["ACTIONS_BY_NAME", "EvictionNotes", "make_room_for_bookings"]

EvictionNotes = dict[Member, tuple[str, str | None]]
"""Evicted member -> the action, and the workload that it makes room for."""
ActionRules = tuple[Callable[[], VictimCandidates], Validator, int | None]
"""The victims, the validator, and the largest number of workloads that may move."""
CONSOLIDATION: Final = "consolidation"
ROUND: Final = "round"
"""Key of the round of a pool's `trials` in which a class was searched last."""


def make_room_for_bookings(state: State, now: int, notes: EvictionNotes) -> None:
    """What is booked comes first: it takes what is free, or what those above their share hold."""

    def place(pool: PoolState, turn: NextWorkload) -> bool:
        if _start(state, pool, turn, now):
            return True
        return any(
            _solve(state, notes, action, rules, pool, turn, now)
            for action, rules_for in (("reclaim", _reclaim_rules), ("preempt", _preempt_rules))
            for rules in rules_for(state, pool, turn, now)
        )

    for pool in state.pools.values() if state.rooms else ():
        place_rooms(state, pool, place, notes)
        state.refresh()


def _allocate(state: State, now: int, notes: EvictionNotes) -> None:
    del notes

    def start(pool: PoolState, turn: NextWorkload) -> bool:
        return _start(state, pool, turn, now)

    use_rooms(state, start)  # first, since others may only be promised a place that is leaving
    walk(state, Attempts(_may_start, start, start, evicts=False))


def _may_start(eq_class: EquivalenceClass, pool: PoolState) -> bool:
    """Whether something was released since the last failure, or part of a gang had room, which
    other workloads may have taken since.
    """
    if eq_class.refused.get(pool.name) != pool.freed:
        return True
    found, version = eq_class.found.get(pool.name, (0, 0))
    return found > 0 and version != pool.version


def _start(state: State, pool: PoolState, turn: NextWorkload, now: int) -> bool:
    """Places a workload on what is free or being released; records a failure."""
    work = turn.work
    members = work.members_to_place()
    ask = (
        total_request(members, pool.smallest)
        if not any(m.need.memory for m in members)
        else _stated(members)
    )
    is_first = not any(podset.active for podset in work.podsets)
    allocation = Allocation(state, pool, work)
    if refusal(turn.leaf, ask, work) is None and allocation.place_all(members):
        if is_first and all(
            m.status == "bound" for m in members
        ):  # Growing does not renew the protection, and a promise is not a start.
            state.undo_log.assign(work, "started", now)
        return True
    if turn.is_single:
        return False
    if not any(m.need.affinity for m in members):  # a neighbour may arrive
        _record(state, turn.eq_class.refused, pool.name, pool.freed)
    found = len(allocation.placed) if len(members) > 1 else 0
    _record(state, turn.eq_class.found, pool.name, (found, pool.version))
    return False


def _stated(members: list[Member]) -> Amounts:
    """The cost in quota that is known before the node is; GPU memory is charged, and checked, per
    node.
    """
    total = NOTHING
    for member in members:
        total = total.plus(member.need.stated)
    return total


def _record(state: State, table: dict[Any, Any], key: object, value: object) -> None:
    """Records a result so that undoing the cycle restores the former one."""
    state.undo_log.push(_restore_entry, table, key, table.get(key))
    table[key] = value


def _restore_entry(table: dict[Any, Any], key: object, value: object) -> None:
    """Restores or removes a recorded result when the cycle is undone."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _rotate(state: State, now: int, notes: EvictionNotes) -> None:
    """Idle workloads give their shares to those whose cell waits, where time is shared."""
    if not any(eq_class.sample.waits_for_turn for eq_class in state.eq_classes.values()):
        return
    rotations = {
        pool.name: Rotation(state, pool, rules, now)
        for pool in state.pools.values()
        if (rules := TIME_SHARING.first(pool.config)) is not None
    }

    def may_take(eq_class: EquivalenceClass, pool: PoolState) -> bool:
        rotation = rotations.get(pool.name)
        return rotation is not None and eq_class.sample.waits_for_turn

    def take(pool: PoolState, turn: NextWorkload) -> bool:
        rotation = rotations[pool.name]
        for action, attempt in (("rotate", rotation.take), ("max_turn", rotation.interrupt)):
            if taken := attempt(turn):
                notes.update(dict.fromkeys(taken, (action, turn.work.id)))
                return True
        _note_obstacles(state, rotation, turn)
        return False

    def take_alone(pool: PoolState, turn: NextWorkload) -> bool:
        rotation = rotations[pool.name]
        if rotation.take(turn) or rotation.interrupt(turn):
            return True
        _note_obstacles(state, rotation, turn)
        return False

    walk(state, Attempts(may_take, take, take_alone, evicts=True))


def _note_obstacles(state: State, rotation: Rotation, turn: NextWorkload) -> None:
    """When to try again, and whether the host's memory is the obstacle."""
    end = rotation.next_end(turn)
    if end is not None:
        state.next_turn = end if state.next_turn is None else min(end, state.next_turn)
    elif rotation.is_host_full(turn):
        state.host_full.add((rotation.pool.name, turn.work.project))


def _solve(
    state: State,
    notes: EvictionNotes,
    action: str,
    rules: ActionRules,
    pool: PoolState,
    turn: NextWorkload,
    now: int,
) -> bool:
    """Runs the solver with these rules."""
    victims, validator, most = rules
    solver = Solver(state, pool, turn.work, victims(), validator, max_moved=most)
    has_room = solver.solve()
    if action == CONSOLIDATION:
        pool.trials.charge(state.undo_log, now, solver.trials)
    if not has_room:
        return False
    for unit in solver.affected:
        for member in unit.members:
            if member.status != "running":
                notes[member] = (action, turn.work.id)
    return True


def _failed_here(state: State, action: str, pool: PoolState, turn: NextWorkload) -> None:
    """Records that the attempt would fail again in this state of the pool."""
    if action == CONSOLIDATION:
        _record(state, turn.eq_class.tried, (pool.name, ROUND), pool.trials.round)
    if not turn.is_single:
        key = (pool.name, action)
        _record(state, turn.eq_class.tried, key, pool.version)


def _has_its_turn(eq_class: EquivalenceClass, pool: PoolState, now: int) -> bool:
    """Whether the pool may search for it: the budget is not spent, and if it was, others that have
    not been searched since come first.
    """
    if pool.trials.left(now) <= 0:
        return False
    is_done = eq_class.tried.get((pool.name, ROUND)) == pool.trials.round
    return not (pool.trials.is_short and is_done)


def _evicting(
    action: str, rules_for: Callable[[State, PoolState, NextWorkload, int], list[ActionRules]]
) -> Callable[[State, int, EvictionNotes], None]:
    def act(state: State, now: int, notes: EvictionNotes) -> None:
        timeless = not _has_min_runtimes(state)

        failed = FailureCache()

        def worth_trying(eq_class: EquivalenceClass, pool: PoolState) -> bool:
            if timeless and eq_class.tried.get((pool.name, action)) == pool.version:
                return False
            if action == CONSOLIDATION and not _has_its_turn(eq_class, pool, now):
                return False
            return _PRECHECKS[action](eq_class, pool)

        def attempt(pool: PoolState, turn: NextWorkload) -> bool:
            members = turn.work.members_to_place()
            key = (
                pool.name,
                None if action == CONSOLIDATION else turn.leaf.name,
                turn.work.preemptible,
                turn.eq_class.user,
            )
            if not failed.is_no_easier(key, turn.work, members):
                alternatives = rules_for(state, pool, turn, now)
                if any(_solve(state, notes, action, r, pool, turn, now) for r in alternatives):
                    failed.clear()
                    return True
                failed.add(key, turn.work, members)
            _failed_here(state, action, pool, turn)
            return False

        def attempt_alone(pool: PoolState, turn: NextWorkload) -> bool:
            alternatives = rules_for(state, pool, turn, now)
            if any(_solve(state, {}, action, rules, pool, turn, now) for rules in alternatives):
                return True
            _failed_here(state, action, pool, turn)
            return False

        walk(state, Attempts(worth_trying, attempt, attempt_alone, evicts=True))
        if action == CONSOLIDATION:
            for pool in state.pools.values():
                pool.trials.settle(state.undo_log, now)

    return act


def _may_consolidate(eq_class: EquivalenceClass, pool: PoolState) -> bool:
    if not eq_class.sample.preemptible or not pool.has_candidates():
        return False
    leaf = pool.queue(eq_class.project)
    ask = eq_class.ask(pool.smallest)
    return not is_bound(pool, leaf, ask, eq_class.sample)


def _may_reclaim(eq_class: EquivalenceClass, pool: PoolState) -> bool:
    """Whether its project is within its fair share, or may be after evictions in this action."""
    leaf = pool.queue(eq_class.project)
    if not pool.has_candidates(besides=leaf):
        return False
    return bool(leaf.candidates) or not leaf.exceeds(leaf.fair, eq_class.ask(pool.smallest))


def _may_preempt(eq_class: EquivalenceClass, pool: PoolState) -> bool:
    candidates = pool.queue(eq_class.project).candidates
    return bool(candidates) and -candidates[-1][0][0] < eq_class.sample.priority


_PRECHECKS: dict[str, Callable[[EquivalenceClass, PoolState], bool]] = {
    CONSOLIDATION: _may_consolidate,
    "reclaim": _may_reclaim,
    "preempt": _may_preempt,
}
"""Cheap conditions without which an attempt cannot succeed."""


def _has_min_runtimes(state: State) -> bool:
    """Whether the passing of time alone can change which workloads may be evicted."""
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
) -> list[ActionRules]:
    del now
    if not may_consolidate(pool, turn):
        return []
    strategy = ConsolidationStrategy(state, pool, turn)
    return [(strategy.victims, strategy.is_allowed, state.policy.options.max_consolidation_victims)]


def _reclaim_rules(
    state: State, pool: PoolState, turn: NextWorkload, now: int
) -> list[ActionRules]:
    """Evicts from queues above their share; else moves workloads of any other project, unless
    consolidation has tried that.
    """
    if not is_entitled(turn):
        return []
    options, strategy = state.policy.options, ReclaimStrategy(state, pool, turn, now)
    rules: list[ActionRules] = [(strategy.victims, strategy.is_fair, None)]
    is_tried = turn.work.preemptible and turn.work.room is None and CONSOLIDATION in options.actions
    if not is_tried and could_move(pool, turn):
        rules.append((strategy.movable, strategy.are_moved, options.max_consolidation_victims))
    return rules


def _preempt_rules(
    state: State, pool: PoolState, turn: NextWorkload, now: int
) -> list[ActionRules]:
    strategy = PreemptionStrategy(state, pool, turn, now)
    return [(strategy.victims, _allow_all, None)] if strategy.may_preempt() else []


def _allow_all(units: EvictedUnits, ask: Amounts) -> bool:
    """Preemption has no further rule: candidates are filtered, and limits are checked for
    each pod.
    """
    del units, ask
    return True


def _evict_stale(state: State, now: int, notes: EvictionNotes) -> None:
    for member in stale_members(state, now):
        state.put(member, "releasing", member.node, member.devices)
        notes[member] = ("stale_gang_eviction", None)


ACTIONS_BY_NAME: dict[str, Callable[[State, int, EvictionNotes], None]] = {
    "allocate": _allocate,
    "rotate": _rotate,
    CONSOLIDATION: _evicting(CONSOLIDATION, _consolidation_rules),
    "reclaim": _evicting("reclaim", _reclaim_rules),
    "preempt": _evicting("preempt", _preempt_rules),
    "stale_gang_eviction": _evict_stale,
}
