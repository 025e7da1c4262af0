"""A kernel behind the proxy chooses its GPUs when it is started: when its share comes later, a
process that has executed nothing is replaced, and any other has to be restarted by its user.
"""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow
DEVICE = {"uuid": "GPU-1", "cap_mib": 1000, "total_mib": 1000, "visible": "GPU-1,GPU-2"}


@pytest.fixture
def pending(agent):
    agent.kernel["state"], agent.holding = "pending", True
    return agent


def grant(agent):
    n = agent.receive("cell_start")["n"]
    agent.set_state("attached", devices=(DEVICE,))
    agent.send({"type": "cell_go", "n": n, "waited_ms": 0, "message": ""})


def test_a_kernel_that_executed_nothing_is_started_again_with_its_gpu(pending, start):
    kernel = start(GPUSHARE_LAUNCHED_WITH="")
    nb = kernel.client()
    cell = nb.submit("import os; print('pid', os.getpid())")
    nb.until_shown(cell, "Waiting for quota.")
    grant(pending)
    request = json.loads(kernel.socket.recv(4096))
    assert request == {"ask": "relaunch", "visible": "GPU-1,GPU-2"}
    kernel.launch()
    pending.holding = False
    kernel.command(do="relaunched", pid=kernel.kernel.pid, visible="GPU-1,GPU-2")
    result = nb.collect(cell, 40)
    assert result.text.endswith(f"pid {kernel.kernel.pid}\n")
    assert "GPU ready after" in result.text


def test_any_other_kernel_says_once_that_it_must_be_restarted(pending, start):
    pending.kernel["state"] = "detached"
    nb = start(GPUSHARE_LAUNCHED_WITH="").client()
    assert nb.run("x = 1").ok
    pending.set_state("pending")
    nb.client.kernel_info(reply=True, timeout=20)
    cell = nb.submit("print(x)")
    grant(pending)
    result = nb.collect(cell)
    assert "restart it to use this one" in result.text
    assert result.text.endswith("1\n")
    pending.holding = False
    assert nb.run("print(x)").text == "1\n"
