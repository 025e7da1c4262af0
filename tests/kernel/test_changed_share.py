"""A notebook that has a share and requests another: it keeps the old one until the new one is
granted, and `%gpu request` waits for that.
"""

from __future__ import annotations

import pytest

from tests.kernel.fake_agent import kernel_state

pytestmark = pytest.mark.slow
HALF = {"workload": "w1", "request": {"gpu": 0.5, "gpu_memory_mib": None}}
CHANGE = {
    "workload": "w2",
    "request": {"gpu": 1.0, "gpu_memory_mib": None},
    "limit": {"gpu": None, "gpu_memory_mib": None},
    "project": "vision",
    "reason": {"code": "WaitingForFreeGPU", "message": "No GPU is free.", "numbers": {}},
    "queue_position": 1,
    "expected_wait": None,
}
WHOLE = {"workload": "w2", "request": CHANGE["request"]}


@pytest.fixture
def waiting(agent, notebook):
    """A cell that waits for its change, and its notebook."""

    def change(_):
        agent.set_state("attached", **HALF, pending_change=CHANGE)
        return {"kernel": agent.kernel, "previous": {"gpu": 0.5}}

    agent.kernel = kernel_state("attached", **HALF)
    agent.answers["request"] = change
    nb = notebook()
    cell = nb.submit("%gpu request 1")
    nb.until_shown(cell, "1 GPU requested; 0.5 GPU is kept until then. No GPU is free.")
    return nb, cell


def test_it_waits_until_the_new_share_is_granted(agent, waiting):
    nb, cell = waiting
    assert "cell_start" not in agent.received_kinds(), "the waiting cell uses no GPU"
    agent.set_state("attached", **WHOLE)
    result = nb.collect(cell)
    assert result.ok
    assert "Granted: 1 GPU." in result.text
    assert agent.receive("cell_start")["wait"] is True


def test_an_interrupt_keeps_the_share_and_the_request(agent, waiting):
    nb, cell = waiting
    nb.manager.interrupt_kernel()
    result = nb.collect(cell)
    assert result.reply["ename"] == "UsageError"
    assert "The request stays pending" in result.text
    assert "1 GPU requested; 0.5 GPU is kept" in nb.run("%gpu").text
    assert nb.run("print('runs')").text == "runs\n"


OLDER = {"gpu": 0.25, "project": "vision"}


def test_an_interrupted_cell_with_a_share_leaves_share_and_pending_request_as_before(
    agent, notebook
):
    asked = []

    def request(body):
        asked.append(body)
        pending = {"pending_change": CHANGE} if body["gpu"] == "1" else {}
        agent.set_state("attached", **HALF, **pending)
        return {"kernel": agent.kernel, "previous": {"gpu": 0.5}, "previous_change": OLDER}

    agent.kernel = kernel_state("attached", **HALF)
    agent.answers["request"] = request
    nb = notebook()
    cell = nb.submit("%%gpu 1\nprint('ran')")
    nb.until_shown(cell, "1 GPU requested; 0.5 GPU is kept until then.")
    nb.manager.interrupt_kernel()
    result = nb.collect(cell)
    assert result.reply["ename"] == "UsageError"
    assert "the cell did not run. Its request is cancelled" in result.text
    assert "stays pending" not in result.text
    assert asked == [{"gpu": "1"}, {"gpu": 0.5}, OLDER]


def test_a_pending_request_can_be_cancelled(agent, notebook):
    def cancel(_):
        agent.set_state("attached", **HALF)
        return {"kernel": agent.kernel}

    agent.kernel = kernel_state("attached", **HALF, pending_change=CHANGE)
    agent.answers["cancel"] = cancel
    nb = notebook()
    assert "change" in nb.run("%gpu").text
    assert "change" not in nb.run("%gpu cancel").text


def test_a_change_that_is_withdrawn_ends_the_wait_with_the_old_share(agent, waiting):
    nb, cell = waiting
    agent.set_state("attached", **HALF)
    agent.answers["why"] = lambda _: agent.kernel
    result = nb.collect(cell)
    assert result.reply["ename"] == "UsageError"
    assert "the request was withdrawn; the share is unchanged" in result.text
