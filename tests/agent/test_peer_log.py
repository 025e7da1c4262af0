"""What one user writes into the agent's log is bounded."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.socket.peer_log import AT_ONCE, LONGEST, MOST_OWNERS, PeerLog
from node_agent.state.rate_budget import RateBudget
from node_agent.system.process_owner import UnixUser

BOB, ALICE = UnixUser(1001), UnixUser(1002)


@given(st.lists(st.floats(0, 10), max_size=60), st.integers(1, 10), st.floats(0.1, 10))
def test_never_more_than_the_size_and_the_rate_allow(pauses: list[float], size: int, rate: float):
    budget, now, taken = RateBudget(size, rate), 0.0, 0
    for pause in pauses:
        now += pause
        taken += budget.take(now)
        assert taken <= size + rate * now + 1e-6
    assert budget.take(now + 2 / rate)


def test_a_flood_of_warnings_is_counted_and_others_are_logged(caplog: pytest.LogCaptureFixture):
    now = 0.0
    peers = PeerLog(lambda: now)
    with caplog.at_level(logging.WARNING, logger="gpushare.agent"):
        for number in range(10 * AT_ONCE):
            peers.warning(BOB, "process %d: %s", number, "bad line")
        assert len(caplog.messages) == AT_ONCE
        peers.warning(ALICE, "process %d: %s", 7, "bad line")
        assert caplog.messages[-1] == "process 7: bad line"
        now = 60.0
        peers.warning(BOB, "process %d: %s", 8, "bad line")
    assert caplog.messages[-2:] == [
        f"{9 * AT_ONCE} more warnings about {BOB} were not logged",
        "process 8: bad line",
    ]


def test_a_warning_is_short_and_owners_are_forgotten(caplog: pytest.LogCaptureFixture):
    now = 0.0
    peers = PeerLog(lambda: now)
    with caplog.at_level(logging.WARNING, logger="gpushare.agent"):
        for uid in range(3 * MOST_OWNERS):
            now += 0.01
            peers.warning(UnixUser(uid), "%s", "x" * 10_000)
    assert {len(text) for text in caplog.messages} == {LONGEST + 1}
    assert len(peers._budgets) <= MOST_OWNERS
