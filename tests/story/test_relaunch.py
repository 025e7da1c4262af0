"""The last step of reclaiming: a kernel that cannot be suspended gets a notice, is restarted by
Jupyter, and gets a message about what was lost.
"""

from __future__ import annotations

import contextlib

import pytest
import websocket

from jupyter_gpushare.kernel.simnode import SimNode
from tests.story.front_end import eventually, shown

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
FILL = "from jupyter_gpushare import simgpu\nb = simgpu.alloc('70GiB')\nb.fill(3)"


def until_it_answers(notebook):
    """The same websocket reaches the new process; requests that Jupyter's sockets lose while they
    reconnect are repeated, like a page does.
    """

    def answers() -> bool:
        msg_id = notebook.send("kernel_info_request", {})
        with contextlib.suppress(websocket.WebSocketTimeoutException):
            while True:
                message = notebook.next(1)
                if (
                    message["parent_header"].get("msg_id") == msg_id
                    and message["content"].get("execution_state") == "idle"
                ):
                    return True
        return False

    eventually(answers, "the new process answers")


def test_a_kernel_that_cannot_be_suspended_is_restarted(start_server):
    server = start_server()
    SimNode(server.state / "simgpu.sqlite").fault("unsupported")
    a, b = server.notebook("half", "a.ipynb"), server.notebook("half", "b.ipynb")
    for n in (a, b):
        n.ok(FILL)
    pids, generations = {n: n.pid for n in (a, b)}, {n: n.view["generation"] for n in (a, b)}
    cells = {n: n.submit("print('started', flush=True)\nsimgpu.busy(40)") for n in (a, b)}
    for n, cell in cells.items():
        n.until_shown(cell, "started")
    c = server.notebook("whole", "c.ipynb")
    waiting = c.submit("from jupyter_gpushare import simgpu; print(simgpu.device_uuid())")

    # Its notice comes first, then its cell ends with one clear error, then the same page is
    # connected to a new process.
    victim = eventually(
        lambda: next((n for n in (a, b) if "killed" in n.kinds()), None), "one is killed", 60
    )
    assert c.collect(waiting, 60).ok
    result = victim.collect(cells[victim], 20)
    assert result.ename == "GpuReclaimed"
    assert len([one for one in result.outputs if one["msg_type"] == "error"]) == 1
    kinds = victim.kinds()
    assert kinds.index("notice") < kinds.index("killed")
    assert any(
        "taken" in shown(one) or "free memory" in shown(one).lower() for one in result.outputs
    ), [shown(o) for o in result.outputs]
    eventually(lambda: victim.pid != pids[victim], "a new process")
    until_it_answers(victim)
    text = victim.ok("print('hello')", 60)
    assert "lost" in text
    assert text.endswith("hello\n")
    assert "lost" not in victim.ok("print('again')")
    assert victim.run("b").ename == "NameError"
    victim.ok("from jupyter_gpushare import simgpu\nb = simgpu.alloc('10GiB')", 60)
    eventually(lambda: victim.view["generation"] > generations[victim], "a new generation")
    eventually(lambda: "reattached" in victim.kinds(), "the event")
    assert not any(n.saw(state) for n in (a, b, c) for state in ("restarting", "dead"))
    for n in (a, b, c):
        n.shut_down()
    server.nothing_is_left()
