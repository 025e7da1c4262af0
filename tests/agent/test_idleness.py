"""The idle rule as a decision: laws for every rule and every course of time, and the cases that
people know.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpushare.messages import LeaseRules
from node_agent.policy.idleness import (
    ORDER,
    CancelWarning,
    IdleAction,
    IdleKernel,
    SendWarning,
    next_move,
)
from tests.example_counts import examples

MIN = 60_000
USUAL = LeaseRules(idle_warn_ms=20 * MIN, idle_suspend_ms=30 * MIN, idle_release_ms=120 * MIN)
NOTICE = 30_000


class Kernel:
    """Applies the moves as the agent does, and keeps what happened: (moment, move)."""

    def __init__(self, rules: LeaseRules, notice: int = NOTICE) -> None:
        self.rules, self.notice, self.idle, self.now = rules, notice, IdleKernel(since=0), 0
        self.story: list[tuple[int, object]] = []

    def wait(self, ms: int) -> None:
        self.now += ms
        while (move := next_move(self.rules, self.idle, self.now, self.notice)) is not None:
            self.story.append((self.now, move))
            match move:
                case SendWarning(step, deadline):
                    self.idle = replace(self.idle, warned=step, deadline=deadline)
                case IdleAction(step):
                    self.idle = replace(self.idle, done=step, warned="", deadline=None)
                case CancelWarning():
                    self.idle = replace(self.idle, warned="", deadline=None)

    def work(self) -> None:
        self.idle = replace(self.idle, working=True)
        self.wait(0)
        self.idle = IdleKernel(since=self.now, spared=self.idle.spared)

    def done(self) -> list[tuple[int, str]]:
        return [(at, move.step) for at, move in self.story if isinstance(move, IdleAction)]


def through(kernel: Kernel, minutes: int, *, every_s: int = 15) -> Kernel:
    for _ in range(minutes * 60 // every_s):
        kernel.wait(every_s * 1000)
    return kernel


def test_the_usual_rule_warns_then_suspends_then_releases_and_leaves_the_kernel() -> None:
    kernel = through(Kernel(USUAL), 600)
    assert kernel.done() == [(30 * MIN, "suspend"), (120 * MIN, "release")]
    assert [
        (at, move.step, move.deadline) for at, move in kernel.story if isinstance(move, SendWarning)
    ] == [(20 * MIN, "suspend", 30 * MIN), (120 * MIN - NOTICE, "release", 120 * MIN)]


def test_a_cell_in_the_countdown_ends_it_and_starts_the_clock_anew() -> None:
    kernel = through(Kernel(USUAL), 29)
    kernel.work()
    assert isinstance(kernel.story[-1][1], CancelWarning)
    through(kernel, 29)
    assert kernel.done() == [], "half an hour has not passed since the cell"
    assert through(kernel, 1).done() == [(59 * MIN, "suspend")]


def test_only_warn_is_said_once() -> None:
    kernel = through(Kernel(LeaseRules(idle_warn_ms=20 * MIN)), 200)
    assert [move for _, move in kernel.story] == [SendWarning("warn", None)]


def test_a_rule_that_comes_into_force_late_still_gives_notice() -> None:
    kernel = through(Kernel(LeaseRules()), 100)
    kernel.rules = USUAL
    through(kernel, 1)
    assert kernel.story[0] == (
        100 * MIN + 15_000,
        SendWarning("suspend", 100 * MIN + 15_000 + NOTICE),
    )
    assert kernel.done() == [(100 * MIN + 45_000, "suspend")]


def test_a_rule_that_is_loosened_in_the_countdown_voids_it() -> None:
    kernel = through(Kernel(USUAL), 25)
    kernel.rules = replace_ms(USUAL, idle_suspend_ms=60 * MIN)
    through(kernel, 10)
    assert kernel.done() == []
    assert isinstance(kernel.story[1][1], CancelWarning)
    assert through(kernel, 25).done() == [(60 * MIN, "suspend")]


def test_a_rule_that_is_taken_away_in_the_countdown_voids_it() -> None:
    kernel = through(Kernel(USUAL), 25)
    kernel.rules = LeaseRules()
    assert through(kernel, 60).done() == []
    assert isinstance(kernel.story[-1][1], CancelWarning)


def test_who_is_pinned_is_not_suspended_but_gives_back_in_the_end() -> None:
    kernel = Kernel(USUAL)
    kernel.idle = replace(kernel.idle, spared=frozenset({"suspend"}))
    assert through(kernel, 300).done() == [(120 * MIN, "release")]


def replace_ms(rules: LeaseRules, **changes: int | None) -> LeaseRules:
    return LeaseRules(
        **({name: getattr(rules, name) for name in rules.__struct_fields__} | changes)
    )


times = st.none() | st.integers(1_000, 100_000)
some_rules = st.builds(
    LeaseRules, idle_warn_ms=times, idle_suspend_ms=times, idle_release_ms=times, idle_end_ms=times
)
happenings = st.lists(
    st.tuples(st.just("wait"), st.integers(0, 60_000))
    | st.tuples(st.just("work"), st.none())
    | st.tuples(st.just("rules"), some_rules)
    | st.tuples(st.just("spare"), st.frozensets(st.sampled_from(["suspend", "release"]))),
    max_size=40,
)


@settings(max_examples=examples(400))
@given(some_rules, st.integers(1, 40_000), happenings)
def test_laws(rules: LeaseRules, notice: int, course: list) -> None:
    kernel, seen, last_work, told, spell = Kernel(rules, notice), 0, 0, {}, []
    for what, value in [("wait", 0), *course]:
        match what:
            case "wait":
                kernel.wait(value)
            case "work":
                kernel.work()
                last_work, told, spell = kernel.now, {}, []
            case "rules":
                kernel.rules = value
            case "spare":
                kernel.idle = replace(kernel.idle, spared=value)
        for at, move in kernel.story[seen:]:
            if isinstance(move, SendWarning):
                told[move.step] = (at, move.deadline)
            elif isinstance(move, IdleAction):
                said_at, deadline = told.pop(move.step)
                assert deadline is not None, "a step is announced with its moment"
                assert at >= deadline >= said_at + notice, "and in time"
                assert at - last_work >= getattr(kernel.rules, f"idle_{move.step}_ms"), (
                    "not before its time"
                )
                assert move.step not in kernel.idle.spared
                assert all(ORDER[move.step] > ORDER[earlier] for earlier in spell), (
                    "milder first, each once"
                )
                spell.append(move.step)
            elif isinstance(move, CancelWarning):
                told = {}
        seen = len(kernel.story)


@given(some_rules, st.integers(1, 40_000))
def test_every_step_comes_in_the_end(rules: LeaseRules, notice: int) -> None:
    kernel = Kernel(rules, notice)
    for _ in range(20):
        kernel.wait(100_000)
    stated = {
        step
        for step in ("suspend", "release", "end")
        if getattr(rules, f"idle_{step}_ms") is not None
    }
    hardest = max(stated, key=lambda step: ORDER[step], default=None)
    assert {step for _, step in kernel.done()} <= stated
    times_ = [(getattr(rules, f"idle_{step}_ms"), ORDER[step], step) for step in stated]
    assert not stated or (
        hardest in {step for _, step in kernel.done()} and kernel.done()[0][1] == min(times_)[2]
    )
