"""kill -9 of the node agent's process while it saves and brings back real GPU memory; the notebook
notices nothing but a wait.
"""

from __future__ import annotations

import contextlib
import threading

import pytest

from tests.fake_driver.fake_gpu_machine import GIB, Faults
from tests.story.fake_driver_server import GPU, PlayedServer
from tests.story.jupyter_process import RestError, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(100)]
FILL = GPU + "p = g.alloc(2 << 30); g.write(p, b'every byte')"
READ = "print(g.read(p, 10).decode())"


@pytest.fixture
def played(tmp_path):
    server = PlayedServer(tmp_path, gpus=1, memory=8 * GIB, remote=True)
    try:
        yield server.start()
    finally:
        server.stop()
        print(server.logs())  # noqa: T201 - shown when the test fails


def killed_in(server: PlayedServer, call: str, begin, end=lambda: None) -> None:
    """The agent is killed while the driver works on this call for it; then there is a new one."""
    fault = server.machine.fault(call, Faults.HANG_AFTER)
    begin()
    try:
        eventually(lambda: server.machine.hits(fault), f"the agent is in {call}")
    finally:
        end()
    server.kill("agent")
    server.machine.clear()
    server.start_agent()


def test_an_agent_that_is_killed_while_it_copies_is_replaced_and_nothing_is_lost(played):
    nb = played.notebook("half", "a.ipynb")
    nb.ok(FILL, 60)
    act = f"gpushare/api/kernels/{nb.kernel_id}/actions/suspend"
    pid = nb.pid

    eventually(lambda: "suspend" in played.status()["tiers"], "the self-test is through")
    played.rest("POST", act)
    assert played.machine.state(pid) == "checkpointed"
    played.kill("agent")
    played.start_agent()
    assert nb.ok(READ, 60).endswith("every byte\n")

    def suspend() -> None:
        with contextlib.suppress(RestError):  # the agent dies while it is asked
            played.rest("POST", act)

    over = threading.Event()

    def keep_asking() -> None:
        """A new agent has to be found, and to test the driver, before it saves anything."""
        while not over.wait(0.2):
            suspend()

    for call in ("cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint"):
        over.clear()
        asking = threading.Thread(target=keep_asking)
        killed_in(played, call, asking.start, over.set)
        asking.join()
        assert nb.ok(READ, 60).endswith("every byte\n")

    def saved() -> bool:
        suspend()  # again, until the server has found the new agent
        return played.machine.state(pid) == "checkpointed"

    for call in ("cuCheckpointProcessRestore", "cuCheckpointProcessUnlock"):
        eventually(saved, "it is saved")
        waiting = []
        killed_in(played, call, lambda waiting=waiting: waiting.append(nb.submit(READ)))
        assert "every byte" in nb.collect(waiting[0], 60).text
        assert nb.pid == pid


def test_an_agent_that_comes_back_to_a_full_gpu_still_saves_who_has_to_make_room(played):
    """Its self-test has no room then: what was proven on this machine counts."""
    eventually(lambda: "suspend" in played.status()["tiers"], "the self-test is through")
    a, b = played.notebook("half", "a.ipynb"), played.notebook("half", "b.ipynb")
    a.ok(GPU + "p = g.alloc(7800 << 20); g.write(p, b'every byte')", 60)
    b.ok("1")
    played.kill("agent")
    played.start_agent()
    b.ok(FILL, 60)
    assert "notice" not in a.kinds()
    assert a.ok(READ, 60).endswith("every byte\n")
    assert "killed" not in a.kinds()
