"""Bookings in cycles: what is booked is free when it begins, and nobody else gets it meanwhile."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.core.bookings.calendar import Booking, Calendar, Overbooked
from jupyter_gpushare.core.bookings.packing import BookedShare
from jupyter_gpushare.core.bookings.recurrence import Window
from jupyter_gpushare.core.cluster.cluster import Cluster
from jupyter_gpushare.core.cycle.cycle import cycle, what_if
from jupyter_gpushare.core.model.booked_window import BookedWindow
from jupyter_gpushare.core.model.decisions import Decisions
from jupyter_gpushare.core.model.events import (
    BookingsChanged,
    NodeLeft,
    PodReleased,
    WorkloadEnded,
    WorkloadSubmitted,
)
from jupyter_gpushare.core.model.model import Node
from jupyter_gpushare.core.model.reason import ReasonCode
from tests.core.strategies import picture, policy_of, workload, world
from tests.example_counts import examples

MINUTE = 60_000
START, END, LEAD = 100 * MINUTE, 160 * MINUTE, MINUTE


def booked(gpu: float = 2, **more) -> BookedWindow:
    """GPUs for project `course` from START to END."""
    fields = {"booking": "b1", "project": "course", "pool": "default", "start": START, "end": END}
    return BookedWindow(**{**fields, "gpu": int(gpu * 1000), "lead": LEAD, **more})


def cluster_of(quotas: dict[str, float], *windows: BookedWindow, gpus: int = 2) -> Cluster:
    cluster = world(policy_of(quotas), [Node("n", gpus=gpus, gpu_memory=80_000)])
    cluster.apply(BookingsChanged(windows))
    return cluster


def submit(cluster: Cluster, *workloads) -> None:
    for one in workloads:
        cluster.apply(WorkloadSubmitted(one))


def released(cluster: Cluster, decisions: Decisions) -> list[str]:
    for evict in decisions.evictions:
        cluster.apply(PodReleased(evict.workload, evict.pod))
    return [evict.workload for evict in decisions.evictions]


def running(cluster: Cluster) -> set[str]:
    return {
        id_
        for id_, work in cluster.workloads.items()
        if any(m.status in ("running", "bound") for m in work.members.values())
    }


def kept(cluster: Cluster) -> int:
    return sum(room.gpu for room in cluster.booked_rooms)


def borrowed() -> Cluster:
    """Another project has borrowed both GPUs, which are booked."""
    cluster = cluster_of({"course": 0, "vision": 0}, booked())
    submit(cluster, workload("a", "vision"), workload("b", "vision"))
    assert len(cycle(cluster, 0).binds) == 2
    return cluster


def test_borrowers_keep_the_gpus_until_the_lead_begins() -> None:
    cluster = borrowed()
    assert cycle(cluster, START - LEAD - 1).evictions == ()
    decisions = cycle(cluster, START - LEAD)
    assert {evict.action for evict in decisions.evictions} == {"reclaim"}
    assert decisions.evictions[0].message == (
        'The GPUs are booked for project "course" from 1970-01-01 01:40 UTC on.'
    )
    released(cluster, decisions)
    later = cycle(cluster, START)
    assert later.binds == ()
    assert later.reasons["a"].code is ReasonCode.BOOKED_FOR
    assert later.reasons["a"].message == (
        '2 GPUs in pool "default" are booked for project "course" until 1970-01-01 02:40 UTC.'
    )
    assert later.reasons["a"].numbers["booked"] == 2
    assert kept(cluster) == 2000


def test_a_member_gets_a_share_at_once_and_the_rest_stays_booked() -> None:
    cluster = borrowed()
    released(cluster, cycle(cluster, START - LEAD))
    cycle(cluster, START)
    for i, left in enumerate((1750, 1500, 1250)):
        submit(cluster, workload(f"s{i}", "course", 0.25, created=START + i))
        decisions = cycle(cluster, START + i)
        assert [bind.workload for bind in decisions.binds] == [f"s{i}"]
        assert decisions.evictions == ()
        assert kept(cluster) == left
    cluster.apply(WorkloadEnded("s0"))
    assert cycle(cluster, START + 10).binds == ()
    assert kept(cluster) == 1500


def test_after_the_end_others_have_the_gpus_again() -> None:
    cluster = borrowed()
    released(cluster, cycle(cluster, START - LEAD))
    cycle(cluster, START)
    submit(cluster, workload("s", "course", 1))
    cycle(cluster, START + 1)
    decisions = cycle(cluster, END)
    assert len(decisions.binds) == 1
    assert kept(cluster) == 0
    assert cluster._state.rooms == {}
    assert "s" in running(cluster)


def test_bookings_that_follow_each_other_change_hands_on_the_second() -> None:
    """Those of the first one get their notice in time, also where they fill all GPUs."""
    first, second = booked(), booked(booking="b2", project="seminar", start=END, end=END + MINUTE)
    cluster = cluster_of({"course": 0, "seminar": 0}, first, second)
    clock = Clock(cluster, LEAD)
    clock.cycle(START)
    submit(cluster, workload("s", "course", 1), workload("t", "course", 1))
    clock.cycle(START)
    assert clock.cycle(END - LEAD - 1).evictions == ()
    assert {evict.workload for evict in clock.cycle(END - LEAD).evictions} == {"s", "t"}
    for id_ in "xy":
        submit(cluster, workload(id_, "seminar", 1, created=END))
    for _ in range(2):
        clock.cycle(END)
    assert running(cluster) == {"x", "y"}


def test_a_booking_that_is_given_back_frees_its_gpus() -> None:
    cluster = borrowed()
    released(cluster, cycle(cluster, START - LEAD))
    cycle(cluster, START)
    cluster.apply(BookingsChanged(()))
    assert {bind.workload for bind in cycle(cluster, START + 1).binds} == {"a", "b"}


def test_a_what_if_knows_the_booking() -> None:
    cluster = borrowed()
    released(cluster, cycle(cluster, START - LEAD))
    cycle(cluster, START)
    before = picture(cluster)
    assert what_if(cluster, workload("x", "course", 0.5), START + 1).starts_now
    asked = what_if(cluster, workload("x", "vision", 0.5), START + 1)
    assert not asked.starts_now
    assert asked.reason is not None
    assert asked.reason.code is ReasonCode.BOOKED_FOR
    assert picture(cluster) == before


def test_only_the_member_who_booked_may_use_it() -> None:
    window = booked(1, project="vision", user="ada", own_quota=True)
    cluster = cluster_of({"vision": 2}, window)
    submit(cluster, workload("g", "vision", 2, user="grace"))
    cycle(cluster, 0)
    decisions = cycle(cluster, START - LEAD)
    assert released(cluster, decisions) == ["g"]
    cycle(cluster, START)
    submit(cluster, workload("h", "vision", 2, user="grace"), workload("i", "vision", user="grace"))
    cycle(cluster, START + 1)
    assert running(cluster) == {"i"}
    submit(cluster, workload("x", "vision", 1, user="ada"))
    assert [bind.workload for bind in cycle(cluster, START + 2).binds] == ["x"]
    assert kept(cluster) == 0


def test_what_the_person_holds_already_is_hers() -> None:
    """Nothing is taken from her to keep a place free for her."""
    window = booked(1, project="vision", user="ada", own_quota=True)
    cluster = cluster_of({"vision": 2}, window)
    submit(cluster, workload("x", "vision", user="ada"), workload("g", "vision", user="grace"))
    cycle(cluster, 0)
    assert cycle(cluster, START).evictions == ()
    assert kept(cluster) == 0


@pytest.mark.parametrize(("max_running", "starts"), [(120, False), (119, True), (None, False)])
def test_non_preemptible_work_ends_before_the_booking(max_running: int | None, starts: bool):
    """GPUs booked for 15:00 with a lead of 5 s: at 13:00, two hours are too long."""
    window = booked(2, project="vision", own_quota=True, user="ada", start=180 * MINUTE)
    cluster = cluster_of({"vision": 2}, window._replace(end=240 * MINUTE, lead=5000))
    limit = None if max_running is None else max_running * MINUTE
    asked = workload("x", "vision", 1, preemptible=False, priority=100, max_running=limit)
    submit(cluster, asked)
    decisions = cycle(cluster, 60 * MINUTE)
    assert bool(decisions.binds) is starts
    if not starts:
        reason = decisions.reasons["x"]
        assert reason.code is ReasonCode.BOOKED_FOR
        assert "is booked before it ends" in reason.message


def test_non_preemptible_work_within_a_booking_ends_with_it() -> None:
    cluster = cluster_of({"course": 0}, booked())
    cycle(cluster, START)
    for id_, minutes in (("long", 61), ("short", 60)):
        more = {"preemptible": False, "priority": 100, "max_running": minutes * MINUTE}
        submit(cluster, workload(id_, "course", **more))
    cycle(cluster, START)
    assert running(cluster) == {"short"}


def test_another_node_takes_over_when_one_fails() -> None:
    nodes = [Node(name, gpus=1, gpu_memory=80_000) for name in ("m", "n")]
    cluster = world(policy_of({"course": 0, "vision": 0}), nodes)
    cluster.apply(BookingsChanged((booked(1),)))
    submit(cluster, workload("a", "vision"))
    cycle(cluster, 0)
    cycle(cluster, START)
    (room,) = cluster.booked_rooms
    cluster.apply(NodeLeft(room.spot.node))
    assert released(cluster, cycle(cluster, START + 1)) == ["a"]
    cycle(cluster, START + 2)
    assert kept(cluster) == 1000


def test_whole_gpus_of_a_booking_are_kept_on_one_node() -> None:
    nodes = [Node(name, gpus=2, gpu_memory=80_000) for name in ("m", "n")]
    cluster = world(policy_of({"course": 0, "vision": 0}), nodes)
    cluster.apply(BookingsChanged((booked(2),)))
    submit(cluster, *(workload(name, "vision") for name in "abcd"))
    cycle(cluster, 0)
    cluster.apply(WorkloadEnded("a"))
    cluster.apply(WorkloadEnded("d"))
    released(cluster, cycle(cluster, START - LEAD))
    cycle(cluster, START)
    (room,) = cluster.booked_rooms
    assert len(room.spot.devices) == 2


def test_a_lead_that_becomes_shorter_closes_nothing() -> None:
    cluster = cluster_of({"course": 0}, booked(1))
    cycle(cluster, START - LEAD)
    assert kept(cluster) == 1000
    cluster.apply(BookingsChanged((booked(1, lead=1000),)))
    cycle(cluster, START - LEAD + 1)
    assert kept(cluster) == 1000


def test_undoing_a_cycle_restores_everything() -> None:
    cluster = borrowed()
    before = picture(cluster)
    mark = cluster.checkpoint()
    released(cluster, cycle(cluster, START - LEAD))
    cycle(cluster, START)
    submit(cluster, workload("s", "course", 0.25))
    cycle(cluster, START + 1)
    cycle(cluster, END)
    cluster.rollback(mark)
    assert picture(cluster) == before
    assert cluster._state.bookings.open == ()


def bookings_that_fit(rng: random.Random, gpus: list[int], count: int) -> list[BookedWindow]:
    calendar, found = Calendar(gpus), []
    for i in range(count):
        start = rng.randrange(10, 400) * MINUTE
        length = rng.choice([15, 30, 60]) * MINUTE
        gpu = rng.choice([250, 500, 700, 1000, 2000])
        project = f"p{i}"
        window = Window(start - LEAD, start + length)
        try:
            calendar.add([Booking(f"b{i}", window, BookedShare(gpu))])
        except Overbooked:
            continue
        found.append(BookedWindow(f"b{i}", project, "default", gpu, start, start + length, LEAD))
    return found


class Clock:
    """A cluster in which evicted pods leave when their notice is over."""

    def __init__(self, cluster: Cluster, notice: int) -> None:
        self.cluster, self.notice = cluster, notice
        self.leaving: list[tuple[int, str, str]] = []

    def cycle(self, now: int) -> Decisions:
        due = [entry for entry in self.leaving if entry[0] <= now]
        for entry in due:
            self.leaving.remove(entry)
            self.cluster.apply(PodReleased(*entry[1:]))
        decisions = cycle(self.cluster, now)
        for evict in decisions.evictions:
            self.leaving.append((now + self.notice, evict.workload, evict.pod))
        return decisions


def pool_and_bookings(seed: int, count: int) -> tuple[Cluster, list[BookedWindow]]:
    """Borrowers want three times what there is, and bookings that fit."""
    rng = random.Random(seed)
    gpus = [rng.choice([1, 2, 4]) for _ in range(rng.choice([1, 2, 3]))]
    windows = bookings_that_fit(rng, gpus, count)
    quotas = {"others": 0} | {window.project: 0 for window in windows}
    nodes = [Node(f"n{i}", gpus=n, gpu_memory=80_000) for i, n in enumerate(gpus)]
    cluster = world(policy_of(quotas), nodes)
    cluster.apply(BookingsChanged(tuple(windows)))
    for i in range(3 * sum(gpus)):
        submit(cluster, workload(f"w{i}", "others", rng.choice([0.25, 0.5, 1]), created=i))
    return cluster, windows


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 40))
def test_what_is_booked_is_there_on_the_second(seed: int, count: int) -> None:
    """Borrowers fill the pool all the time and leave when their notice is over. When a booking
    begins, its members start at once. The exception: GPUs are being freed for another booking that
    begins within the lead, which may mean to keep them elsewhere.
    """
    cluster, windows = pool_and_bookings(seed, count)
    clock = Clock(cluster, LEAD // 2)
    edges = {at for w in windows for at in (w.opens, w.end)}
    for now in sorted(
        {0, *edges, *(at + clock.notice for at in edges), *(w.start for w in windows)}
    ):
        for _ in range(3):
            clock.cycle(now)
        if not any(w.opens <= now < w.start for w in windows):
            for window in (w for w in windows if w.start == now):
                use(clock, window, now)


def use(clock: Clock, window: BookedWindow, now: int) -> None:
    """A member asks for what is booked, in one piece or in parts, and gets it in this cycle."""
    parts = [window.gpu] if window.gpu < 1000 else [500] * (window.gpu // 500)
    ids = [f"{window.booking}-{i}" for i in range(len(parts))]
    for id_, gpu in zip(ids, parts, strict=True):
        asked = workload(id_, window.project, gpu / 1000, created=now)
        clock.cluster.apply(WorkloadSubmitted(asked))
    assert {bind.workload for bind in clock.cycle(now).binds} >= set(ids), window
    for id_ in ids:
        clock.cluster.apply(WorkloadEnded(id_))
