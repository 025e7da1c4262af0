"""Sums that grow with the victims equal those computed at once."""

from __future__ import annotations

import random

import pytest

from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cluster.departures import Departures
from jupyter_gpushare.core.eviction.evicted_units import EvictedUnits
from jupyter_gpushare.core.eviction.reclaim_charges import ReclaimCharges, chunks
from jupyter_gpushare.core.eviction.victim_candidates import EvictionUnit
from jupyter_gpushare.core.model.amounts import NOTHING
from jupyter_gpushare.core.model.events import PodPlaced, WorkloadSubmitted
from jupyter_gpushare.core.model.model import Node, Spot
from tests.core.strategies import policy_of, workload, world

SEEDS = range(40)


def busy_cluster(choose: random.Random) -> Cluster:
    """Two nodes; elastic and single workloads of two projects, with shares and whole GPUs."""
    cluster = world(policy_of({"a": 0, "b": 0}), [Node(f"n{i}", gpus=8) for i in range(2)])
    free = {f"n{i}": list(range(8)) for i in range(2)}
    for number in range(8):
        pods, gpu = choose.choice([1, 1, 2, 3]), choose.choice([1, 0.5, 2])
        name, minimum = f"w{number}", choose.choice([None, 1])
        request = workload(name, choose.choice("ab"), gpu, pods, min_pods=minimum, cpu=100)
        cluster.apply(WorkloadSubmitted(request))
        for pod in request.pods:
            host = choose.choice(sorted(free))
            wanted = max(1, int(gpu))
            if len(free[host]) >= wanted:
                devices = tuple(free[host].pop() for _ in range(wanted))
                cluster.apply(PodPlaced(name, pod.name, Spot(host, devices, "default"), 0))
    return cluster


def evicted_units(cluster: Cluster, choose: random.Random) -> list[EvictionUnit]:
    """One unit per running pod, all evicted, in a random victim order."""
    state = cluster._state
    units = []
    for work in state.works.values():
        for member in work.members.values():
            if member.status == "running":
                units.append(EvictionUnit(work, [member]))
                state.put(member, "releasing", member.node, member.devices)
    choose.shuffle(units)
    for place, unit in enumerate(units, start=1):
        unit.place = place
    return units


def charges_of(cluster: Cluster) -> ReclaimCharges:
    pool = cluster._state.pools["default"]
    return ReclaimCharges(lambda work: pool.queue(work.project), lambda queue: queue)


@pytest.mark.parametrize("seed", SEEDS)
def test_charges_do_not_depend_on_the_order_of_additions(seed: int) -> None:
    choose = random.Random(seed)
    cluster = busy_cluster(choose)
    units = evicted_units(cluster, choose)
    at_once, piecewise = charges_of(cluster), charges_of(cluster)
    sides = at_once.add(units)
    pieces = units.copy()
    choose.shuffle(pieces)
    for unit in pieces:
        piecewise.add([unit])
        if choose.random() < 0.5:
            piecewise.undo()
            piecewise.add([unit])
    assert (piecewise.taken, piecewise.total) == (at_once.taken, at_once.total)
    for side in sides:
        assert piecewise.before_last(side) == at_once.before_last(side)


@pytest.mark.parametrize("seed", SEEDS)
def test_before_the_last_chunk_is_what_the_chunks_one_by_one_take(seed: int) -> None:
    """The definition: works by their first unit, in each the pods above the minimum, then the
    rest.
    """
    choose = random.Random(seed)
    cluster = busy_cluster(choose)
    units = evicted_units(cluster, choose)
    charges = charges_of(cluster)
    sides = charges.add(units)
    by_work: dict[str, list[EvictionUnit]] = {}
    for unit in units:
        by_work.setdefault(unit.work.id, []).append(unit)
    for side in sides:
        taken = before = NOTHING
        for of_work in by_work.values():
            if of_work[0].work.project == side.name:
                members = [(m, m.need.stated) for unit in of_work for m in unit.members]
                for chunk in chunks(members):
                    before, taken = (
                        (before, taken) if chunk == NOTHING else (taken, taken.plus(chunk))
                    )
        assert charges.before_last(side) == before
        assert charges.taken[side] == taken


def test_undo_takes_back_the_last_addition() -> None:
    choose = random.Random(1)
    cluster = busy_cluster(choose)
    first, *rest = evicted_units(cluster, choose)
    charges = charges_of(cluster)
    charges.add([first])
    before = dict(charges.taken), dict(charges.last), charges.total
    charges.add(rest)
    charges.undo()
    assert (charges.taken, charges.last, charges.total) == before


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pod_would_fit_exactly_if_it_fits_after_the_departures(seed: int) -> None:
    choose = random.Random(seed)
    cluster = busy_cluster(choose)
    state = cluster._state
    needs = [
        state.needs.of(pod)
        for gpu in (1, 2, 4, 8, 0.5, 0.3)
        for pod in workload("asked", "a", gpu, cpu=choose.choice([0, 60_000])).pods
    ]
    for node in state.nodes.values():
        departures = Departures(node)
        members = state.members_on(node)
        choose.shuffle(members)
        for member in members:
            departures.add(member.need, member.devices)
            expected = {need: departures.would_fit(need) for need in needs}
            mark = state.undo_log.mark()
            for gone in members[: members.index(member) + 1]:
                state.put(gone, "pending")
            assert {need: bool(node.fits(need)) for need in needs} == expected
            state.undo_log.undo_to(mark)


def test_evicted_units_are_in_victim_order_whenever_they_were_added() -> None:
    choose = random.Random(3)
    units = evicted_units(busy_cluster(choose), choose)
    grown = EvictedUnits(units[4:6]).grown(units[:2]).grown([])
    assert list(grown) == [*units[:2], *units[4:6]]
    assert list(grown.added) == units[:2]
    assert not EvictedUnits()
    assert EvictedUnits().grown(units)
