"""The ladder: rungs in order, and four promises that hold in any situation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.policy.caps import caps
from node_agent.policy.reclaim_ladder import decide
from node_agent.policy.reclaim_steps import (
    AdmitStep,
    CancelNoticeStep,
    DropCachesStep,
    KillStep,
    NoticeStep,
    ReleaseStep,
    SuspendStep,
    WaitStep,
)
from node_agent.policy.snapshot import NodeSnapshot, Tenant
from tests.example_counts import examples

TOTALS = {0: 80}
B = Tenant("b", 40, 80, (0,), wants_since=5)
IDLE = Tenant("a", 40, 80, (0,), {0: 70}, notice_ms=1000)
BUSY = replace(IDLE, running=True)

CASES = {
    "room enough": ([replace(IDLE, held={0: 40})], [AdmitStep("b")]),
    "an idle borrower is suspended": ([IDLE], [SuspendStep("a", "b"), WaitStep("b", ("a",), None)]),
    "it is asked for its caches first": (
        [replace(IDLE, has_caches=True)],
        [DropCachesStep("a", 350), WaitStep("b", ("a",), None)],
    ),
    "and has its time for that": (
        [replace(IDLE, has_caches=True, caches=150)],
        [WaitStep("b", ("a",), None)],
    ),
    "a borrower on its way out is waited for": (
        [replace(IDLE, transit="out")],
        [WaitStep("b", ("a",), None)],
    ),
    "a busy borrower has a notice": (
        [BUSY],
        [NoticeStep("a", 1100, 30, "b"), WaitStep("b", ("a",), 1100)],
    ),
    "whose deadline is waited for": ([replace(BUSY, notice=500)], [WaitStep("b", ("a",), 500)]),
    "and then it is suspended": (
        [replace(BUSY, notice=100)],
        [SuspendStep("a", "b"), WaitStep("b", ("a",), 100)],
    ),
    "a pinned one too": (
        [replace(IDLE, pinned=True)],
        [NoticeStep("a", 1100, 30, "b"), WaitStep("b", ("a",), 1100)],
    ),
    "one that cannot be saved has a notice although it is idle": (
        [replace(IDLE, suspendable=False)],
        [NoticeStep("a", 1100, 30, "b"), WaitStep("b", ("a",), 1100)],
    ),
    "and is killed last": (
        [replace(IDLE, suspendable=False, notice=90)],
        [KillStep("a", "b"), WaitStep("b", ("a",), 90)],
    ),
    "who gave it back in time hears that it is over": (
        [replace(BUSY, held={0: 40}, notice=500)],
        [AdmitStep("b"), CancelNoticeStep("a")],
    ),
    "idle before busy": (
        [replace(BUSY, held={0: 40}, guarantee=20), Tenant("i", 20, 80, (0,), {0: 40})],
        [SuspendStep("i", "b"), WaitStep("b", ("i",), None)],
    ),
    "the smallest that is enough": (
        [
            Tenant("x", 10, 80, (0,), {0: 40}),
            Tenant("y", 10, 80, (0,), {0: 20}),
            Tenant("z", 10, 80, (0,), {0: 20}, idle_since=-9),
        ],
        [SuspendStep("x", "b"), WaitStep("b", ("x",), None)],
    ),
    "the driver lags: wait, take nothing": (
        [replace(IDLE, held={0: 40})],
        [WaitStep("b", ("",), None)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rungs(name):
    others, expected = CASES[name]
    lagging = {0: 10} if "lags" in name else {}
    assert list(decide(NodeSnapshot(TOTALS, (*others, B), lagging), 100).steps) == expected


def test_a_kernel_that_runs_inside_its_share_is_never_displaced_by_what_others_borrowed_before():
    """Its image is 70 of 80 and the neighbour runs with 40 guaranteed: it waits, and nobody is
    touched.
    """
    suspended = Tenant("s", 40, 80, (0,), image=(70,), suspended=True, wants_since=1)
    neighbour = Tenant("n", 40, 80, (0,), {0: 20}, running=True)
    assert list(decide(NodeSnapshot(TOTALS, (suspended, neighbour)), 0).steps) == [
        WaitStep("s", ("n",), None)
    ]
    idle = replace(neighbour, running=False)
    assert SuspendStep("n", "s") in decide(NodeSnapshot(TOTALS, (suspended, idle)), 0).steps


def test_eviction_walks_the_same_ladder_and_then_lets_go():
    evicted = replace(BUSY, evict=True, held={0: 30})
    assert decide(NodeSnapshot(TOTALS, (evicted,)), 100).steps == (NoticeStep("a", 1100, 30, ""),)
    assert decide(NodeSnapshot(TOTALS, (replace(evicted, notice=100),)), 100).steps == (
        SuspendStep("a", ""),
    )
    assert decide(NodeSnapshot(TOTALS, (replace(evicted, running=False),)), 100).steps == (
        SuspendStep("a", ""),
    )
    assert decide(
        NodeSnapshot(TOTALS, (replace(evicted, held={}, image=(30,), suspended=True, notice=100),)),
        100,
    ).steps == (ReleaseStep("a"),)


def test_what_its_owner_gave_back_is_taken_without_notice():
    given_back = replace(BUSY, assigned_gpus=(), gives_up=True)
    assert decide(NodeSnapshot(TOTALS, (given_back,)), 100).steps == (SuspendStep("a", "a"),)


def test_a_mover_leaves_its_old_place_first():
    mover = replace(IDLE, assigned_gpus=(1,), wants_since=3)
    totals = {0: 80, 1: 80}
    assert decide(NodeSnapshot(totals, (mover,)), 0).steps == (
        SuspendStep("a", "a"),
        WaitStep("a", (), None),
    )


GPUS = {0: 80, 1: 80}


@st.composite
def situations(draw):
    """Any moment: guarantees fit on their GPUs, memory fits physically; everything else as it may
    come.
    """
    room = dict(GPUS)
    physical = dict(GPUS)
    found = []
    for number in range(draw(st.integers(1, 6))):
        guarantee = draw(st.sampled_from([0, 10, 20, 40, 80]))
        homes = [gpu for gpu in GPUS if room[gpu] >= guarantee]
        if not homes:
            continue
        assigned_gpus = draw(st.sampled_from(homes))
        room[assigned_gpus] -= guarantee
        place = draw(
            st.sampled_from([assigned_gpus, assigned_gpus, assigned_gpus, 1 - assigned_gpus])
        )
        held = draw(st.integers(0, physical[place]))
        suspended = draw(st.booleans()) and held == 0
        physical[place] -= held
        evict = draw(st.sampled_from([False, False, False, True]))
        found.append(
            Tenant(
                f"k{number}",
                guarantee,
                80,
                (assigned_gpus,),
                {place: held} if held else {},
                (draw(st.integers(1, 80)),) if suspended else (),
                draw(st.booleans()),
                suspended,
                draw(st.booleans()),
                draw(st.booleans()),
                draw(st.sampled_from([None, None, None, "out"])) if held else None,
                draw(st.one_of(st.none(), st.integers(0, 50))),
                evict,
                False,
                draw(st.one_of(st.none(), st.integers(0, 200))),
                draw(st.booleans()),
                draw(st.one_of(st.none(), st.integers(0, 200))),
                1000,
                draw(st.integers(0, 100)),
            )
        )
    return NodeSnapshot(GPUS, tuple(found))


@given(situations())
@settings(max_examples=examples(600), deadline=None)
def test_promises(snapshot):
    now = 100
    decision = decide(snapshot, now)
    by_id = {one.id: one for one in snapshot.tenants}
    touched = [
        step
        for step in decision.steps
        if isinstance(step, (SuspendStep, KillStep, NoticeStep, DropCachesStep))
    ]
    for step in touched:
        victim, asker = by_id[step.id], getattr(step, "asker", None)
        over = any(victim.borrowed(gpu) for gpu in victim.held)
        if isinstance(step, KillStep):
            assert victim.notice is not None, "never lost without a notice"
            assert victim.notice <= now, "never before the deadline"
            assert asker != victim.id, "never the one who asks"
            assert over or victim.evict, "never killed inside its share for another kernel"
        if isinstance(step, (SuspendStep, NoticeStep)) and asker not in ("", victim.id):
            assert over or not victim.running, "who runs inside its share is left alone"
            if victim.running and isinstance(step, SuspendStep):
                assert victim.notice is not None, "who runs is warned first"
                assert victim.notice <= now, "and has its time"
    ids = [
        step.id
        for step in decision.steps
        if isinstance(step, (SuspendStep, KillStep, NoticeStep, DropCachesStep))
    ]
    assert len(ids) == len(set(ids)), "one rung for one victim at a time"


@given(situations())
@settings(max_examples=examples(600), deadline=None)
def test_one_byte_is_promised_once(snapshot):
    """All who are admitted at one moment fit beside everyone who holds memory, and beside each
    other.
    """
    admitted = {step.id for step in decide(snapshot, 100).steps if isinstance(step, AdmitStep)}
    for gpu, total in GPUS.items():
        taken = 0
        for one in snapshot.tenants:
            taken += (
                max(one.need(gpu), one.holds(gpu))
                if one.id in admitted and gpu in one.assigned_gpus and not one.is_away()
                else one.holds(gpu)
            )
        if any(
            one.id in admitted and gpu in one.assigned_gpus and not one.is_away()
            for one in snapshot.tenants
        ):
            assert taken <= total


@given(situations())
@settings(max_examples=examples(300), deadline=None)
def test_the_decision_does_not_depend_on_the_order_of_the_tenants(snapshot):
    def shown(made):
        return sorted(map(repr, made.steps)), made.deadline

    assert shown(decide(snapshot, 100)) == shown(
        decide(replace(snapshot, tenants=tuple(reversed(snapshot.tenants))), 100)
    )


@given(situations())
@settings(max_examples=examples(300), deadline=None)
def test_caps_never_promise_what_runs_elsewhere(snapshot):
    """What one kernel may add leaves untouched what the others hold and what is guaranteed to those
    who run.
    """
    allowed = caps(snapshot)
    for one in snapshot.tenants:
        for gpu, cap in zip(one.assigned_gpus, allowed[one.id], strict=True):
            others = sum(other.claim(gpu) for other in snapshot.tenants if other.id != one.id)
            assert 0 <= cap <= one.limit
            runs = one.running and not one.suspended
            assert (
                cap + others <= GPUS[gpu]
                or cap == 0
                or (runs and cap == min(one.limit, one.share(gpu)))
            )


@given(situations())
@settings(max_examples=examples(300), deadline=None)
def test_caps_keep_what_is_promised_for_those_who_wait_and_what_is_guaranteed_to_those_who_run(
    snapshot,
):
    waiting = [one.id for one in snapshot.tenants if one.wants_since is not None]
    plain, kept = caps(snapshot), caps(snapshot, (), waiting)
    for one in snapshot.tenants:
        for gpu, before, after in zip(one.assigned_gpus, plain[one.id], kept[one.id], strict=True):
            assert after <= before
            if one.running and not one.suspended:
                assert after >= min(one.limit, one.share(gpu))
