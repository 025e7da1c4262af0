"""Re-planning shares on a node: it finds room whenever there is a packing, and moves the least."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core.allocation.rearrangement import MovableShare, Rearrangement, rearrange
from jupyter_gpushare.core.cycle.cycle import cycle, what_if
from jupyter_gpushare.core.model.amounts import GPU
from jupyter_gpushare.core.model.events import PodPlaced, WorkloadSubmitted
from jupyter_gpushare.core.model.model import Node, Pod, Spot, Workload
from tests.core.strategies import picture, policy_of, workload, world
from tests.core.test_laws import check_nodes
from tests.example_counts import examples

MIB = 1000
EXAMPLES = settings(
    max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck)
)

CASES = {
    "a half joins the other": (
        {0: 500, 1: 500},
        [MovableShare(500, (0,)), MovableShare(500, (1,))],
        (1000, 1),
        Rearrangement((0,), {0: (1,)}),
    ),
    "the smaller one moves": (
        {0: 500, 1: 700},
        [MovableShare(300, (1,)), MovableShare(500, (0,))],
        (1000, 1),
        Rearrangement((1,), {0: (0,)}),
    ),
    "one large move before two small ones": (
        {0: 600, 1: 500, 2: 500},
        [MovableShare(200, (0,)), MovableShare(200, (0,)), MovableShare(500, (1,))],
        (1000, 1),
        Rearrangement((1,), {2: (0,)}),
    ),
    "a share on two devices keeps distinct ones": (
        {0: 500, 1: 500, 2: 500},
        [MovableShare(500, (0, 1)), MovableShare(500, (2,))],
        (1000, 1),
        Rearrangement((0,), {0: (1, 2)}),
    ),
    "too little in total": (
        {0: 400, 1: 400},
        [MovableShare(600, (0,)), MovableShare(600, (1,))],
        (1000, 1),
        None,
    ),
    "enough in total, but no packing": (
        {0: 400, 1: 400, 2: 400},
        [MovableShare(600, (0,)), MovableShare(600, (1,)), MovableShare(600, (2,))],
        (1000, 1),
        None,
    ),
}


@pytest.mark.parametrize(("free", "shares", "asked", "expected"), CASES.values(), ids=CASES)
def test_rearrangement(
    free: dict[int, int],
    shares: list[MovableShare],
    asked: tuple[int, int],
    expected: Rearrangement | None,
) -> None:
    assert rearrange(free, shares, *asked) == expected


def packs(items: list[tuple[int, int]], room: list[int]) -> bool:
    """Whether all items (MiB, number of distinct devices) fit, by trying everything."""
    if not items:
        return True
    (size, count), *rest = items
    for devices in combinations(range(len(room)), count):
        if all(room[device] >= size for device in devices):
            left = [mib - size * (d in devices) for d, mib in enumerate(room)]
            if packs(rest, left):
                return True
    return False


@st.composite
def requests(draw: st.DrawFn, name: str, gpus: int) -> Pod:
    kind = draw(st.sampled_from(["whole", "share", "share", "memory"]))
    devices = draw(st.sampled_from([1, 1, 1, min(2, gpus)]))
    if kind == "whole":
        return Pod(name, gpu=GPU * draw(st.integers(1, gpus)))
    if kind == "share":
        size = draw(st.sampled_from([125, 250, 333, 500, 600, 750]))
        return Pod(name, gpu=size, gpu_devices=devices)
    return Pod(name, gpu_memory=draw(st.sampled_from([100, 400, 700])), gpu_devices=devices)


def size_of(pod: Pod) -> tuple[int, int]:
    """MiB per device, and the number of devices."""
    if pod.gpu_memory is not None:
        return pod.gpu_memory, pod.gpu_devices
    if pod.gpu >= GPU:
        return MIB, pod.gpu // GPU
    return pod.gpu, pod.gpu_devices


def test_a_share_on_a_full_gpu_makes_room_for_one_on_two_gpus() -> None:
    """No GPU is partly free: one is full, the other idle."""
    cluster = world(policy_of({"A": 8}), [Node("n0", gpus=2, gpu_memory=MIB)])
    for name in ("s0", "s1"):
        cluster.apply(WorkloadSubmitted(Workload(name, "A", (Pod(name, gpu=500),), created=0)))
        cluster.apply(PodPlaced(name, name, Spot("n0", (0,), "default"), 0))
    asked = Workload("w", "A", (Pod("w", gpu=125, gpu_devices=2),), created=9)
    cluster.apply(WorkloadSubmitted(asked))
    assert not cycle(cluster, 0).evictions
    assert cluster.spot("w", "w") == Spot("n0", (0, 1), "default")


@EXAMPLES
@given(st.data())
def test_a_request_that_fits_after_replanning_is_placed(data: st.DataObject) -> None:
    """Exactly if there is a packing of all shares, within three cycles and without evictions."""
    gpus = data.draw(st.integers(1, 4))
    cluster = world(policy_of({"A": 8}), [Node("n0", gpus=gpus, gpu_memory=MIB)])
    free, items = [MIB] * gpus, []
    for i in range(data.draw(st.integers(0, 7))):
        pod = data.draw(requests(f"s{i}", gpus))
        size, count = size_of(pod)
        fitting = [d for d in range(gpus) if free[d] >= size]
        if len(fitting) < count:
            continue
        devices = tuple(sorted(data.draw(st.permutations(fitting))[:count]))
        for device in devices:
            free[device] -= size
        items.append((size, count))
        cluster.apply(WorkloadSubmitted(Workload(pod.name, "A", (pod,), created=i)))
        cluster.apply(PodPlaced(pod.name, pod.name, Spot("n0", devices, "default"), 0))
    asked = data.draw(requests("w", gpus))
    before = picture(cluster)
    what_if(cluster, Workload("w", "A", (asked,), created=9), 0)
    assert picture(cluster) == before

    cluster.apply(WorkloadSubmitted(Workload("w", "A", (asked,), created=9)))
    for now in range(0, 3000, 1000):
        decisions = cycle(cluster, now)
        check_nodes(cluster)
        assert not decisions.evictions

    largest_first = sorted([*items, size_of(asked)], reverse=True)
    assert (cluster.spot("w", "w") is not None) == packs(largest_first, [MIB] * gpus)


def test_a_changed_plan_is_a_decision() -> None:
    cluster = world(policy_of({"A": 2}), [Node("n0", gpus=2, gpu_memory=MIB)])
    for i, id_ in enumerate("ab"):
        cluster.apply(WorkloadSubmitted(workload(id_, "A", 0.5, created=i)))
        cluster.apply(PodPlaced(id_, f"{id_}-0", Spot("n0", (i,), "default"), 0))
    cluster.apply(WorkloadSubmitted(workload("c", "A", created=2)))
    decisions = cycle(cluster, 0)
    assert [(r.workload, r.spot.devices) for r in decisions.replans] == [("b", (0,))]
    assert [(b.workload, b.spot.devices) for b in decisions.binds] == [("c", (1,))]
    assert cycle(cluster, 1000).replans == ()
