"""Cells that wait in the proxy, in kernels that do not carry our extension."""

from __future__ import annotations

import time

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def pending(agent):
    """The kernel's request is pending, and the agent lets cells wait."""
    agent.kernel["state"], agent.holding = "pending", True
    return agent


def grant(agent, n=None):
    n = agent.receive("cell_start")["n"] if n is None else n
    agent.set_state("attached")
    agent.send({"type": "cell_go", "n": n, "waited_ms": 0, "message": ""})
    return n


def test_a_kernel_without_a_request_runs_at_once(agent, start):
    nb = start().client()
    result = nb.run("print(1 + 1)")
    assert result.ok
    assert result.text == "2\n"
    assert "cell_start" not in agent.received_kinds()


@pytest.mark.parametrize(("kernel", "code"), [("ipykernel", "print('ran')"), ("bash", "echo ran")])
def test_a_cell_waits_with_the_reason_and_runs_when_the_gpu_is_ready(pending, start, kernel, code):
    nb = start(kernel).client()
    cell = nb.submit(code)
    nb.until_shown(cell, "Waiting for quota. Queue position: 2.")
    assert nb.client.complete("ec", reply=True, timeout=20)["content"]["status"] == "ok"
    n = grant(pending)
    result = nb.collect(cell)
    assert result.ok
    assert "GPU ready after" in result.text
    assert result.text.endswith("ran\n")
    assert pending.receive("cell_end")["n"] == n


@pytest.mark.parametrize("by_message", [False, True])
def test_an_interrupt_ends_the_wait_and_spares_the_kernel(pending, start, by_message):
    """SIGINT would end this kernel. Cells that were sent with the waiting one do not run either."""
    kernel = start("sensitive")
    nb = kernel.client()
    first, second = nb.submit("print('first')"), nb.submit("print('second')")
    nb.until_shown(first, "Waiting for quota.")
    if by_message:
        nb.client.control_channel.send(nb.client.session.msg("interrupt_request", {}))
        reply = nb.client.get_control_msg(timeout=20)
        assert (reply["msg_type"], reply["content"]["status"]) == ("interrupt_reply", "ok")
    else:
        assert kernel.interrupt()
    result = nb.collect(first)
    assert result.reply["ename"] == "CellNotRun"
    assert [one["msg_type"] for one in result.outputs] == ["update_display_data", "error"]
    assert nb.collect(second).reply["status"] == "aborted"
    assert pending.receive("cell_cancel")["n"]
    pending.holding = False
    assert nb.run("print('third')").text == "third\n"


def test_an_interrupt_reaches_a_cell_that_runs(pending, start):
    kernel = start()
    nb = kernel.client()
    cell = nb.submit("print('begun', flush=True)\nimport time\ntime.sleep(60)")
    grant(pending)
    nb.until_shown(cell, "begun")
    waiting = nb.submit("print('later')")
    pending.receive("cell_start")
    assert not kernel.interrupt()
    assert nb.collect(cell).reply["ename"] == "KeyboardInterrupt"
    assert nb.collect(waiting).reply["ename"] == "CellNotRun"


def test_a_failed_cell_stops_those_that_wait_behind_it(pending, start):
    nb = start().client()
    failing = nb.submit("import time\ntime.sleep(1)\n1/0")
    waiting, queued = nb.submit("print('a')"), nb.submit("print('b')")
    grant(pending)
    pending.receive("cell_start")
    assert nb.collect(failing).reply["ename"] == "ZeroDivisionError"
    assert nb.collect(waiting).reply["status"] == "aborted"
    assert nb.collect(queued).reply["status"] == "aborted"


def test_a_refused_cell_fails_with_the_reason(pending, start):
    nb = start().client()
    cell = nb.submit("print('ran')")
    n = pending.receive("cell_start")["n"]
    pending.send({"type": "cell_refused", "n": n, "message": "The request was cancelled."})
    result = nb.collect(cell)
    assert result.text == "CellNotRun: The request was cancelled."


def test_cells_of_a_subshell_and_of_the_main_shell_wait_side_by_side(pending, start):
    nb = start().client()
    subshell = nb.create_subshell()
    main, other = nb.submit("print('main')"), nb.submit("print('other')", subshell)
    asked = [pending.receive("cell_start")["n"] for _ in range(2)]
    grant(pending, asked[1])
    assert nb.collect(other).text.endswith("other\n")
    grant(pending, asked[0])
    assert nb.collect(main).text.endswith("main\n")


@pytest.mark.parametrize("kernel", ["ipykernel", "lying"])
def test_a_cell_for_a_subshell_that_does_not_exist_fails_and_does_not_run(agent, start, kernel):
    """The second kernel answers nothing that could be forwarded, as ipykernel before 7.4."""
    agent.kernel["state"] = "attached"
    nb = start(kernel).client()
    result = nb.collect(nb.submit("print('ran')", "nowhere"))
    assert result.text == "CellNotRun: the kernel has no subshell nowhere."
    assert "cell_start" not in agent.received_kinds()


def test_a_subshell_that_is_deleted_ends_its_cells(agent, start):
    """ipykernel does not reply to those that it has not begun."""
    agent.kernel["state"] = "attached"
    nb = start().client()
    subshell = nb.create_subshell()
    running = nb.submit("print('begun', flush=True)\nimport time\ntime.sleep(1)", subshell)
    queued = nb.submit("print('queued')", subshell)
    nb.until_shown(running, "begun")
    begun = {agent.receive("cell_start")["n"] for _ in range(2)}
    agent.holding = True
    waiting = nb.submit("print('waiting')", subshell)
    agent.receive("cell_start")
    nb.delete_subshell(subshell)
    ended = nb.collect(waiting)
    assert ended.text.endswith(f"CellNotRun: the kernel has no subshell {subshell}.")
    assert {agent.receive("cell_end")["n"] for _ in range(2)} == begun, queued


def test_a_wait_outlives_a_restart_of_the_agent(pending, start):
    nb = start().client()
    cell = nb.submit("print('ran')")
    nb.until_shown(cell, "Waiting for quota.")
    pending.receive("cell_start")
    pending.close()
    nb.until_shown(cell, "The node agent is not reachable. The cell waits until it is back.")
    pending.open()
    grant(pending)
    assert nb.collect(cell).text.endswith("ran\n")


def test_a_kernel_whose_agent_never_answers_runs_its_cells(agent, start):
    agent.close()
    agent.kernel["state"] = "attached"
    nb = start(GPUSHARE_AGENT_WAIT="0.5").client()
    result = nb.run("print('ran')")
    assert "The node agent did not answer. The cell runs without a GPU." in result.text
    assert result.ok


def test_silent_requests_and_gpu_magics_never_wait(pending, start):
    nb = start().client()
    nb.client.execute("x = 1", silent=True)
    assert nb.client.get_shell_msg(timeout=20)["content"]["status"] == "ok"
    assert not nb.run("%gpu").ok  # IPython does not know it
    assert "cell_start" not in pending.received_kinds()


def test_messages_of_the_agent_appear_under_the_running_cell(agent, start):
    agent.kernel["state"] = "attached"
    nb = start().client()
    agent.send({"type": "told", "message": "Moved to another GPU."})
    time.sleep(0.2)  # it arrives between two cells, and appears under the next
    cell = nb.submit("print('begun', flush=True)\nimport time\ntime.sleep(30)")
    nb.until_shown(cell, "Moved to another GPU.")
    nb.until_shown(cell, "begun")
    agent.send({"type": "notice", "message": "2 GiB are taken.", "deadline_ms": 1, "take_mib": 1})
    nb.until_shown(cell, "⚠ 2 GiB are taken.")
    agent.send({"type": "end_cell", "message": "Reclaimed by vision."})
    assert nb.collect(cell).text == "GpuReclaimed: Reclaimed by vision."


def test_a_cell_that_began_without_asking_is_reported(agent, start):
    """The GPU is granted while the cell runs, and the agent must not take the kernel for idle."""
    nb = start().client()
    cell = nb.submit("print('begun', flush=True)\nimport time\ntime.sleep(1)")
    nb.until_shown(cell, "begun")
    agent.set_state("attached")
    report = agent.receive("cell_start")
    assert report["running"]
    assert nb.collect(cell).ok
    assert agent.receive("cell_end")["n"] == report["n"]
