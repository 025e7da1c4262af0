"""The lease table: walks through a life, and laws of the table itself."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from jupyter_gpushare.core.model.errors import OutOfTurn
from jupyter_gpushare.core.model.lease import (
    HOLDING,
    TRANSITIONS,
    LeaseFact,
    LeaseState,
    diagram,
    step,
)

DOCS = Path(__file__).parents[2] / "docs"

LIVES = {
    "asked, granted, attached, ended": "grant attach end / ended",
    "suspended while idle, resumed at the next cell": "grant attach suspend resume / attached",
    "reclaimed by suspending": "grant attach reclaim suspend / suspended",
    "reclaimed by moving": "grant attach reclaim move / attached",
    "reclaimed by killing: it asks again": "grant attach reclaim release grant / granted",
    "a kernel restart keeps the spot": "grant attach kernel_died attach / attached",
    "a kernel that dies under reclaim has let go": "grant attach reclaim kernel_died / pending",
    "a suspend that crosses the order to reclaim": "grant attach suspend release / pending",
    "a silent agent comes back": "grant attach agent_lost agent_back / attached",
    "a silent agent is given up on": "grant attach agent_lost requeue / pending",
    "a grant that nobody takes up": "grant withdraw / pending",
}


@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
def test_life(life: str) -> None:
    facts, end = life.split(" / ")
    state = LeaseState.PENDING
    for fact in facts.split():
        state = step(state, LeaseFact(fact))
    assert state == end


@pytest.mark.parametrize(
    ("state", "fact"),
    [("pending", "attach"), ("attached", "grant"), ("lost", "resume"), ("ended", "end")],
)
def test_a_fact_without_a_place_is_refused_by_name(state: str, fact: str) -> None:
    with pytest.raises(OutOfTurn, match=f"{state} .* {fact}"):
        step(LeaseState(state), LeaseFact(fact))


def test_every_life_can_end_and_the_end_is_final() -> None:
    """From every state the end is one fact away, and nothing leads out of it."""
    assert set(TRANSITIONS) == set(LeaseState)
    assert TRANSITIONS[LeaseState.ENDED] == {}
    assert all(
        row[LeaseFact.END] is LeaseState.ENDED
        for state, row in TRANSITIONS.items()
        if state is not LeaseState.ENDED
    )


def test_every_state_is_reached_and_every_fact_has_a_place() -> None:
    assert {target for row in TRANSITIONS.values() for target in row.values()} == set(LeaseState)
    assert {fact for row in TRANSITIONS.values() for fact in row} == set(LeaseFact)


def test_a_spot_is_gained_only_by_a_grant() -> None:
    """No fact but the scheduler's commit leads from a state without a spot to one with a spot."""
    gains = {
        fact
        for state, row in TRANSITIONS.items()
        for fact, target in row.items()
        if state not in HOLDING and target in HOLDING
    }
    assert gains == {LeaseFact.GRANT}


def test_the_page_is_fresh() -> None:
    """docs/lease.md is what the table says now (run docs/render_lease.py)."""
    page = (DOCS / "lease.md").read_text(encoding="utf-8")
    assert page == runpy.run_path(str(DOCS / "render_lease.py"))["render"]()
    assert diagram() in page
