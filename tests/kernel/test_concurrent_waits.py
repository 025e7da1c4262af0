"""Several cells of one kernel that wait at once: each has its own request, its own text and its own
end.
"""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace

import pytest

from jupyter_gpushare.kernel.cell_gate.gate import CellGate
from jupyter_gpushare.kernel.connection import AgentAddress, AgentConnection


def go(agent, n, **more):
    agent.send({"type": "cell_go", "n": n, "waited_ms": 0, "message": "", **more})


class Texts:
    """Records what a wait shows."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def show(self, message: str, waited_s: float) -> None:
        self.shown.append(message)

    def done(self, message: str) -> None:
        self.shown.append(message)


@pytest.fixture
def gate(agent):
    agent.kernel["state"], agent.holding = "pending", True
    gates = []
    connection = AgentConnection(
        AgentAddress("k1", str(agent.path), ""), lambda message: on_message(gates[0], message)
    )
    gates.append(CellGate(connection, Texts))
    connection.start()
    assert connection.welcomed.wait(20)
    agent.receive("kernel_hello")
    yield gates[0]
    connection.stop()


def on_message(gate, message):
    if message["type"] == "kernel_welcome":
        gate.work.resend()
    if message["type"] == "kernel":
        gate.work.report_unannounced()


class Cell:
    """A cell in a thread of its own, as in a subshell."""

    def __init__(self, gate, name="x = 1"):
        self.info = SimpleNamespace(raw_cell=name)
        self.allowed = threading.Event()
        self.end = threading.Event()
        self.ended = threading.Event()
        threading.Thread(target=self._run, args=(gate,), daemon=True).start()

    def _run(self, gate):
        gate.before_cell(self.info)
        self.allowed.set()
        self.end.wait(20)
        gate.after_cell(SimpleNamespace(info=self.info))
        self.ended.set()


def test_each_wait_ends_with_its_own_permission(agent, gate):
    first = Cell(gate)
    a = agent.receive("cell_start")["n"]
    second = Cell(gate)
    b = agent.receive("cell_start")["n"]
    go(agent, b)
    assert second.allowed.wait(20)
    assert not first.allowed.is_set()
    second.end.set()
    assert agent.receive("cell_end")["n"] == b
    go(agent, a)
    assert first.allowed.wait(20)
    first.end.set()
    assert agent.receive("cell_end")["n"] == a


def test_an_interrupt_of_an_idle_main_thread_ends_the_waits_of_the_others(agent, gate):
    cells = [Cell(gate), Cell(gate)]
    waiting = {agent.receive("cell_start")["n"] for _ in cells}
    gate.interrupt_waits()
    assert all(cell.allowed.wait(20) for cell in cells), "they are refused, and do not wait"
    assert {agent.receive("cell_cancel")["n"] for _ in cells} == waiting
    assert gate.stopped_waiting
    for cell in cells:
        cell.end.set()


def test_the_end_of_one_cell_does_not_end_the_permission_of_another(agent, gate):
    agent.holding = False
    first = Cell(gate)
    a = agent.receive("cell_start")["n"]
    assert first.allowed.wait(20)
    second = Cell(gate)
    b = agent.receive("cell_start")["n"]
    assert second.allowed.wait(20)
    second.end.set()
    assert second.ended.wait(20)
    assert agent.receive("cell_end")["n"] == b
    assert gate.is_cell_running()
    assert gate.has_permission()
    agent.close()
    agent.open()
    again = agent.receive("cell_start")
    assert (again["n"], again["running"]) == (a, True), "an agent that restarts learns of the first"
    first.end.set()
    assert agent.receive("cell_end")["n"] == a


def test_both_waits_continue_after_the_agent_has_restarted(agent, gate):
    cells = Cell(gate), Cell(gate)
    before = {agent.receive("cell_start")["n"] for _ in cells}
    agent.close()
    agent.open()
    agent.receive("kernel_hello")
    after = {agent.receive("cell_start")["n"] for _ in cells}
    assert not before & after
    for n in after:
        go(agent, n)
    assert all(cell.allowed.wait(20) for cell in cells)
    for cell in cells:
        cell.end.set()


def test_an_interrupt_ends_only_the_wait_of_the_main_thread(agent, gate):
    other = Cell(gate)
    b = agent.receive("cell_start")["n"]
    main = threading.main_thread().ident

    def interrupt():
        agent.receive("cell_start")
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    info = SimpleNamespace(raw_cell="y = 1")
    gate.before_cell(info)
    cell = gate.work.current_cell()
    assert cell.refusal is not None
    assert cell.refusal.startswith("the wait for the GPU was stopped")
    gate.after_cell(SimpleNamespace(info=info))
    assert agent.receive("cell_cancel")["n"] != b
    assert not other.allowed.is_set()
    go(agent, b)
    assert other.allowed.wait(20)
    other.end.set()


def test_an_empty_cell_inside_a_cell_ends_nothing(agent, gate):
    """IPython calls `post_run_cell` for empty cells, without a `pre_run_cell`."""
    agent.holding = False
    info = SimpleNamespace(raw_cell="x = 1")
    gate.before_cell(info)
    n = agent.receive("cell_start")["n"]
    gate.after_cell(SimpleNamespace(info=SimpleNamespace(raw_cell="")))
    assert gate.has_permission()
    gate.after_cell(SimpleNamespace(info=info))
    assert agent.receive("cell_end")["n"] == n


# ---- in a real kernel with subshells


@pytest.mark.slow
def test_cells_of_a_kernel_and_its_subshell_wait_each_with_its_own_text(agent, notebook):
    agent.kernel["state"], agent.holding = "pending", True
    nb = notebook()
    main = nb.submit("print('main')")
    nb.until_shown(main, "Waiting for quota.")
    a = agent.receive("cell_start")["n"]
    side = nb.submit("print('side')", nb.create_subshell())
    nb.until_shown(side, "Waiting for quota.")
    b = agent.receive("cell_start")["n"]
    nb.until_shown(main, "Waiting for quota.")
    agent.set_state("attached")
    go(agent, b)
    result = nb.collect(side)
    assert result.ok
    assert "GPU ready after" in result.text
    assert "side" in result.text
    nb.until_shown(main, "Waiting for quota.")
    go(agent, a)
    result = nb.collect(main)
    assert result.ok
    assert "GPU ready after" in result.text
    assert "main" in result.text


@pytest.mark.slow
def test_an_interrupt_refuses_the_cell_of_the_main_shell_alone(agent, notebook):
    agent.kernel["state"], agent.holding = "pending", True
    nb = notebook()
    side = nb.submit("print('side')", nb.create_subshell())
    nb.until_shown(side, "Waiting for quota.")
    b = agent.receive("cell_start")["n"]
    main = nb.submit("print('main')")
    nb.until_shown(main, "Waiting for quota.")
    nb.manager.interrupt_kernel()
    assert nb.collect(main).reply["ename"] == "CellNotRun"
    go(agent, b)
    result = nb.collect(side)
    assert result.ok
    assert "side" in result.text


MAKES_COMM = """
from comm import create_comm
import pathlib
comm = create_comm(target_name="test")
comm.on_msg(lambda message: pathlib.Path("handled").touch())
print(comm.comm_id)
"""


@pytest.mark.slow
def test_a_widget_message_waits_beside_a_cell(agent, notebook):
    agent.kernel["state"] = "attached"
    nb = notebook()
    subshell = nb.create_subshell()  # ipykernel routes messages to the shell that made the comm
    comm = nb.collect(nb.submit(MAKES_COMM, subshell)).text.split()[-1]
    agent.received_kinds()
    agent.holding = True
    agent.set_state("suspended")
    main = nb.submit("print('main')")
    nb.until_shown(main, "Waiting for quota.")
    a = agent.receive("cell_start")["n"]
    message = nb.client.session.msg("comm_msg", {"comm_id": comm, "data": {"method": "custom"}})
    message["header"]["subshell_id"] = subshell
    nb.client.shell_channel.send(message)
    b = agent.receive("cell_start")["n"]
    go(agent, b)
    assert agent.receive("cell_end")["n"] == b
    assert (agent.path.parent / "handled").exists()
    go(agent, a)
    assert nb.collect(main).ok


def test_a_busy_block_counts_as_work_after_its_cell(agent, notebook):
    agent.kernel["state"] = "attached"
    nb = notebook()
    assert nb.run("from jupyter_gpushare import gpu; block = gpu.busy(); block.__enter__()").ok
    reports = [agent.receive("cell_start") for _ in range(2)]
    (background,) = [one["n"] for one in reports if one["running"]]
    assert nb.run("block.__exit__(None, None, None)").ok
    ended = [agent.receive("cell_end")["n"] for _ in range(3)]
    assert background in ended[1:]
