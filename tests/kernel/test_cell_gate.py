"""The cell gate in a real kernel."""

from __future__ import annotations

import pytest

from jupyter_gpushare.kernel.cell_gate.agent_wait import AGENT_WAIT_S, agent_wait_s
from jupyter_gpushare.kernel.cell_gate.gate import is_exempt

pytestmark = pytest.mark.slow
RUNS_UNTIL_STOPPED = """
import pathlib, time
print('begun', flush=True)
while not pathlib.Path('stop').exists(): time.sleep(0.02)
"""


def _kind(output):
    if output["msg_type"] == "error":
        return "error"
    return f"{output['msg_type']}: {output['content']['data']['text/plain']!r}"


def test_a_kernel_without_a_request_never_asks_the_agent(agent, notebook):
    nb = notebook()
    assert nb.run("1 + 1").ok
    assert "cell_start" not in agent.received_kinds()


def test_a_cell_waits_with_the_reason_and_runs_when_the_gpu_is_ready(agent, notebook):
    agent.kernel["state"], agent.holding = "pending", True
    nb = notebook()
    cell = nb.submit("print('ran')")
    nb.until_shown(cell, "Waiting for quota.")
    question = agent.receive("cell_start")
    agent.send({"type": "cell_go", "n": question["n"], "waited_ms": 0, "message": ""})
    result = nb.collect(cell)
    assert result.ok
    assert "ran" in result.text
    assert agent.receive("cell_end")["n"] == question["n"]


@pytest.mark.parametrize(
    ("state", "more", "words"),
    [
        ("attached", {}, "GPU ready after"),
        ("detached", {}, "The cell runs without a GPU."),
        ("pending", {"without_gpu": True}, "The cell runs without a GPU."),
        ("attached", {"without_gpu": True}, "The cell runs without a GPU."),
    ],
)
def test_gpu_ready_appears_only_if_there_is_a_gpu(agent, notebook, state, more, words):
    agent.kernel["state"], agent.holding = "pending", True
    nb = notebook()
    cell = nb.submit("print('ran')")
    nb.until_shown(cell, "Waiting for quota.")
    question = agent.receive("cell_start")
    agent.set_state(state)
    agent.send({"type": "cell_go", "n": question["n"], "waited_ms": 0, "message": "", **more})
    text = nb.collect(cell).text
    assert words in text
    assert ("GPU ready" in text) is (words == "GPU ready after")


def test_an_interrupt_and_a_stopped_wait_end_the_cell_in_the_same_way(agent, notebook):
    """One error on one line, and the text of the wait is gone."""
    agent.kernel["state"], agent.holding = "pending", True
    nb = notebook()
    ends = []
    for stop in ("interrupt", "refusal"):
        cell = nb.submit("print('ran')")
        nb.until_shown(cell, "Waiting for quota.")
        n = agent.receive("cell_start")["n"]
        if stop == "interrupt":
            nb.manager.interrupt_kernel()
        else:
            agent.send({"type": "cell_refused", "n": n, "message": "the wait was stopped."})
        result = nb.collect(cell)
        ends.append((result.reply["ename"], [_kind(one) for one in result.outputs][-2:]))
        assert len(result.outputs[-1]["content"]["traceback"]) == 1
    assert ends[0] == ends[1] == ("CellNotRun", ["update_display_data: ''", "error"])


def test_a_short_wait_shows_nothing(agent, notebook):
    agent.kernel["state"] = "attached"
    nb = notebook()
    assert nb.run("None").outputs == []


def test_an_interrupt_refuses_the_cell_and_later_cells_run(agent, notebook):
    agent.kernel["state"], agent.holding = "pending", True
    nb = notebook()
    cell = nb.submit("print('ran')")
    nb.until_shown(cell, "Waiting for quota.")
    nb.manager.interrupt_kernel()
    result = nb.collect(cell, timeout=60)
    assert (result.reply["status"], result.reply["ename"]) == ("error", "CellNotRun")
    assert "\nran" not in result.text
    assert agent.receive("cell_start")["n"] == agent.receive("cell_cancel")["n"]
    agent.holding = False
    assert nb.run("print('later')").text == "later\n"


def test_a_cell_that_awaits_can_be_interrupted_too(agent, notebook):
    agent.kernel["state"], agent.holding = "pending", True
    nb = notebook()
    cell = nb.submit("import asyncio\nawait asyncio.sleep(0)")
    nb.until_shown(cell, "Waiting for quota.")
    nb.manager.interrupt_kernel()
    assert nb.collect(cell, timeout=60).reply["ename"] == "CellNotRun"


def test_a_refused_cell_has_one_clear_error(agent, notebook):
    agent.kernel["state"], agent.holding = "pending", True
    nb = notebook()
    cell = nb.submit("print('ran')")
    question = agent.receive("cell_start")
    agent.send({"type": "cell_refused", "n": question["n"], "message": "The GPU is lost."})
    result = nb.collect(cell)
    assert [one["msg_type"] for one in result.outputs] == ["error"]
    assert result.outputs[0]["content"]["traceback"] == ["CellNotRun: The GPU is lost."]


def test_cells_that_begin_with_the_magic_never_wait(agent, notebook):
    agent.kernel["state"], agent.holding = "pending", True
    result = notebook().run("%gpu")
    assert result.ok
    assert "waiting" in result.text


def test_a_pending_cell_keeps_waiting_while_the_agent_restarts(agent, notebook):
    agent.kernel["state"], agent.holding = "pending", True
    nb = notebook()
    cell = nb.submit("print('ran')")
    nb.until_shown(cell, "Waiting for quota.")
    agent.close()
    nb.until_shown(cell, "The node agent is not reachable.")
    agent.holding = False
    agent.open()
    assert nb.collect(cell).ok


def test_a_cell_with_a_lease_waits_for_the_agent_until_its_deadline_and_then_runs(agent, notebook):
    agent.kernel["state"] = "attached"
    nb = notebook(GPUSHARE_AGENT_WAIT="1")
    assert nb.run("x = 1").ok
    agent.close()
    cell = nb.submit("print(x)")
    nb.until_shown(cell, "The cell runs in at most 1 s.")
    result = nb.collect(cell)
    assert result.ok
    assert "did not come back" in result.text
    assert result.text.endswith("1\n")
    assert nb.run("print(x)").text == "1\n", "one wait per absence"


def test_a_cell_with_a_lease_asks_the_agent_when_it_is_back(agent, notebook):
    """Its memory may be borrowed, and only an agent can reclaim it."""
    agent.kernel["state"] = "attached"
    nb = notebook(GPUSHARE_AGENT_WAIT="60")
    assert nb.run("x = 1").ok
    agent.receive("cell_end")
    agent.close()
    cell = nb.submit("print(x)")
    nb.until_shown(cell, "not reachable")
    agent.open()
    assert nb.collect(cell).ok
    assert agent.receive("cell_start")["running"] is False


def test_a_cell_that_waits_for_its_share_keeps_waiting_when_the_agent_crashes(agent, notebook):
    agent.kernel["state"], agent.holding = "attached", True
    nb = notebook(GPUSHARE_AGENT_WAIT="60")
    cell = nb.submit("print('ran')")
    nb.until_shown(cell, "Waiting for quota.")
    agent.close()
    nb.until_shown(cell, "not reachable")
    agent.open()
    nb.until_shown(cell, "Waiting for quota.")
    agent.receive("cell_start"), agent.receive("kernel_hello")
    agent.send(
        {"type": "cell_go", "n": agent.receive("cell_start")["n"], "waited_ms": 0, "message": ""}
    )
    assert nb.collect(cell).ok


def test_the_wait_for_an_agent_can_be_interrupted_and_later_cells_run(agent, notebook):
    agent.kernel["state"] = "attached"
    nb = notebook(GPUSHARE_AGENT_WAIT="60")
    assert nb.run("x = 1").ok
    agent.close()
    cell = nb.submit("print(x)")
    nb.until_shown(cell, "not reachable")
    nb.manager.interrupt_kernel()
    result = nb.collect(cell)
    assert result.reply["ename"] == "CellNotRun"
    assert "Later cells do not wait for it" in result.text
    assert nb.run("print(x)").text == "1\n"


def test_without_an_agent_the_cell_shows_the_problem_that_was_known_at_launch(agent, notebook):
    agent.close()
    nb = notebook(
        GPUSHARE_AGENT_WAIT="1",
        GPUSHARE_WANTS_GPU="1",
        GPUSHARE_PROBLEM="no NVIDIA driver was found on this machine",
    )
    result = nb.run("print('ran')")
    assert result.ok
    assert "The cell runs without a GPU: no NVIDIA driver was found" in result.text
    refused = nb.run("%gpu request 0.5 --no-wait")
    assert "no NVIDIA driver was found" in refused.text
    assert "try again" not in refused.text


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (None, AGENT_WAIT_S),
        ("2.5", 2.5),
        ("0", 0),
        ("-3", 0),
        ("soon", AGENT_WAIT_S),
        ("inf", 3600),
    ],
)
def test_how_long_a_kernel_waits_for_its_agent(said, seconds):
    assert agent_wait_s({} if said is None else {"GPUSHARE_AGENT_WAIT": said}) == seconds


def test_running_cells_are_reported_to_an_agent_that_has_restarted(agent, notebook):
    agent.kernel["state"] = "attached"
    nb = notebook()
    cell = nb.submit(RUNS_UNTIL_STOPPED)
    nb.until_shown(cell, "begun")
    first = agent.receive("cell_start")
    agent.close()
    agent.open()
    agent.receive("kernel_hello")
    assert agent.receive("cell_start")["n"] == first["n"]
    (agent.path.parent / "stop").touch()
    assert nb.collect(cell).ok
    assert agent.receive("cell_end")["n"] == first["n"]


def test_a_cell_that_began_without_the_agent_requests_its_saved_memory(agent, notebook):
    """The agent crashed while it suspended this kernel: the cell is blocked in the driver until the
    memory is restored.
    """
    agent.kernel["state"] = "attached"
    nb = notebook(GPUSHARE_AGENT_WAIT="0")
    assert nb.run("x = 1").ok
    agent.receive("cell_end")
    agent.close()
    cell = nb.submit(RUNS_UNTIL_STOPPED)
    nb.until_shown(cell, "begun")
    agent.open()
    agent.receive("kernel_hello")
    agent.set_state("suspended")
    question = agent.receive("cell_start")
    assert (question["running"], question["wait"]) == (True, True)
    (agent.path.parent / "stop").touch()
    assert nb.collect(cell).ok
    assert agent.receive("cell_end")["n"] == question["n"]


def test_a_cell_that_runs_when_the_gpu_is_granted_is_reported(agent, notebook):
    nb = notebook()
    cell = nb.submit(RUNS_UNTIL_STOPPED)
    nb.until_shown(cell, "begun")
    agent.set_state("attached")
    question = agent.receive("cell_start")
    (agent.path.parent / "stop").touch()
    assert nb.collect(cell).ok
    assert agent.receive("cell_end")["n"] == question["n"]


def test_a_running_cell_ends_with_the_reason_before_its_kernel_restarts(agent, notebook):
    agent.kernel["state"] = "attached"
    nb = notebook()
    cell = nb.submit("import time\nprint('begun', flush=True)\ntime.sleep(60)")
    nb.until_shown(cell, "begun")
    agent.send({"type": "end_cell", "message": "C needs a whole GPU."})
    result = nb.collect(cell)
    assert (result.reply["ename"], result.reply["evalue"]) == (
        "GpuReclaimed",
        "C needs a whole GPU.",
    )
    assert nb.run("print('alive')").text == "alive\n"


def test_a_notice_is_shown_under_the_running_cell_and_calls_back(agent, notebook):
    agent.kernel["state"] = "attached"
    nb = notebook()
    nb.run(
        "from jupyter_gpushare import gpu\nimport threading\nseen = []\ncame = threading.Event()\n"
        "@gpu.on_notice\ndef noticed(n):\n    seen.append(n['take_mib']); came.set()"
    )
    cell = nb.submit("print('begun', flush=True)\nassert came.wait(20)\nprint(seen)")
    nb.until_shown(cell, "begun")
    agent.send(
        {
            "type": "notice",
            "message": "bob's notebook needs its share.",
            "deadline_ms": 9000,
            "take_mib": 7,
        }
    )
    result = nb.collect(cell)
    assert "bob's notebook needs its share." in result.text
    assert "[7]" in result.text


def test_a_message_that_arrives_between_cells_is_shown_once_by_the_next_cell(agent, notebook):
    nb = notebook()
    nb.run("1")
    agent.send({"type": "told", "message": "Moved to another GPU; nothing was lost."})
    agent.set_state("attached")  # messages keep their order: the one before was received
    assert "Moved to another GPU" in nb.run("import time; time.sleep(0.2)").text + nb.run("1").text
    assert "Moved" not in nb.run("1").text


@pytest.mark.parametrize(
    ("cell", "exempt"),
    {
        "%gpu": True,
        "  \n%gpu wait\nx": True,
        "%%gpu 1.0\nx": True,
        "x = 1": False,
        "%gpus": False,
        "# %gpu": False,
        "": False,
    }.items(),
)
def test_which_cells_are_exempt(cell, exempt):
    assert is_exempt(cell) is exempt
