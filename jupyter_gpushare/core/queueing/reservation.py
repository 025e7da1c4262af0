"""Option `reserve_after`: nodes that are kept free for a workload that has waited too long.

There is one reservation per pool. It covers the nodes with the most free GPUs, which will be empty
first, and lasts until the workload starts or is withdrawn. Rules: docs/explanation/scheduling.md,
Reservations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from ..cluster.pools import PoolState
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.work import EquivalenceClass, Work
from ..model.amounts import GPU
from ..model.pool_option import Hook
from .order import NextWorkload, total_request

__all__ = [
    "STARVATION_MS",
    "ending_before",
    "excluding_reserved_nodes",
    "reserve",
    "reserved_free_gpu",
    "reserved_turn",
]

STARVATION_MS: Final[Hook[int]] = Hook("starvation time")
"""After how many ms of waiting a workload gets a reservation; none without an option."""


def reserve(state: State, pool: PoolState, now: int) -> None:
    """Renews, creates or ends the pool's reservation at the start of a cycle."""
    before = pool.reservation
    after = _renewed(state, pool, now)
    if after != before:
        state.undo_log.push(pool.reserve, before)
        pool.reserve(after)


def _renewed(state: State, pool: PoolState, now: int) -> tuple[str, tuple[str, ...]] | None:
    starvation_ms = STARVATION_MS.first(pool.config)
    if starvation_ms is None:
        return None
    if pool.reservation is not None:
        id_, nodes = pool.reservation
        if (
            id_ in state.waiting
            and pool.name in state.waiting[id_].pools
            and all(n in pool.bucket_of for n in nodes)
        ):
            return pool.reservation
    starving = []
    for eq_class in state.eq_classes.values():
        if eq_class.is_room:
            continue
        first = state.works[eq_class.members[0][1]]
        oldest = first.created, first.id
        has_waited = now - first.created >= starvation_ms
        if eq_class.ready and pool.name in eq_class.pools and has_waited:
            starving.append((oldest, eq_class))
    for (_, id_), eq_class in sorted(starving, key=lambda entry: entry[0]):
        nodes = _nodes_for(state, pool, eq_class)
        if nodes and not _are_promised(state, pool, nodes, eq_class.project):
            return id_, nodes
    return None


def _are_promised(state: State, pool: PoolState, nodes: tuple[str, ...], project: str) -> bool:
    """Whether the last cycle promised a place there, or made room in this project's quota: those
    who evicted others for it, or were moved to it, come first.
    """
    return any(
        member.nominated in nodes
        or (member.nominated in pool.nodes and member.work.project == project)
        for member in state.nominees
    )


def _nodes_for(state: State, pool: PoolState, eq_class: EquivalenceClass) -> tuple[str, ...]:
    """Nodes that could hold the pods if no other workload used them; none if a limit or quota is
    the obstacle.
    """
    members = state.works[eq_class.members[0][1]].members_to_place()
    if any(m.need.is_fraction or m.need.mig or not m.need.gpu for m in members):
        return ()
    request = total_request(members, pool.smallest)
    if refusal(pool.queue(eq_class.project), request, eq_class.sample):
        return ()
    left = {n.name: n.node.gpus for n in pool.ready_nodes()}
    ranked = sorted(pool.ready_nodes(), key=lambda n: (-n.room, n.name))
    chosen: dict[str, None] = {}
    for member in sorted(members, key=lambda m: -m.need.whole):
        fitting = (n for n in ranked if left[n.name] >= member.need.whole and n.admits(member.need))
        node = next(fitting, None)
        if node is None:
            return ()
        left[node.name] -= member.need.whole
        chosen[node.name] = None
    return tuple(chosen)


def reserved_turn(state: State, pool: PoolState) -> NextWorkload | None:
    """The workload with the reservation, which is tried before all others."""
    if pool.reservation is None or pool.reservation[0] not in state.waiting:
        return None
    work: Work = state.works[pool.reservation[0]]
    return NextWorkload(
        work,
        pool.queue(work.project),
        total_request(work.members_to_place(), pool.smallest),
        state.waiting[work.id],
        -1,
    )


def ending_before(
    state: State, pool: PoolState, eq_classes: Iterable[EquivalenceClass]
) -> list[EquivalenceClass]:
    """Workloads that end before the reserved nodes are free, so that they may use them meanwhile.
    None, unless the end of everything that runs there is known (`max_running`).
    """
    if pool.reservation is None:
        return []
    free_at = _free_at(state, pool, pool.reservation[1])
    if free_at is None:
        return []
    longest = free_at - state.people.now
    return [
        eq_class
        for eq_class in eq_classes
        if eq_class.sample.max_running is not None
        and eq_class.sample.max_running <= longest
        and pool.reservation[0] != eq_class.members[0][1]
    ]


def _free_at(state: State, pool: PoolState, nodes: tuple[str, ...]) -> int | None:
    """When (ms) everything that runs on these nodes has reached its limit; None: not known."""
    latest = state.people.now
    for name in nodes:
        for member in state.members_on(pool.nodes[name]) if name in pool.nodes else ():
            work = member.work
            if member.status == "releasing":
                continue
            if work.max_running is None or work.started is None:
                return None
            latest = max(latest, work.started + work.max_running)
    return latest


@contextmanager
def excluding_reserved_nodes(pool: PoolState) -> Iterator[None]:
    """Hides the reserved nodes while other workloads are tried."""
    if pool.reservation is None:
        yield
        return
    pool.exclude(pool.reservation[1])
    try:
        yield
    finally:
        pool.exclude(())


def reserved_free_gpu(pool: PoolState) -> int:
    """Milli-GPU that are free on the reserved nodes."""
    if pool.reservation is None:
        return 0
    return sum(pool.nodes[n].idle * GPU for n in pool.reservation[1] if n in pool.nodes)
