"""Kernels start without agent or scheduler, keep their share through restarts, and get what they
requested when both are back.
"""

from __future__ import annotations

import os
import signal

import pytest

from tests.story.front_end import RestError, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
ALLOC = (
    "from jupyter_gpushare import simgpu\nb = simgpu.alloc('40GiB')\nprint(simgpu.device_uuid())"
)


def test_a_kernel_that_starts_without_the_agent_gets_its_gpu_later(start_server):
    server = start_server(remote=True)
    before = server.notebook("plain", "before.ipynb")
    before.ok("%gpu")
    server.kill("agent")
    nb = server.notebook("half", "a.ipynb")
    cell = nb.submit(ALLOC)
    assert nb.view["state"] == "pending"
    assert before.ok("print('a cell that needs no GPU')") == "a cell that needs no GPU\n"
    assert "not reachable" in before.ok("%gpu")
    nb.until_shown(cell, "agent")
    server.start_agent()
    assert "SIM-GPU" in nb.collect(cell, 60).text
    nb.until("attached")
    for n in (nb, before):
        n.shut_down()
    server.nothing_is_left()


def test_a_kernel_that_starts_without_the_scheduler_gets_its_gpu_later(start_server):
    server = start_server(remote=True)
    server.kill("scheduler")
    nb = server.notebook("half", "a.ipynb")
    reason = eventually(
        lambda: (r := nb.view["reason"]) and "cannot be reached" in r["message"] and r, "the reason"
    )
    assert reason["code"] == "PendingEvaluation"
    cell = nb.submit(ALLOC)
    nb.until_shown(cell, "cannot be reached")
    plain = server.notebook("plain", "b.ipynb")
    result = plain.run("%gpu request 0.5")
    assert (result.ename, len(result.text.strip().splitlines())) == ("UsageError", 1)
    with pytest.raises(RestError) as refused:
        server.rest("POST", f"gpushare/api/kernels/{plain.kernel_id}", {"gpu": 0.5})
    assert refused.value.status == 503
    server.start_scheduler()
    assert "SIM-GPU" in nb.collect(cell, 90).text
    assert plain.view["state"] == "detached"
    for n in (nb, plain):
        n.shut_down()
    server.nothing_is_left(within=30)


def test_a_restart_keeps_the_share(server, notebook):
    nb = notebook("half")
    nb.ok(ALLOC)
    pid, workload = nb.pid, nb.view["workload"]
    server.rest("POST", f"api/kernels/{nb.kernel_id}/restart")
    eventually(lambda: nb.pid != pid, "a new process")
    nb.connect()
    assert "SIM-GPU" in nb.ok(ALLOC)
    assert nb.view["workload"] == workload
    assert server.allocated() == 0.5


def test_a_pending_request_can_be_replaced_and_released(server, notebook):
    nb = notebook("build")
    nb.until("pending")
    view = server.rest(
        "POST", f"gpushare/api/kernels/{nb.kernel_id}", {"gpu": 0.25, "project": "vision"}
    )
    assert view["request"]["gpu"] == 0.25
    nb.until("attached")
    with pytest.raises(RestError):
        server.rest("POST", f"gpushare/api/kernels/{nb.kernel_id}", {"gpu": 0.5, "project": "nope"})
    assert nb.view["state"] == "attached"
    view = server.rest("DELETE", f"gpushare/api/kernels/{nb.kernel_id}")
    assert (view["state"], view["workload"]) == ("detached", None)
    eventually(lambda: server.allocated() == 0, "released")


def test_a_kernel_that_jupyter_abandons_holds_nothing(server):
    nb = server.notebook("half", "dying.ipynb")
    nb.until("attached")

    def kill_again() -> bool:
        if nb.kernel_id not in [kernel["id"] for kernel in server.rest("GET", "api/kernels")]:
            return True
        os.kill(nb.pid, signal.SIGKILL)
        return False

    eventually(kill_again, "Jupyter abandons it", 90)
    server.nothing_is_left()
    nb.ws.close()


def test_a_widget_message_resumes_a_suspended_kernel(server, notebook):
    """`comm_msg` counts like a cell; loading a page does not."""
    nb = notebook("half")
    nb.ok(ALLOC)
    nb.ok("""
from ipykernel.comm import CommManager
received = []
def opened(comm, message):
    comm.on_msg(lambda message: received.append((message['content']['data'], b.fill(1))))
get_ipython().kernel.comm_manager.register_target('t', opened)
""")
    nb.send("comm_open", {"comm_id": "c", "target_name": "t", "data": {}})
    nb.ok("%gpu suspend")
    assert nb.view["state"] == "suspended"
    nb.send("comm_msg", {"comm_id": "c", "data": {"method": "custom"}})
    nb.until("attached")
    assert "custom" in nb.ok("print(received)")


def test_an_interrupt_resumes_a_suspended_kernel_first(server, notebook):
    """Its owner suspended it during a cell: Python inside a driver call handles no signal."""
    nb = notebook("half")
    nb.ok("from jupyter_gpushare import simgpu\nimport time\nx = simgpu.alloc('10GiB')")
    cell = nb.submit("while True: time.sleep(0.05)")
    eventually(lambda: nb.view["busy"], "it runs")
    server.rest("POST", f"gpushare/api/kernels/{nb.kernel_id}/actions/suspend")
    nb.until("suspended")
    nb.interrupt()
    assert nb.collect(cell).ename == "KeyboardInterrupt"
    nb.until("attached")
