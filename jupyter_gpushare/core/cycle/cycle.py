"""One scheduling cycle; and the same on trial, for a workload that was not submitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from ..cluster.cluster import Cluster
from ..cluster.pools import PoolState
from ..cluster.state import State
from ..cluster.work import Member
from ..model.decisions import Bind, Decisions, Evict, Pipeline, Replan, WhatIf
from ..model.events import WorkloadEnded, WorkloadSubmitted
from ..model.model import Workload
from ..model.requirements import PodRequirements
from ..queueing.booked_rooms import has_moved_rooms, keep_rooms
from ..queueing.entitlement import entitle
from ..queueing.people import rank_people
from ..queueing.reservation import reserve
from ..reasons.explain import Explainer, FreeCapacity, free_in
from ..reasons.messages import eviction_message
from .actions import ACTIONS_BY_NAME, EvictionNotes, make_room_for_bookings

__all__ = ["cycle", "what_if"]


def _ignore(action: str) -> None:
    del action


def cycle(cluster: Cluster, now: int, done: Callable[[str], None] = _ignore) -> Decisions:
    """Decides, and changes the cluster accordingly. `now` in ms.

    The result depends on the arguments only. `done` is called with the name of each finished
    action, so that the caller can measure times.
    """
    state = cluster._state
    decisions = _run(state, now, done)
    state.undo_log.settle()
    return decisions


def _run(state: State, now: int, done: Callable[[str], None] = _ignore) -> Decisions:
    """The cycle on the inner state. The undo log keeps everything, so the caller may undo it."""
    state.replanned.clear()
    state.people.advance(now)
    state.next_turn = None
    state.host_full.clear()
    _settle(state)
    keep_rooms(state, now)
    state.refresh()
    for pool in state.pools.values():
        entitle(state, pool)
        rank_people(state, pool)
        reserve(state, pool, now)
        _study_requests(state, pool)
    before = {pool.name: free_in(pool) for pool in state.pools.values()}
    notes: EvictionNotes = {}
    make_room_for_bookings(state, now, notes)
    for action in state.policy.options.actions:
        ACTIONS_BY_NAME[action](state, now, notes)
        state.refresh()
        done(action)
    for member in list(state.nominees):  # A promise lasts one cycle.
        state.nominate(member, None)
    state.refresh()
    return _decisions(state, notes, before, now)


def _settle(state: State) -> None:
    """Bound pods run; promised pods are pending again and prefer the promised node."""
    for member in list(state.unsettled):
        if member.status == "bound":
            state.put(member, "running", member.node, member.devices, member.charge)
        else:
            assert member.node is not None
            state.nominate(member, member.node.name)
            if member.old is None:
                state.put(member, "pending")
            else:
                state.put(member, "releasing", member.old, member.old_devices)


def _study_requests(state: State, pool: PoolState) -> None:
    """Counts the typical requests of a pool with the option `defragment`."""
    if pool.defragmenter is None:
        return
    waiting: Counter[PodRequirements] = Counter()
    for eq_class in state.eq_classes.values():
        if pool.name in eq_class.pools:
            for member in eq_class.sample.members.values():
                waiting[member.need] += len(eq_class.members) if member.status == "pending" else 0
    pool.defragmenter.study(waiting)


def what_if(
    cluster: Cluster, workload: Workload, now: int, instead_of: str | None = None
) -> WhatIf:
    """Where the workload would be placed now and which pods it would evict, or why it would wait.

    Changes nothing. `instead_of` is a workload whose place is given up for it, if it exists. Raises
    what submitting the workload would raise.
    """
    mark = cluster.checkpoint()
    try:
        if instead_of is not None and instead_of in cluster.workloads:
            cluster.apply(WorkloadEnded(instead_of))
        cluster.apply(WorkloadSubmitted(workload))
        decisions = _run(cluster._state, now)
        members = cluster.workloads[workload.id].members.values()
        spots = {m.name: spot for m in members if (spot := m.spot()) is not None}
        return WhatIf(
            starts_now=bool(members) and all(m.status == "bound" for m in members),
            after_eviction=any(m.status == "pipelined" for m in members),
            spots=spots,
            displaces=tuple(e for e in decisions.evictions if e.by == workload.id),
            reason=decisions.reasons.get(workload.id),
        )
    finally:
        cluster.rollback(mark)


def _decisions(
    state: State, notes: EvictionNotes, before: dict[str, FreeCapacity], now: int
) -> Decisions:
    binds, pipelines = [], []
    for member in state.unsettled:
        spot = member.spot()
        assert spot is not None
        if member.work.room is not None:
            continue
        if member.status == "bound":
            binds.append(Bind(member.work.id, member.name, spot))
        else:
            pipelines.append(Pipeline(member.work.id, member.name, spot))
    evictions = tuple(
        _eviction(state, m, action, by)
        for m, (action, by) in notes.items()
        if m.status in ("releasing", "pipelined") and m.work.room is None
    )
    explainer = Explainer(state, before, evictions)
    return Decisions(
        tuple(binds),
        tuple(pipelines),
        evictions,
        explainer.reasons(),
        explainer.positions(),
        explainer.queues(),
        explainer.count_positions,
        explainer.peek,
        tuple(_replans(state)),
        now if has_moved_rooms(state) else state.next_turn,
    )


def _replans(state: State) -> Iterator[Replan]:
    """Changed plans, also of pods that were evicted afterwards and have not left yet."""
    for member, before in state.replanned.items():
        spot = member.old_spot() or member.spot()
        if spot is not None and spot.devices != before and member.work.room is None:
            yield Replan(member.work.id, member.name, spot)


def _eviction(state: State, member: Member, action: str, by: str | None) -> Evict:
    spot = member.old_spot() or member.spot()
    assert spot is not None
    return Evict(
        member.work.id,
        member.name,
        spot,
        action,
        by,
        eviction_message(member, action, state.works.get(by) if by else None),
    )
