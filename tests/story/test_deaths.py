"""`kill -9` of each process while memory is moved: no lease or process is left over, and nothing
acknowledged is lost.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.story.front_end import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
FILL = "from jupyter_gpushare import simgpu\nb = simgpu.alloc('70GiB')\nb.fill(3)"
WHOLE = "from jupyter_gpushare import simgpu\nprint(simgpu.device_uuid())"


@pytest.fixture
def scene(start_server):
    """A and B hold 70 GiB each, and C has just requested a GPU."""
    server = start_server(remote=True)
    a, b = server.notebook("half", "a.ipynb"), server.notebook("half", "b.ipynb")
    a.ok(FILL)
    b.ok(FILL)
    c = server.notebook("whole", "c.ipynb")
    return server, a, b, c, c.submit(WHOLE)


def all_continue(server, a, b, c, cell):
    assert c.collect(cell, 60).ok
    for n in (a, b):
        assert n.ok("print(b.sum() > 0)", 60).splitlines()[-1] == "True"
    assert server.allocated() == 2.0


def test_killing_the_agent(scene):
    server, a, b, c, cell = scene
    pids = [n.pid for n in (a, b, c)]
    server.kill("agent")
    server.start_agent()
    all_continue(server, a, b, c, cell)
    assert [n.pid for n in (a, b, c)] == pids
    for n in (a, b, c):
        n.shut_down()
    server.nothing_is_left()


def test_killing_the_scheduler(scene):
    server, a, b, c, cell = scene
    server.kill("scheduler")
    server.start_scheduler()
    all_continue(server, a, b, c, cell)
    for n in (a, b, c):
        n.shut_down()
    server.nothing_is_left()


def test_killing_a_kernel(scene):
    """Jupyter restarts it, its request remains, and the others continue."""
    server, a, b, c, cell = scene
    os.kill(a.pid, signal.SIGKILL)
    assert c.collect(cell, 60).ok
    assert b.ok("print(b.sum() > 0)", 60).splitlines()[-1] == "True"
    eventually(lambda: a.pid, "A is restarted")
    assert a.run("from jupyter_gpushare import simgpu\nx = simgpu.alloc('40GiB')", 60).ok
    assert a.until("attached")["generation"] > 0
    for n in (a, b, c):
        n.shut_down()
    server.nothing_is_left()


def test_killing_the_jupyter_server(scene):
    server = scene[0]
    server.kill("jupyter")
    server.no_kernels_are_left(15)
    server.start_jupyter()
    eventually(lambda: server.status()["scheduler"]["reachable"], "the server is back", 60)
    server.nothing_is_left()
    fresh = server.notebook("whole", "d.ipynb")
    assert fresh.run(WHOLE, 60).ok
    fresh.shut_down()
    server.nothing_is_left()


def test_kernels_that_were_shut_down_hold_nothing(scene):
    server, a, b, c, _ = scene
    for n in (a, b, c):
        n.shut_down()
    server.nothing_is_left(within=10)


@pytest.mark.parametrize("how", ["kill -9", "SIGTERM"])
def test_ending_the_embedded_server(start_server, how):
    """Server, scheduler and agent end together; the next server finds no lease of ended kernels."""
    server = start_server()
    a, b = server.notebook("half", "a.ipynb"), server.notebook("build", "b.ipynb")
    a.ok(FILL)
    b.until("pending")
    if how == "kill -9":
        server.kill("jupyter")
    else:
        server.processes["jupyter"].terminate()
        assert server.processes.pop("jupyter").wait(20) == 0
    server.no_kernels_are_left(15)
    server.start_jupyter()
    eventually(
        lambda: server.status()["agent"]["reachable"] and server.status()["scheduler"]["reachable"],
        "the server is back",
        60,
    )
    server.nothing_is_left(within=15)
    eventually(
        lambda: all(
            row["requested"] == 0 for row in server.rest("GET", "gpushare/api/queues")["queues"]
        ),
        "nothing is pending",
        15,
    )
