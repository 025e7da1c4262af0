"""Option `reserve_after`: a workload that starves keeps nodes free for itself, one per pool, until
it starts.

Without it a large gang can wait for ever behind a stream of small requests, each of which fits at
once. Everybody else is filled in on the other nodes. The nodes with most room now are kept, as they
will be empty first; they are kept until the workload starts or leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..cluster.pools import PoolState
from ..cluster.quota import refusal
from ..cluster.state import State
from ..cluster.work import EquivalenceClass, Work
from ..model.amounts import GPU
from .order import NextWorkload, asked

__all__ = ["keep_closed", "kept_free", "reserve", "reserved_turn"]


def reserve(state: State, pool: PoolState, now: int) -> None:
    """Renews, gives or ends the pool's reservation at the start of a cycle."""
    before = pool.reservation
    after = _renewed(state, pool, now)
    if after != before:
        state.journal.push(pool.reserve, before)
        pool.reserve(after)


def _renewed(state: State, pool: PoolState, now: int) -> tuple[str, tuple[str, ...]] | None:
    if pool.config.reserve_after is None:
        return None
    if pool.reservation is not None:
        id_, nodes = pool.reservation
        if (
            id_ in state.waiting
            and pool.name in state.waiting[id_].pools
            and all(n in pool.where for n in nodes)
        ):
            return pool.reservation
    starving = [
        (alike.members[0], alike)
        for alike in state.alike.values()
        if alike.ready
        and pool.name in alike.pools
        and now - alike.members[0][0] >= pool.config.reserve_after
    ]
    for (_, id_), alike in sorted(starving, key=lambda entry: entry[0]):
        nodes = _nodes_for(state, pool, alike)
        if nodes:
            return id_, nodes
    return None


def _nodes_for(state: State, pool: PoolState, alike: EquivalenceClass) -> tuple[str, ...]:
    """Nodes that could hold the asking pods if nobody else came there; none when a bound, not room,
    is in the way.
    """
    members = state.works[alike.members[0][1]].asking()
    if any(m.need.is_fraction or m.need.mig or not m.need.gpu for m in members):
        return ()
    if refusal(pool.queue(alike.project), asked(members, pool.smallest), alike.sample.preemptible):
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
    """The turn of whoever nodes are kept for: it is asked before everybody else."""
    if pool.reservation is None or pool.reservation[0] not in state.waiting:
        return None
    work: Work = state.works[pool.reservation[0]]
    return NextWorkload(
        work,
        pool.queue(work.project),
        asked(work.asking(), pool.smallest),
        state.waiting[work.id],
        -1,
    )


@contextmanager
def keep_closed(pool: PoolState) -> Iterator[None]:
    """While others are asked, the kept nodes are in no index."""
    if pool.reservation is None:
        yield
        return
    pool.close(pool.reservation[1])
    try:
        yield
    finally:
        pool.close(())


def kept_free(pool: PoolState) -> int:
    """Milli-GPU that are free on the kept nodes."""
    if pool.reservation is None:
        return 0
    return sum(pool.nodes[n].idle * GPU for n in pool.reservation[1] if n in pool.nodes)
