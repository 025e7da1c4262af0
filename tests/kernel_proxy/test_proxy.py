"""The cell gate of kernels that do not carry our extension."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


def test_a_kernel_without_a_request_runs_at_once(agent, start):
    nb = start().client()
    result = nb.run("print(1 + 1)")
    assert result.ok
    assert result.text == "2\n"
    assert "cell_start" not in agent.received_kinds()


def test_a_cell_waits_with_the_reason_and_runs_when_the_gpu_is_ready(agent, start):
    agent.kernel["state"], agent.holding = "pending", True
    nb = start().client()
    cell = nb.submit("print('ran')")
    nb.until_shown(cell, "Waiting for quota. Queue position: 2.")
    n = agent.receive("cell_start")["n"]
    agent.set_state("attached")
    agent.send({"type": "cell_go", "n": n, "waited_ms": 0, "message": ""})
    result = nb.collect(cell)
    assert result.ok
    assert "GPU ready after" in result.text
    assert result.text.endswith("ran\n")
    assert agent.receive("cell_end")["n"] == n
